#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>

#include <tutti/config.hpp>
#include <tutti/watch/operation_sink.hpp>

namespace tutti::watch {

/// The operations of a rank as metrics in Prometheus' text format, in a file that is replaced as a whole every few
/// seconds while the rank calls tutti or waits in it, and when it leaves its world: for the textfile collector of
/// Prometheus' node-exporter, which refuses a series that two files have. The name of the job is therefore in the name
/// of the file and in every series. Other labels are the rank and the call, whose number is fixed.
class metrics_file final : public operation_sink {
 public:
  /// Removes files that processes of this machine left when they ended, and writes its own, with all counters at zero.
  /// Throws error{system} or {out_of_resources}.
  TUTTI_DECL metrics_file(const std::string& folder, int rank, int size, std::uint32_t number, const std::string& job,
                          std::int64_t now);
  TUTTI_DECL ~metrics_file() override;

  TUTTI_DECL void take(const operation& o, std::int64_t issued, std::int64_t started, std::int64_t ended,
                       const call_site& site) override;
  TUTTI_DECL void end_batch(std::int64_t now) override;

 private:
  static constexpr std::array<double, 8> limits{1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10, 100};  // seconds
  struct counts {
    std::uint64_t ended = 0, failed = 0, bytes = 0;
    double seconds = 0, waited = 0;
    std::array<std::uint64_t, limits.size() + 1> within{};  // the last one: beyond all limits
  };
  TUTTI_DECL void write_out();

  std::string path_, writer_, labels_;
  int size_;
  std::int64_t written_, last_end_;
  bool left_ = false;
  std::array<counts, std::size(call_kind::names) + 1> calls_{};
};

/// Returns folder/tutti_<job>_rank_3.prom; tutti_<job>_rank_3_world2.prom for the second world of a process.
TUTTI_DECL std::string metrics_path(const std::string& folder, const std::string& job, int rank, std::uint32_t number);

}  // namespace tutti::watch

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/watch/metrics_file.hpp>
#endif
