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

#include <tutti/algo/mismatch/call_chain.hpp>
#include <tutti/async/op.hpp>
#include <tutti/async/task.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/backend/default.hpp>
#include <tutti/backend/mapped_array.hpp>
#include <tutti/backend/registration.hpp>
#include <tutti/communicator/base.hpp>
#include <tutti/communicator/distributing.hpp>
#include <tutti/communicator/messaging.hpp>
#include <tutti/communicator/moving.hpp>
#include <tutti/communicator/prepared.hpp>
#include <tutti/communicator/reducing.hpp>
#include <tutti/communicator/scanning.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/text.hpp>

namespace tutti {

namespace detail {

/// All calls that can be started, or prepared.
template <class Base>
using all_calls = messaging_calls<moving_calls<distributing_calls<scanning_calls<reducing_calls<Base>>>>>;

template <backend B>
using communicator_calls = all_calls<communicator_base<B>>;

/// Exclusion of splits of the world's other communicators, from construction to destruction.
template <class B>
class split_in_progress {
 public:
  split_in_progress(B& whole, tutti::engine& engine) : whole_(whole), engine_(engine) {
    auto guard = engine_.lock();
    context_ = whole_.begin_split();
  }
  split_in_progress(const split_in_progress&) = delete;
  split_in_progress& operator=(const split_in_progress&) = delete;
  ~split_in_progress() {
    auto guard = engine_.lock();
    whole_.end_split();
  }
  /// Returns the lowest context that a group of this rank can have.
  [[nodiscard]] std::uint32_t context() const noexcept { return context_; }

 private:
  B& whole_;
  tutti::engine& engine_;
  std::uint32_t context_ = 0;
};

}  // namespace detail

/// Group of ranks that call collectives together; the typed interface of a backend.
///
/// Every rank issues the same collectives in the same order. A call starts the operation and returns its handle;
/// buffers belong to the operation until the handle has ended (see op). Ranges are contiguous (std::vector, std::span,
/// arrays) and, on hosts, shorter than 1 TiB. Wrong arguments, and a communicator that was moved away, throw
/// usage_error before anything is sent. Failures at run time throw error from the handle; the first one is sticky.
/// Distinct communicators may be used from distinct threads at the same time; on a shared one, issue from one thread at
/// a time; abort() may come from any. Communicators split from one world share its links and its failures: destroying
/// one with operations in flight aborts them all with errc::aborted on all ranks; a child made by fork() may only
/// destroy its copy. Calls by family: communicator/reducing.hpp, scanning.hpp, moving.hpp, distributing.hpp,
/// messaging.hpp; prepared.hpp; base.hpp.
template <backend B = host>
class communicator : public detail::communicator_calls<B> {
  using calls = detail::communicator_calls<B>;

 public:
  communicator(B b, std::shared_ptr<tutti::engine> engine, duration timeout)
      : calls(std::move(b), std::move(engine), timeout) {}

  /// Returns the collectives, send and recv as calls that start nothing. Each checks its arguments, chooses its
  /// algorithm and returns an operation that can be started many times (see prepared): `auto average =
  /// world.prepare().all_reduce(gradients, mean)`. Calls by value, of strings, and recv_any cannot be prepared. Sends
  /// nothing. The result must not outlive this communicator; the prepared operations may, but then throw usage_error
  /// when they are started.
  [[nodiscard]] detail::all_calls<detail::preparing_base<B>> prepare() noexcept {
    return detail::all_calls<detail::preparing_base<B>>{this->core_};
  }

