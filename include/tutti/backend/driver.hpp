#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include <tutti/algo/board_remains.hpp>
#include <tutti/algo/tuning.hpp>
#include <tutti/async/engine.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/core/error.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/odd_message.hpp>
#include <tutti/transport/tag.hpp>

namespace tutti {

/// A world's transport as its engine drives it, with the operations in flight and their deadlines. Shared by the
/// communicators that were split from one world; the last of them says goodbye.
template <class T>
class driver final : public progress_source {
  static_assert(transport<T>);

 public:
  driver(std::shared_ptr<engine> home, std::unique_ptr<T> link) : engine_(std::move(home)), link_(std::move(link)) {
    // Where ranks outnumber cores, a spinning rank keeps the core from the one it waits for.
    engine_->wait_by(link_->ranks_per_core() <= 1 ? wait_policy::own_core() : wait_policy::shared_core());
    engine_->attach(*this);
  }
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;
  ~driver() {
    if (engine_->inherited()) {  // see issuer
      static_cast<void>(link_.release());
      return;
    }
    engine_->detach(*this);
    auto guard = engine_->lock();
    link_->leave();
  }

  [[nodiscard]] T& link() noexcept { return *link_; }
  [[nodiscard]] engine& home() noexcept { return *engine_; }
  [[nodiscard]] const std::shared_ptr<engine>& shared_home() const noexcept { return engine_; }
  [[nodiscard]] op_list& in_flight() noexcept { return in_flight_; }

  /// The table of algorithms of this world; set before its first operation, the same on all ranks.
  void tune(const algo::tuning& table) noexcept { tuning_ = table; }
  [[nodiscard]] const algo::tuning& tuning() const noexcept { return tuning_; }

  /// Contexts keep the messages of groups apart. To be called under the lock, as is begin_split().
  void use_context(std::uint32_t c) noexcept {
    contexts_ = (std::max)(contexts_, c);
    reclaim();
  }

  /// Begins the agreement on the context of a group that is split from that of `parent`, which will be the highest that
  /// one of its ranks returns here. Those of one parent begin in one order on all ranks, so that the highest of the
  /// later one is higher; splits of two parents could agree on the same one: throws usage_error.
  [[nodiscard]] std::uint32_t begin_split(std::uint32_t parent) {
    if (splits_ != 0 && split_from_ != parent)
      throw usage_error(
          "split(): another communicator of this world is being split, by another thread or coroutine; split one "
          "after the other, in the same order on all ranks");
    split_from_ = parent;
    ++splits_;
    return ++contexts_;
  }
  void end_split() noexcept { --splits_; }

