#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/algo/call_chain.hpp>
#include <tutti/async/op.hpp>
#include <tutti/async/task.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/backend/default.hpp>
#include <tutti/backend/mapped_array.hpp>
#include <tutti/communicator/base.hpp>
#include <tutti/communicator/distributing.hpp>
#include <tutti/communicator/messaging.hpp>
#include <tutti/communicator/moving.hpp>
#include <tutti/communicator/prepared.hpp>
#include <tutti/communicator/reducing.hpp>
#include <tutti/communicator/scanning.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/buffer.hpp>

namespace tutti {

namespace detail {

/// What can be started at once, and what can be prepared.
template <class Base>
using all_calls = messaging_calls<moving_calls<distributing_calls<scanning_calls<reducing_calls<Base>>>>>;

template <backend B>
using communicator_calls = all_calls<communicator_base<B>>;

/// While it lives, no other communicator of the backend's world can be split.
template <class B>
class split_in_progress {
 public:
  split_in_progress(B& whole, engine& home) : whole_(whole), home_(home) {
    auto guard = home_.lock();
    context_ = whole_.begin_split();
  }
  split_in_progress(const split_in_progress&) = delete;
  split_in_progress& operator=(const split_in_progress&) = delete;
  ~split_in_progress() {
    auto guard = home_.lock();
    whole_.end_split();
  }
  /// The lowest context that a group of this rank can have.
  [[nodiscard]] std::uint32_t context() const noexcept { return context_; }

 private:
  B& whole_;
  engine& home_;
  std::uint32_t context_ = 0;
};

}  // namespace detail

/// A group of ranks that can act together; the typed face of a backend.
///
/// Every rank issues the same collectives in the same order. A call starts the operation and returns its handle;
/// buffers belong to it until the handle has ended (see op). Ranges are contiguous: std::vector, std::span, arrays; on
/// hosts they are shorter than 1 TiB. Distinct communicators are safe to use from distinct threads; on a shared one,
/// issue from one thread at a time; abort() may come from any thread. Wrong arguments throw usage_error before anything
/// is sent, as do calls of a communicator that was moved away. Failures at run time throw error from the handle; the
/// first one is sticky. Communicators split from one world share its links and its fate: destroying one with operations
/// in flight aborts them all, errc::aborted everywhere; a child made by fork() may destroy its copy, and no more. Its
/// calls by family: communicator/reducing.hpp, scanning.hpp, moving.hpp, distributing.hpp, messaging.hpp; prepared
/// ones: prepared.hpp; who is in it: base.hpp.
template <backend B = host>
class communicator : public detail::communicator_calls<B> {
  using calls = detail::communicator_calls<B>;

 public:
  communicator(B b, std::shared_ptr<tutti::engine> home, duration timeout)
      : calls(std::move(b), std::move(home), timeout) {}

  /// A communicator on the host for scalars, strings and agreements beside device data; itself on a host backend.
  [[nodiscard]] communicator& control() noexcept
    requires(B::where == space::host)
  {
    return *this;
  }

  /// The collectives, send and recv as calls that start nothing: each checks its arguments, chooses its algorithm, and
  /// returns what starts it, often (see prepared): `auto average = world.prepare().all_reduce(gradients, mean)`. Not
  /// those by value and of strings, and no recv_any. Sends nothing. Ends with this communicator, unlike what its calls
  /// return, which then refuses to start.
  [[nodiscard]] detail::all_calls<detail::preparing_base<B>> prepare() noexcept {
    return detail::all_calls<detail::preparing_base<B>>{this->core_};
  }

  /// Cuts this group: ranks with the same color form a new communicator, ordered by (key, rank). Collective; blocks.
  /// The new one shares this one's links, engine and fate: a failure of either ends both. One communicator of a world
  /// at a time: usage_error from the split of another meanwhile; 32767 splits in all. In shared memory a group takes
  /// 516 KiB per rank from its first operation on, 4.5 MiB after a message of 64 KiB, or 4 MiB of shorter ones, that
  /// are staged, until all its ranks have destroyed it; twice that where it is on several machines.
  [[nodiscard]] communicator split(int color, int key = 0, std::source_location where = std::source_location::current())
    requires(B::where == space::host)
  {
    splitting cut{*this, color, key, where};
    cut.gathering.wait();
    return cut.finish();
  }
  /// The same for coroutines, which go on side by side: `auto half = co_await world.split_async(color)`. Begins when it
  /// is awaited; this communicator stays where it is until it has ended.
  [[nodiscard]] task<communicator> split_async(int color, int key = 0,
                                               std::source_location where = std::source_location::current())
    requires(B::where == space::host)
  {
    splitting cut{*this, color, key, where};
    co_await std::move(cut.gathering);
    co_return cut.finish();
  }

