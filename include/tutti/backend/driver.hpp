#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include <tutti/async/engine.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/transport/concept.hpp>

namespace tutti {

/// A world's transport as its engine drives it, with the operations in flight and their deadlines. Shared by the
/// communicators that were split from one world; the last of them says goodbye.
template <transport T>
class driver final : public progress_source {
 public:
  driver(std::shared_ptr<engine> home, std::unique_ptr<T> link) : engine_(std::move(home)), link_(std::move(link)) {
    // Where ranks outnumber cores, a spinning rank keeps the core from the one it waits for.
    engine_->spin_for(link_->ranks_per_core() <= 1 ? 2000 : 4);
    engine_->attach(*this);
  }
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;
  ~driver() {
    engine_->detach(*this);
    auto guard = engine_->lock();
    link_->leave();
  }

  [[nodiscard]] T& link() noexcept { return *link_; }
  [[nodiscard]] engine& home() noexcept { return *engine_; }
  [[nodiscard]] const std::shared_ptr<engine>& shared_home() const noexcept { return engine_; }
  [[nodiscard]] op_list& in_flight() noexcept { return in_flight_; }

  /// Contexts keep the messages of groups apart; the highest one used so far by a group of this rank.
  [[nodiscard]] std::uint32_t contexts() const noexcept { return contexts_; }
  void use_context(std::uint32_t c) noexcept { contexts_ = std::max(contexts_, c); }

  /// Zeroed memory of this rank; peers map it where the transport can. Under the engine's lock.
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    if constexpr (mapped_transport<T>) return link_->allocate(bytes);
    auto* p = static_cast<std::byte*>(::operator new(std::max<std::size_t>(bytes, 1), std::align_val_t{4096}));
    std::memset(p, 0, bytes);
    return p;
  }
  void deallocate(std::byte* p) noexcept {
    if constexpr (mapped_transport<T>) return link_->deallocate(p);
    ::operator delete(p, std::align_val_t{4096});
  }

  bool poll() noexcept override { return link_->poll(); }
  void tick(deadline now) noexcept override {
    link_->tick(now);
    for (op_state* s = in_flight_.front(); s; s = s->next) {
      if (now < s->info.expires) continue;
      s->info.expired = true;
      const auto* work = static_cast<const routine::promise_type*>(s->work);
      link_->abort({errc::timed_out, 0, link_->waiting_for(work, s->info.context), s->info.sequence});
      return;  // that ended every operation
    }
  }
  void prepare_park() noexcept override { link_->prepare_park(); }
  void park(duration at_most) noexcept override { link_->park(at_most); }
  void finish_park() noexcept override { link_->finish_park(); }
  void unpark() noexcept override { link_->unpark(); }

 private:
  std::shared_ptr<engine> engine_;
  std::unique_ptr<T> link_;
  op_list in_flight_;
  std::uint32_t contexts_ = 0;
};

}  // namespace tutti