  /// Zeroed memory of this rank; peers map it where the transport can. Under the engine's lock.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    reclaim();
    if constexpr (mapped_transport<T>) return link_->allocate(bytes);
    auto* p = static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), std::align_val_t{4096}));
    std::memset(p, 0, bytes);
    return p;
  }
  void deallocate(std::byte* p) noexcept {
    if constexpr (mapped_transport<T>) return link_->deallocate(p);
    ::operator delete(p, std::align_val_t{4096});
  }

  /// An operation is in flight from here on. Before its start.
  void enter(op_state& s) noexcept {
    in_flight_.push_back(s);
    next_expiry_ = (std::min)(next_expiry_, s.info.expires);
  }
  /// After the start of an operation: what has come to an end with it, besides, is noticed at once by whoever is
  /// parked.
  void started() noexcept {
    if (link_->has_ready()) engine_->notify_locked();
  }

  /// An operation begins, in which all ranks of its group call this.
  void note_call(const recent_calls::one& call) noexcept {
    link_->note_call(call, [this](std::uint64_t t) {
      for (const op_state* s = in_flight_.back(); s; s = s->previous)  // it is asked of recent calls
        if (tag::of_one_operation(t, tag::make(s->info.context, s->info.sequence, 0))) return true;
      return false;
    });
  }

  /// The group of this board has ended here; what others still read of it is given back when they have ended, too.
  /// Under the engine's lock.
  void bury(algo::board& b) noexcept {
    remains_.bury(b);
    reclaim();
  }

  bool poll() noexcept override { return link_->poll(); }
  void tick(deadline now) noexcept override {
    link_->tick(now);
    reclaim();
    if (in_flight_.front()) ask_around(now);
    op_state* const s = expired(now);
    // Who comes back late first takes what has arrived meanwhile: that is nobody's delay but its own. But once for each
    // deadline, or one who drives only now and then had none.
    const bool was_away = now - std::exchange(driven_, now) > absence;
    if (was_away && (!s || s->info.expires != excused_)) {
      returned_ = now;
      excused_ = s ? s->info.expires : deadline{};
    }
    if (!s || now - returned_ < absence) return;
    s->info.expired = true;  // what ends the others with it
    link_->abort({errc::timed_out, odd_message::finder_of(link_->rank()), waiting_for(*s), s->info.sequence});
  }
  void prepare_park() noexcept override { link_->prepare_park(); }
  void park(duration at_most) noexcept override { link_->park(at_most); }
  void finish_park() noexcept override {
    link_->finish_park();
    driven_ = clock::now();
  }
  void unpark() noexcept override { link_->unpark(); }

 private:
  /// The first in flight whose deadline has passed; all are looked at when one may have.
  [[nodiscard]] op_state* expired(deadline now) noexcept {
    if (now < next_expiry_) return nullptr;
    next_expiry_ = (deadline::max)();
    for (op_state* s = in_flight_.front(); s; s = s->next) {
      next_expiry_ = (std::min)(next_expiry_, s->info.expires);
      if (now >= s->info.expires) return s;
    }
    return nullptr;
  }
  void reclaim() noexcept {
    if constexpr (mapped_transport<T>) remains_.reclaim(*link_);
  }
  /// Where the oldest operation has been so for a while, those that it and the ones behind it wait for are asked
  /// whether they called the same, and again and again.
  void ask_around(deadline now) noexcept {
    if (const deadline issued = in_flight_.front()->info.issued; issued != oldest_issued_) {
      oldest_issued_ = issued;
      pause_ = patience;
      next_question_ = now + patience;
    }
    if (now < next_question_) return;
    next_question_ = now + pause_;
    pause_ = std::min<duration>(2 * pause_, std::chrono::seconds(5));
    int most = 16;
    for (const op_state* s = in_flight_.front(); s && most > 0; s = s->next, --most)
      if (s->info.context != op_info::outside) link_->ask(work_of(*s), tag::make(s->info.context, s->info.sequence, 0));
  }
  /// An operation that waits for its turn waits for whoever those before it in its group wait for.
  [[nodiscard]] int waiting_for(const op_state& s) const noexcept {
    const auto ask = [this](const op_state& o) { return link_->waiting_for(work_of(o), o.info.context); };
    int who = ask(s);
    for (const op_state* o = in_flight_.front(); o != &s && who < 0; o = o->next)
      if (o->info.context == s.info.context) who = ask(*o);
    return who;
  }
  static const routine::promise_type* work_of(const op_state& s) noexcept {
    return static_cast<const routine::promise_type*>(s.work);
  }

  static constexpr duration patience = std::chrono::milliseconds(100), absence = std::chrono::milliseconds(20);

  std::shared_ptr<engine> engine_;
  std::unique_ptr<T> link_;
  op_list in_flight_;
  algo::tuning tuning_;
  algo::board_remains remains_;
  std::uint32_t contexts_ = 0;
  std::uint32_t splits_ = 0, split_from_ = 0;  // under way
  deadline oldest_issued_{}, next_question_{};
  deadline driven_{}, returned_{};            // the last tick, and the first after nobody had driven for a while
  deadline excused_{};                        // that had passed then, if one had
  deadline next_expiry_ = (deadline::max)();  // none in flight passes before
  duration pause_ = patience;
};

namespace detail {

/// Memory of driver::allocate(), given back with the last copy of the pointer. Takes the engine's lock.
template <class Driver>
std::shared_ptr<std::byte> allocate_shared(const std::shared_ptr<Driver>& keep, std::size_t bytes) {
  std::byte* p = nullptr;
  {
    auto guard = keep->home().lock();
    p = keep->allocate(bytes);
  }
  return {p, [keep](std::byte* at) {
            if (keep->home().inherited()) return;  // in a child made by fork(): see issuer
            auto guard = keep->home().lock();
            keep->deallocate(at);
          }};
}

}  // namespace detail

}  // namespace tutti