  /// Splits this group: ranks with the same color form a new communicator, ordered by (key, rank). Collective; blocks.
  /// The new communicator shares this one's links, engine and failures: a failure of either ends both. Throws
  /// usage_error while another communicator of the world is being split, and after 32767 splits of a world.
  ///
  /// In shared memory, a group takes 516 KiB per rank from its first operation on, and 4.5 MiB once it has staged a
  /// message of 64 KiB or 4 MiB of shorter ones, until all its ranks have destroyed it; twice that if it spans several
  /// nodes.
  [[nodiscard]] communicator split(int color, int key = 0, std::source_location where = std::source_location::current())
    requires(B::where == space::host)
  {
    splitting cut{*this, color, key, where};
    cut.gathering.wait();
    return cut.finish();
  }
  /// Splits this group in a coroutine, beside others: `auto half = co_await world.split_async(color)`. Begins when it
  /// is awaited. This communicator must not be moved or destroyed until it has ended.
  [[nodiscard]] task<communicator> split_async(int color, int key = 0,
                                               std::source_location where = std::source_location::current())
    requires(B::where == space::host)
  {
    splitting cut{*this, color, key, where};
    co_await std::move(cut.gathering);
    co_return cut.finish();
  }

  /// Compares the calls of all ranks, then ends this communicator as its destructor does. Collective; blocks. Finds
  /// mistakes in the last calls of a job, such as different roots, which no later call would find: call it at the end
  /// of a job that must be right. Throws error{mismatch} on all ranks, naming a rank that differs from most, or the
  /// error that ended an earlier operation. The communicator has ended then, too: later calls throw as after a move.
  /// Groups of a split are closed one by one; messages (send, recv) are not compared.
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

  /// Allocates zeroed memory for `count` elements that peers on this node map, so that collectives move it without
  /// staging; docs/algorithms.md lists the exceptions by collective, such as short messages. Not collective. The memory
  /// is freed with the array, which must outlive the operations on it. While it lives, this rank does not leave its
  /// world: peers that wait for this rank learn of its leaving only after the last array is gone. Throws
  /// error{out_of_resources}.
  template <detail::transferable T>
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

  /// Registers memory that the caller already has, so that peers on this node map it where it lies, as they map memory
  /// of allocate(): as ncclCommRegister and MPI_Win_create do. Not collective. Until the registration ends, collectives
  /// on the memory, and on parts of it, stage nothing where all ranks whose buffers others access have registered or
  /// allocated theirs; the program uses it as before. Content, mlock(), mbind() and
  /// huge-page advice are kept. Memory of fewer than four whole pages is accepted and not mapped
  /// (registration::registered()).
  ///
  /// It must be private memory of the heap, in no operation that is in flight, and no thread may write to it during the
  /// call; end the registration before the memory is freed. fork() copies it for the child. Costs a copy, and twice the
  /// memory for as long as that takes. Throws usage_error if it overlaps registered memory of any world, is shared, a
  /// file, a stack or a device's, error{out_of_resources}, and error{system} where there is no /proc; nothing has
  /// changed then. docs/memory.md says more.
  template <detail::writable_elements R>
  registration register_buffer(R&& memory, std::source_location where = std::source_location::current())
    requires(B::where == space::host)
  {
    this->core().engine().check_place("register_buffer");
    const detail::call_context me = this->who("register_buffer");
    const auto bytes = std::as_writable_bytes(std::span{memory});
    try {
      const std::string words =
          "rank " + std::to_string(this->world_rank(this->rank())) + " (" + detail::file_and_line(where) + ")";
      return this->core().backend().register_buffer(bytes, words);
    } catch (const usage_error& e) {
      me.refuse(e.what());
    } catch (const error& e) {
      throw error{e.cause(), me.text(e.what())};
    } catch (const std::bad_alloc&) {
      throw error{{errc::out_of_resources}, me.text("no memory to keep account of it")};
    }
  }
  /// Deleted for memory that cannot be registered, with the reason in the compiler's message.
  template <class R, detail::argument_error Why = detail::error_of_call<detail::use::write, R>()>
    requires(Why != detail::argument_error::none)
  void register_buffer(R&& memory, std::source_location where = std::source_location::current()) = delete;

 private:
  /// Split in progress: gathers the colors and keys of all ranks, from which each computes the same groups.
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
    /// Makes the new communicator. `gathering` must have ended.
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
