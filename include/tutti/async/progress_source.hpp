#pragma once
#include <tutti/core/deadline.hpp>

namespace tutti {

/// Something that moves operations forward when it is polled: a backend over its transport.
class progress_source {
 public:
  virtual bool poll() noexcept = 0;                  ///< under the lock; true if anything moved
  virtual void tick(deadline now) noexcept = 0;      ///< under the lock, about every millisecond: deadlines, liveness
  virtual void prepare_park() noexcept = 0;          ///< under the lock; from here on, arrivals must end a park
  virtual void park(duration at_most) noexcept = 0;  ///< without it; sleeps until something may have arrived
  virtual void finish_park() noexcept = 0;           ///< under the lock
  virtual void unpark() noexcept = 0;                ///< any thread: ends a park

 protected:
  ~progress_source() = default;
};

}  // namespace tutti
