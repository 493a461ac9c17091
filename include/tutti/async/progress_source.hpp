#pragma once
#include <tutti/core/deadline.hpp>

namespace tutti {

/// Source of progress: moves operations forward when an engine polls it. A backend over its transport is one. Every
/// member but park() and unpark() is called under the engine's lock, by the thread that drives.
class progress_source {
 public:
  virtual bool poll() noexcept = 0;                  ///< moves what can move; returns true if anything did
  virtual void tick(deadline now) noexcept = 0;      ///< called about every millisecond, for deadlines and liveness
  virtual void prepare_park() noexcept = 0;          ///< begins a park: from here on, arrivals must end it
  virtual void park(duration at_most) noexcept = 0;  ///< sleeps, without the lock, until something may have arrived
  virtual void finish_park() noexcept = 0;           ///< ends a park, undoes prepare_park()
  virtual void unpark() noexcept = 0;                ///< ends a park; any thread may call it

 protected:
  ~progress_source() = default;
};

}  // namespace tutti
