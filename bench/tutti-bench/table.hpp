#pragma once
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include <tutti/version.hpp>

#include "collective.hpp"
#include "options.hpp"
#include "timing.hpp"

namespace bench {

/// Returns a number as text of at most `width` characters, with as many digits as fit.
inline std::string fit(double value, int width) {
  for (const char* format : {"%.2f", "%.1f", "%.0f", "%.1e", "%.0e"}) {
    char text[64];
    if (std::snprintf(text, sizeof text, format, value) <= width) return text;
  }
  return std::string(static_cast<std::size_t>(width), '*');
}

/// The output of rank 0: nccl-tests' table on standard output, and JSON lines in a file.
class table {
 public:
  explicit table(const options& o)
      : options_(o), json_(o.json.empty() ? nullptr : std::make_unique<std::ofstream>(o.json)) {
    if (json_ && !*json_) throw std::runtime_error("cannot write " + o.json);
  }

  /// Prints the header. `about` has further lines, which begin with "# ".
  void header(int world_size, const std::string& about = {}) const {
    std::printf("# tutti-bench %d.%d.%d\n# Collective test starting: %s\n", TUTTI_VERSION_MAJOR, TUTTI_VERSION_MINOR,
                TUTTI_VERSION_PATCH, options_.collective.c_str());
    std::fputs(about.c_str(), stdout);
    std::printf(
        "# ranks: %d, cores: %u, warmup iters: %d, iters: %d, agg iters: %d, validation: %d, algorithm: %s\n#\n",
        world_size, std::thread::hardware_concurrency(), options_.warmup, options_.iterations, options_.aggregate,
        options_.checks, options_.algorithm.c_str());
    std::printf("# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place\n", "", "", "", "",
                "");
    std::printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "size", "count", "type",
                "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw", "busbw", "#wrong");
    std::printf("# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s\n", "(B)", "(elements)", "", "",
                "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "");
  }

  void row(int world_size, std::size_t bytes, std::size_t count, const std::optional<timing>& out_of_place,
           const std::optional<timing>& in_place) {
    const collective& what = collective_of(options_.collective);
    std::printf("%12zu  %12zu  %8s  %6s  %6d", bytes, count, options_.type.c_str(),
                what.reduces ? options_.op.c_str() : "none", what.rooted ? options_.root : -1);
    const double factor = what.bus_factor(world_size);
    for (const bool placed : {false, true}) {
      const auto& t = placed ? in_place : out_of_place;
      if (!t) {
        std::printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
        continue;
      }
      const double algorithm = static_cast<double>(bytes) / t->us / 1e3;
      const std::string wrong = options_.checks == 0 ? "N/A" : std::to_string(t->wrong);
      std::printf("  %7s  %6s  %6s  %6s", fit(t->us, 7).c_str(), fit(algorithm, 6).c_str(),
                  fit(algorithm * factor, 6).c_str(), wrong.c_str());
      bus_ += algorithm * factor;
      ++cells_;
      wrong_ += t->wrong;
      if (json_)
        *json_ << nlohmann::json{{"collective", options_.collective},
                                 {"backend", options_.backend},
                                 {"ranks", world_size},
                                 {"bytes", bytes},
                                 {"count", count},
                                 {"type", options_.type},
                                 {"op", what.reduces ? options_.op : "none"},
                                 {"in_place", placed},
                                 {"us", t->us},
                                 {"p50_us", t->p50},
                                 {"p99_us", t->p99},
                                 {"max_us", t->most},
                                 {"algbw_gbs", algorithm},
                                 {"busbw_gbs", algorithm * factor},
                                 {"wrong", t->wrong},
                                 {"algorithm", options_.algorithm}}
               << '\n';
    }
    std::printf("\n");
    std::fflush(stdout);
  }

  /// Prints the end of the table; returns the exit status of the program.
  int footer() const {
    std::printf("# Out of bounds values : %llu %s\n# Avg bus bandwidth    : %g\n#\n# Collective test concluded: %s\n",
                static_cast<unsigned long long>(wrong_), wrong_ == 0 ? "OK" : "FAILED", cells_ ? bus_ / cells_ : 0.0,
                options_.collective.c_str());
    return wrong_ == 0 ? 0 : 1;
  }
  [[nodiscard]] std::uint64_t wrong() const noexcept { return wrong_; }

 private:
  const options& options_;
  std::unique_ptr<std::ofstream> json_;
  double bus_ = 0;
  int cells_ = 0;
  std::uint64_t wrong_ = 0;
};

}  // namespace bench
