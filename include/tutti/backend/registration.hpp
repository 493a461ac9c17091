#pragma once
#include <memory>
#include <utility>

#include <tutti/config.hpp>

namespace tutti {

/// Registration of the caller's memory with a world (communicator::register_buffer), ended by the destructor.
/// Move-only.
class [[nodiscard]] registration {
 public:
  registration() noexcept = default;
  explicit registration(std::shared_ptr<void> held) noexcept : held_(std::move(held)) {}
  registration(registration&& other) noexcept : held_(std::move(other.held_)) {}
  registration& operator=(registration&& other) noexcept {
    held_ = std::exchange(other.held_, nullptr);
    return *this;
  }

  /// Returns true if other ranks map the memory, so that collectives on it stage nothing; false if it is too short for
  /// that, or no other rank shares memory with this one, and after release(). It is still true after the end
  /// of the world, although the memory is private again then.
  [[nodiscard]] bool registered() const noexcept { return held_ != nullptr; }

  /// Ends the registration, as the destructor does: waits for the world's collectives on the memory, drives the engine
  /// meanwhile, and makes its pages private again. Not inside of a reduction function or a hook: that is logged, and
  /// the memory stays registered until the end of the world. If there is too little memory for that, they stay shared,
  /// which is logged, and valid. Costs a copy. Does nothing after the end of the world, which has done so. Any thread;
  /// not the memory's users meanwhile.
  void release() noexcept { held_.reset(); }

 private:
  std::shared_ptr<void> held_;
};

}  // namespace tutti
