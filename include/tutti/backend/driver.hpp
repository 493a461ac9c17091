#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <tutti/algo/selection/table.hpp>
#include <tutti/algo/shm/group/retire_list.hpp>
#include <tutti/async/engine.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/backend/registration.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/fork_guard.hpp>
#include <tutti/core/log.hpp>
#include <tutti/core/reduction/users_reduction.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/messaging/message_mismatch.hpp>
#include <tutti/transport/messaging/tag.hpp>
#include <tutti/transport/shm/registrations.hpp>
#include <tutti/watch/flight_recorder.hpp>

namespace tutti {

/// The progress source of a world: its transport, the operations in flight and their deadlines. Shared by the
/// communicators that were split from one world; the last of them says goodbye to the peers.
template <class T>
class driver final : public progress_source {
  static_assert(transport<T>);

 public:
  driver(std::shared_ptr<tutti::engine> engine, std::unique_ptr<T> link)
      : engine_(std::move(engine)), link_(std::move(link)), recorder_(link_->rank(), link_->size()) {
    // If ranks outnumber cores, a spinning rank keeps the core from the rank that it waits for.
    engine_->wait_by(link_->ranks_per_core() <= 1 ? wait_policy::own_core() : wait_policy::shared_core());
    engine_->attach(*this);
  }
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;
  ~driver() {
    if (engine_->inherited()) {  // see communicator_core
      static_cast<void>(link_.release());
      return;
    }
    engine_->detach(*this);
    {
      auto guard = engine_->lock();
      link_->leave();
    }
    left_->store(true, std::memory_order_release);
    left_->notify_all();
  }

  [[nodiscard]] T& link() noexcept { return *link_; }
  [[nodiscard]] tutti::engine& engine() noexcept { return *engine_; }
  [[nodiscard]] const std::shared_ptr<tutti::engine>& shared_engine() const noexcept { return engine_; }
  /// Returns what becomes true once this rank has left, which ends its registrations.
  [[nodiscard]] const std::shared_ptr<std::atomic<bool>>& left() const noexcept { return left_; }
  [[nodiscard]] op_list& in_flight() noexcept { return in_flight_; }
  [[nodiscard]] watch::flight_recorder& recorder() noexcept { return recorder_; }

  /// Sets the table of algorithms of this world: before its first operation, the same on all ranks.
  void tune(const algo::tuning& table) noexcept { tuning_ = table; }
  [[nodiscard]] const algo::tuning& tuning() const noexcept { return tuning_; }

  /// Sets the time after which a collective that has not ended is warned of; 0: never.
  void warn_after(duration d) noexcept {
    stalls_after_ = d;
    next_look_ = d > duration{0} ? deadline{} : (deadline::max)();
  }

  /// Records the context of a group, which keeps its messages apart from those of other groups. Called under the lock,
  /// as is begin_split().
  void use_context(std::uint32_t c) noexcept {
    contexts_ = (std::max)(contexts_, c);
    reclaim();
  }

  /// Begins the agreement on the context of a group that is split from that of `parent`: the highest number that one of
  /// its ranks returns here. Splits of one parent begin in one order on all ranks, so the later one agrees on a higher
  /// number; splits of two parents could agree on the same one, which throws usage_error.
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

  static constexpr bool has_heap = mapped_transport<T>;  ///< allocate() and deallocate() need the engine's lock

  /// Allocates zeroed memory of this rank; peers map it if the transport can. Under the engine's lock.
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

  /// Records an operation as in flight. Called before its start.
  void enter(op_state& s) noexcept {
    in_flight_.push_back(s);
    next_expiry_ = (std::min)(next_expiry_, s.info.expires);
  }
  /// Wakes threads that are parked if other operations have become ready during a start. Called after the start of an
  /// operation.
  void started() noexcept {
    if (link_->has_ready()) engine_->notify_locked();
  }

  /// Records the start of an operation that all ranks of its group call.
  void note_call(const call_log::entry& call) noexcept {
    link_->note_call(call, [this](std::uint64_t t) {
      for (const op_state* s = in_flight_.back(); s; s = s->previous)  // recent calls are looked up by tag
        if (tag::of_one_operation(t, tag::make(s->info.context, s->info.sequence, 0))) return true;
      return false;
    });
  }

