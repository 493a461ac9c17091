#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include <tutti/async/span_log.hpp>
#include <tutti/config.hpp>
#include <tutti/watch/gpu_readings.hpp>
#include <tutti/watch/record.hpp>

namespace tutti::watch {

/// Figures of a rank's transport, for its metrics.
struct transport_figures {
  std::uint64_t shared_bytes = 0;        ///< memory that the ranks of its machine can map
  std::uint64_t connection_retries = 0;  ///< attempts to connect that were made again
};

/// A rank's place in a world, for its metrics.
struct metrics_place {
  std::string job;  ///< not empty, and that of no other job
  int rank = 0, local_rank = 0, size = 1;
  std::uint32_t number = 1;  ///< of the world, among those of its process
  std::int64_t joined = 0;   ///< nanoseconds since 1970
  /// The rank's transport, and the function that reads it, under the engine's lock, for metrics::see(); may be null.
  const void* transport = nullptr;
  transport_figures (*read)(const void* transport) noexcept = nullptr;
};

/// The operations of a rank, counted by call, and when it was last seen.
class metrics {
 public:
  explicit metrics(metrics_place where)
      : where_(std::move(where)), last_seen_(where_.joined), last_end_(where_.joined) {}

  /// Counts an operation that has ended.
  TUTTI_DECL void take(const operation& o, std::int64_t issued, std::int64_t started, std::int64_t ended);
  /// Counts a wait of a thread, or a pass or bucket of a reducer. Times as those of operation_sink::take_span().
  TUTTI_DECL void take_span(const ::tutti::detail::time_span& s, std::int64_t begun, std::int64_t middle,
                            std::int64_t ended);
  /// Notes that the rank is in a call or wait now, and reads the transport. Under the engine's lock.
  TUTTI_DECL void see(std::int64_t now);
  /// Notes that the rank has left its world.
  void leave() noexcept { left_ = true; }

  [[nodiscard]] const metrics_place& where() const noexcept { return where_; }

 private:
  friend class metrics_text;
  static constexpr std::array<double, 8> limits{1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100};  // seconds
  /// Returns the place of a time in `within`.
  static constexpr std::size_t bin_of(double seconds) noexcept {
    std::size_t i = 0;
    while (i < limits.size() && limits[i] < seconds) ++i;
    return i;
  }
  struct counts {
    std::uint64_t ended = 0, failed = 0, bytes = 0;
    double seconds = 0, waited = 0;
    std::array<std::uint64_t, limits.size() + 1> within{};  // the last one: beyond all limits
  };
  /// Times until other ranks have come, too, to collectives that this rank has made.
  struct arrivals {
    std::uint64_t count = 0;
    double seconds = 0;
    std::array<std::uint64_t, limits.size() + 1> within{};
  };

  metrics_place where_;
  std::int64_t last_seen_, last_end_;
  bool left_ = false;
  transport_figures transport_;
  std::array<counts, std::size(call_kind::names) + 1> calls_{};
  arrivals collectives_, bucket_collectives_;  // all, and those of a reducer's buckets
  std::uint64_t passes_ = 0;
  double exposed_ = 0, pass_ = 0, finish_ = 0, buckets_ = 0;  // seconds
};

/// Returns the metrics of worlds of this process in Prometheus' text format. Devices are those of the machine: the
/// first rank of a machine tells about all of them, every rank about its own process on them.
TUTTI_DECL std::string text_of(std::span<const metrics> worlds, std::span<const gpu_reading> devices);

}  // namespace tutti::watch

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/watch/metrics.hpp>
#endif
