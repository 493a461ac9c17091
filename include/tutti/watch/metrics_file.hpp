#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include <tutti/config.hpp>
#include <tutti/watch/gpu_readings.hpp>
#include <tutti/watch/metrics.hpp>
#include <tutti/watch/operation_sink.hpp>

namespace tutti::watch {

/// The metrics of a rank in a file that is replaced as a whole every few seconds while the rank calls tutti or waits in
/// it, and when it leaves its world: for the textfile collector of Prometheus' node-exporter, which refuses a series
/// that two files have. The name of the job is therefore in the name of the file and in every series. A file that
/// cannot be written is warned of, and tried again.
class metrics_file final : public operation_sink {
 public:
  /// Removes files that processes of this machine left when they ended, or when it did, and writes its own, with all
  /// counters at zero. Throws error{system} or {out_of_resources}.
  TUTTI_DECL metrics_file(const std::string& folder, metrics_place where);
  TUTTI_DECL ~metrics_file() override;

  TUTTI_DECL void take(const operation& o, std::int64_t issued, std::int64_t started, std::int64_t ended,
                       const call_site& site) override;
  TUTTI_DECL void take_span(const ::tutti::detail::time_span& s, std::int64_t begun, std::int64_t middle,
                            std::int64_t ended) override;
  TUTTI_DECL void end_batch(std::int64_t now) override;

 private:
  TUTTI_DECL void write_out();

  std::string path_, writer_;
  metrics counted_;
  std::int64_t written_;
  bool warned_ = false;  // of the last write, which failed
  std::shared_ptr<gpu_readings> gpus_;
};

/// Returns folder/tutti_<job>_rank_3.prom; tutti_<job>_rank_3_world2.prom for the second world of a process.
TUTTI_DECL std::string metrics_path(const std::string& folder, const std::string& job, int rank, std::uint32_t number);

}  // namespace tutti::watch

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/watch/metrics_file.hpp>
#endif