  /// Takes over the shm group of a group that has ended here; its memory is freed once the other ranks no longer read
  /// it. Under the engine's lock.
  void retire(algo::shm_group& shm) noexcept {
    retired_.retire(shm);
    reclaim();
  }

  bool poll() noexcept override { return link_->poll(); }
  void tick(deadline now) noexcept override {
    link_->tick(now);
    recorder_.tick(now);
    reclaim();
    if (in_flight_.front()) ask_around(now);
    if (now >= next_look_) warn_of_stall(now);
    op_state* const s = expired(now);
    // A rank that did not poll for `absence` gets one grace period per deadline: messages may already be waiting, and
    // the delay was its own. Only one, or a rank that polls only now and then would have no deadline.
    const bool was_away = now - std::exchange(driven_, now) > absence;
    if (was_away && (!s || s->info.expires != excused_)) {
      returned_ = now;
      excused_ = s ? s->info.expires : deadline{};
    }
    if (!s || now - returned_ < absence) return;
    s->info.expired = true;  // the other operations fail because of this one
    link_->abort({errc::timed_out, message_mismatch::finder_of(link_->rank()), waiting_for(*s), s->info.sequence});
  }
  void prepare_park() noexcept override { link_->prepare_park(); }
  void park(duration at_most) noexcept override { link_->park(at_most); }
  void finish_park() noexcept override {
    link_->finish_park();
    driven_ = clock::now();
  }
  void unpark() noexcept override { link_->unpark(); }

 private:
  /// Returns the first operation in flight whose deadline has passed. Searches only when one may have passed.
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
    if constexpr (mapped_transport<T>) retired_.reclaim(*link_);
  }
  /// Asks the ranks that the operations in flight wait for whether they called the same, once the oldest operation has
  /// been in flight for `patience`; repeats that at growing intervals.
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
  /// Warns of the oldest collective in flight once it has been the oldest for `stalls_after_`, and again at twice that
  /// time, four times and so on. Those behind it wait for it, however long, and messages may wait for long, as those
  /// that ask for the next piece of work.
  void warn_of_stall(deadline now) noexcept {
    next_look_ = now + std::min<duration>(stalls_after_ / 8, std::chrono::seconds(1));
    const deadline last_look = std::exchange(looked_, now);
    op_state* s = in_flight_.front();
    while (s && s->info.context == op_info::outside) s = s->next;
    if (!s) return;
    const std::pair call{s->info.context, s->info.sequence};
    if (std::exchange(oldest_call_, call) != call) oldest_since_ = (std::max)(s->info.issued, last_look);
    if (s->info.stalls >= 32 || (now - oldest_since_) / (std::int64_t{1} << s->info.stalls) < stalls_after_) return;
    ++s->info.stalls;
    s->owner->stalled(*s, waiting_for(*s), now - s->info.issued);
  }
  /// Returns the rank that an operation waits for. One that waits for its turn waits for the rank that the operations
  /// before it in its group wait for.
  [[nodiscard]] int waiting_for(const op_state& s) const noexcept {
    const auto ask = [this](const op_state& o) {
      return link_->waiting_for(work_of(o), o.info.context == 0 ? o.info.sequence : 0);
    };
    int who = ask(s);
    for (const op_state* o = in_flight_.front(); o != &s && who < 0; o = o->next)
      if (o->info.context == s.info.context) who = ask(*o);
    return who;
  }
  static const routine::promise_type* work_of(const op_state& s) noexcept {
    return static_cast<const routine::promise_type*>(s.work);
  }

  static constexpr duration patience = std::chrono::milliseconds(100), absence = std::chrono::milliseconds(20);

