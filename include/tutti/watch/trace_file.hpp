#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/watch/layout.hpp>
#include <tutti/watch/operation_sink.hpp>

namespace tutti::watch {

/// The operations of a rank as Chrome trace events, in a file that Perfetto and chrome://tracing open: an array with
/// one event a line, which needs no end, so that the file of a rank that was killed is as good. The process of an event
/// is the rank. Its threads are those that have waited, with the kernel's numbers, and rows that are none: of passes,
/// buckets and operations, one more for each that overlap. `ts` is microseconds since `base`.
class trace_file final : public operation_sink {
 public:
  /// Base of all times of a file, in nanoseconds since 1970: equal in all files of the same day and machine, and
  /// written in the first event. Numbers of JSON have 53 bits, too few for nanoseconds since 1970.
  static constexpr std::int64_t day = std::int64_t{86400} * 1'000'000'000;

  /// Makes the file of the rank that `of` is the recording of. Throws error{system} or {out_of_resources}.
  TUTTI_DECL trace_file(const std::string& folder, const recording_head& of, std::int64_t now);
  /// Writes what is left, and the end of the array, unless a write has failed.
  TUTTI_DECL ~trace_file() override;

  TUTTI_DECL void take(const operation& o, std::int64_t issued, std::int64_t started, std::int64_t ended,
                       const call_site& site) override;
  /// Writes a wait of a thread, and its computation since the wait before; waits and computations of less than a
  /// microsecond are left out. Or writes a pass, or a bucket.
  TUTTI_DECL void take_span(const tutti::detail::time_span& s, std::int64_t begun, std::int64_t middle,
                            std::int64_t ended) override;
  TUTTI_DECL void end_batch(std::int64_t now) override;

 private:
  /// Rows of slices that overlap, as threads with numbers that the kernel gives to none.
  struct rows {
    const char* name;
    std::size_t first;                    // the number of the first one
    std::vector<std::int64_t> ends = {};  // of the last slice of each
  };
  TUTTI_DECL void slice(std::string_view name, std::string_view category, std::size_t thread, std::int64_t from,
                        std::int64_t until);
  TUTTI_DECL void part(std::string_view name, std::string_view category, std::size_t thread, std::int64_t from,
                       std::int64_t until);
  TUTTI_DECL void take_wait(const tutti::detail::time_span& s, std::int64_t from, std::int64_t until);
  TUTTI_DECL void name_thread(std::size_t thread, std::string_view name);
  TUTTI_DECL void time(std::int64_t at);
  TUTTI_DECL std::size_t row_for(rows& of, std::int64_t from, std::int64_t until);
  TUTTI_DECL void write_out();

  os::fd file_;
  std::string path_, waiting_;
  std::int64_t base_;
  int rank_;
  rows passes_{"passes", 5'000'000}, buckets_{"gradient buckets", 5'100'000}, operations_{"operations", 5'200'000};
  std::map<int, std::int64_t> threads_;  // those that have waited, and the ends of their last waits
};

TUTTI_DECL std::string trace_path(const std::string& folder, int rank, std::uint32_t number);

}  // namespace tutti::watch

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/watch/trace_file.hpp>
#endif
