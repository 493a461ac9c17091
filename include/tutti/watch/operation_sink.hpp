#pragma once
#include <cstdint>
#include <string>

#include <tutti/async/span_log.hpp>
#include <tutti/config.hpp>
#include <tutti/watch/layout.hpp>
#include <tutti/watch/record.hpp>

namespace tutti::watch {

/// Receiver of all operations of a rank that have ended, in batches some time after their ends, in about the order of
/// issue. Called under the engine's lock. May throw std::bad_alloc and error{system}; the recorder then lets go of it.
class operation_sink {
 public:
  operation_sink() = default;
  operation_sink(const operation_sink&) = delete;
  operation_sink& operator=(const operation_sink&) = delete;
  virtual ~operation_sink() = default;

  /// Takes an operation; times are nanoseconds since 1970.
  virtual void take(const operation& o, std::int64_t issued, std::int64_t started, std::int64_t ended,
                    const call_site& site) = 0;
  /// Takes a span beside the operations; times as above, 0 where the span has none.
  virtual void take_span([[maybe_unused]] const tutti::detail::time_span& s, [[maybe_unused]] std::int64_t begun,
                         [[maybe_unused]] std::int64_t middle, [[maybe_unused]] std::int64_t ended) {}
  /// Ends a batch.
  virtual void end_batch(std::int64_t now) = 0;
};

}  // namespace tutti::watch