  std::shared_ptr<tutti::engine> engine_;
  std::unique_ptr<T> link_;
  std::shared_ptr<std::atomic<bool>> left_ = std::make_shared<std::atomic<bool>>(false);
  watch::flight_recorder recorder_;
  op_list in_flight_;
  algo::tuning tuning_;
  algo::retire_list retired_;
  std::uint32_t contexts_ = 0;
  std::uint32_t splits_ = 0, split_from_ = 0;  // splits that have begun, and their parent
  deadline oldest_issued_{}, next_question_{};
  deadline driven_{}, returned_{};            // the last tick, and the first one after an absence
  deadline excused_{};                        // the deadline that had passed at that tick, if any
  deadline next_expiry_ = (deadline::max)();  // no deadline in flight is earlier
  duration pause_ = patience;
  duration stalls_after_ = std::chrono::seconds(30);
  deadline next_look_{}, looked_{};  // for operations that wait for long
  std::pair<std::uint32_t, std::uint64_t> oldest_call_{op_info::outside,
                                                       0};  // context and sequence of the oldest collective at looked_
  deadline oldest_since_{};
};

namespace detail {

/// Logs that memory stays until the end of the world, because its owner ends where the engine's lock is held.
inline void log_kept(const char* message) noexcept { log(log_level::error, message); }

/// Allocates memory by driver::allocate(), freed with the last copy of the pointer; or at the end of the world, if that
/// copy ends inside a user's reduction. Takes the engine's lock.
template <class Driver>
std::shared_ptr<std::byte> allocate_shared(const std::shared_ptr<Driver>& keep, std::size_t bytes) {
  std::byte* p = nullptr;
  {
    auto guard = keep->engine().lock();
    p = keep->allocate(bytes);
  }
  return {p, [keep](std::byte* at) {
            if (keep->engine().inherited()) return;  // in a child made by fork(): see communicator_core
            if constexpr (Driver::has_heap) {
              if (users_reduction::runs_here())
                return log_kept(
                    "memory of allocate() that ends inside of a reduction or a hook stays until the end of the world");
              auto guard = keep->engine().lock();
              keep->deallocate(at);
            } else {
              keep->deallocate(at);  // without a heap no lock is needed
            }
          }};
}

/// Registered memory of a world, until the end of this object or of the world. Made by register_buffer().
template <class Driver>
struct held_registration {
  std::weak_ptr<Driver> world;
  std::shared_ptr<std::atomic<bool>> left;
  fork_guard process;
  shm_registration* memory = nullptr;

  explicit held_registration(const std::shared_ptr<Driver>& with) : world(with), left(with->left()) {}
  held_registration(const held_registration&) = delete;
  held_registration& operator=(const held_registration&) = delete;
  /// Waits for the operations on the memory. Inside a user's reduction, which runs under the lock, it leaves the memory
  /// to the end of the world; in a child made by fork() it is private already.
  ~held_registration() {
    if (!memory || process.inherited()) return;
    if (users_reduction::runs_here()) {
      log_kept("a registration of memory that ends inside of a reduction or a hook stays until the end of the world");
      return;
    }
    const auto with = world.lock();
    if (!with) {  // another thread may be ending the world just now
      left->wait(false, std::memory_order_acquire);
      return;
    }
    const auto unused = [this] { return memory->uses.load(std::memory_order_acquire) == 0; };
    for (;;) {
      with->engine().run_unchecked(unused);
      auto guard = with->engine().lock();
      if (!unused()) continue;
      with->link().registrations()->remove(*memory);
      return;
    }
  }
};

/// Registers memory with the transport of a world. Takes the engine's lock. `words` name the call in the error of
/// another one. Throws usage_error, error or std::bad_alloc.
template <class Driver>
registration register_buffer(const std::shared_ptr<Driver>& with, std::span<std::byte> memory, std::string words) {
  if constexpr (registering_transport<std::remove_reference_t<decltype(with->link())>>) {
    auto held = std::make_shared<held_registration<Driver>>(with);
    auto guard = with->engine().lock();
    // In a world that has failed, a peer may be in an operation yet, and write to what a new registration would get.
    auto* const all = with->link().failure().ok() ? with->link().registrations() : nullptr;
    if (all) held->memory = all->add(memory, std::move(words));
    if (!held->memory) return {};
    return registration{std::move(held)};
  } else if constexpr (requires { with->link().locate(memory.data(), memory.size()); }) {
    auto guard = with->engine().lock();
    return with->link().locate(memory.data(), memory.size()) ? registration{std::make_shared<char>()} : registration{};
  }
  return {};
}

}  // namespace detail

}  // namespace tutti
