#pragma once
#include <memory>
#include <string>
#include <utility>

#include <tutti/core/status.hpp>

namespace tutti {

/// The view of the host's world that a world of devices made from it keeps: whether a rank was lost, and the names of
/// ranks. Called under the lock of their common engine.
class world_view {
 public:
  world_view() = default;
  world_view(const world_view&) = delete;
  world_view& operator=(const world_view&) = delete;
  virtual ~world_view() = default;

  [[nodiscard]] virtual status failure() const noexcept = 0;
  virtual void abort(status why) noexcept = 0;  ///< ends the host's world, too; peers are told
  [[nodiscard]] virtual std::string describe(int world_rank) const = 0;
};

/// The view of a host's world whose communicators share a driver.
template <class Driver>
class driver_world_view final : public world_view {
 public:
  explicit driver_world_view(std::shared_ptr<Driver> d) : driver_(std::move(d)) {}

  [[nodiscard]] status failure() const noexcept override { return driver_->link().failure(); }
  void abort(status why) noexcept override { driver_->link().abort(why); }
  [[nodiscard]] std::string describe(int world_rank) const override { return driver_->link().describe(world_rank); }

 private:
  std::shared_ptr<Driver> driver_;
};

}  // namespace tutti