  /// Compares what the ranks have called, then ends this communicator as its destructor does: collective; blocks. A
  /// mistake in the last calls of a job, as another root, meets no later call and is told here only: put it at the end
  /// of what must be right. Throws error{mismatch} on all ranks, which names one that differs from most, and what ended
  /// an operation before. Also then it has ended: what follows refuses, as one that was moved away. Groups of a split
  /// are closed one by one; messages (send, recv) are not compared.
  void close(std::source_location where = std::source_location::current())
    requires(B::where == space::host && requires(const B& b) { b.calls(); })
  {
    this->core().engine().check_place("close");
    const auto& whole = this->core().backend();
    const auto mine = [&] {
      auto guard = this->core().engine().lock();
      if (whole.busy(this->core())) this->who("close").refuse("an operation is in flight; wait for it first");
      return whole.calls();
    }();
    std::vector<algo::call_chain> all(this->ranks());
    const struct ending {
      communicator& all;
      ~ending() { all.end(); }
    } in_any_case{*this};
    all_gather_args chains{erase_type(std::span{&mine, 1}), erase_type(std::span{all}), algorithm::automatic, "close"};
    this->start({}, {}, where, chains).wait();
    int most = -1;
    const int odd = algo::find_odd(all, most);
    if (most < 0) return;
    const int one = odd < 0 ? 0 : odd;
    const auto name = [&](int r) {
      auto guard = this->core().engine().lock();
      return whole.describe(this->world_rank(r));
    };
    const auto chain = [&](int r) { return all[static_cast<std::size_t>(r)]; };
    throw error{{errc::mismatch, 0, odd < 0 ? -1 : this->world_rank(odd), 0},
                this->who("close").text(algo::difference(chain(one), name(one), chain(most), name(most)) +
                                        "; all ranks must issue the same operations in the same order"),
                {this->rank(), mine.calls + 1, "close", where}};
  }

  /// Zeroed memory for `count` elements that collectives move without staging: peers on this machine map it. What is
  /// staged all the same, as short messages are, says docs/algorithms.md, by collective.
  /// Not collective. Freed with the array, which must not go before operations on it have ended; while it lives, this
  /// rank does not leave its world: peers that wait for it hear so only after the last. Throws error{out_of_resources}.
  template <detail::travels T>
  [[nodiscard]] mapped_array<T> allocate(std::size_t count)
    requires(B::where == space::host)
  {
    this->core().engine().check_place("allocate");
    constexpr std::size_t address_space = (std::numeric_limits<std::ptrdiff_t>::max)();
    if (count > address_space / sizeof(T))
      this->who("allocate").refuse(std::to_string(count) + " elements are more than there is address space");
    try {
      return mapped_array<T>{this->core().backend().allocate(count * sizeof(T)), count};
    } catch (const std::bad_alloc&) {
      const std::string why = "no memory for " + std::to_string(count) + " elements of " + std::to_string(sizeof(T)) +
                              " bytes; ask for fewer, or let the process have more (ulimit -v, the job's limit)";
      throw error{{errc::out_of_resources}, this->who("allocate").text(why)};
    }
  }

 private:
  /// A split under way: every rank hears what the others want, and takes the same conclusions.
  struct splitting {
    struct entry {
      std::int32_t color, key, rank, world_rank;
      std::uint32_t context;
    };
    communicator& whole;
    const detail::split_in_progress<B> alone;
    const entry mine;
    std::vector<entry> all;
    op gathering;

    splitting(communicator& of, int color, int key, std::source_location where)
        : whole((check(of, color), of)),
          alone(of.backend(), of.engine()),
          mine{color, key, of.rank(), of.backend().world_rank(), alone.context()},
          all(of.ranks()),
          gathering(of.start({}, {}, where,
                             all_gather_args{erase_type(std::span{&mine, 1}), erase_type(std::span{all}),
                                             algorithm::automatic, "split"})) {}
    splitting(const splitting&) = delete;
    splitting& operator=(const splitting&) = delete;
    ~splitting() = default;

    static void check(const communicator& of, int color) {
      of.engine().check_place("split");
      if (color < 0)
        of.who("split").refuse("a color is not negative; a rank that wants no group takes a color of its own");
    }
    /// Once `gathering` has ended.
    communicator finish() {
      group g{0, 0, 0, {}};
      for (const entry& e : all) g.context = (std::max)(g.context, e.context);
      if (g.context > 0x7fff) whole.who("split").refuse("a world can be split 32767 times, and has been");
      std::erase_if(all, [&](const entry& e) { return e.color != mine.color; });
      std::ranges::sort(
          all, [](const entry& a, const entry& b) { return std::pair{a.key, a.rank} < std::pair{b.key, b.rank}; });
      g.size = static_cast<int>(all.size());
      for (const entry& e : all) {
        if (e.world_rank == mine.world_rank) g.rank = static_cast<int>(g.members.size());
        g.members.push_back(e.world_rank);
      }
      auto made = [&] {
        auto guard = whole.engine().lock();
        return B{whole.backend().shared_driver(), std::move(g)};
      }();
      return {std::move(made), whole.core().shared_engine(), whole.timeout()};
    }
  };
};

}  // namespace tutti
