#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/watch/operation_sink.hpp>

namespace tutti::watch {

/// The operations of a rank as Chrome trace events, in a file that Perfetto and chrome://tracing open: an array with
/// one event a line, which needs no end, so that the file of a rank that was killed is as good. The process of an event
/// is the rank; operations that overlap are on threads of their own. `ts` is microseconds since `base`.
class trace_file final : public operation_sink {
 public:
  /// Base of all times of a file, in nanoseconds since 1970: equal in all files of the same day and machine, and
  /// written in the first event. Numbers of JSON have 53 bits, too few for nanoseconds since 1970.
  static constexpr std::int64_t day = std::int64_t{86400} * 1'000'000'000;

  /// Makes the file. Throws error{system} or {out_of_resources}.
  TUTTI_DECL trace_file(const std::string& folder, int rank, std::uint32_t number, const std::string& host,
                        const std::string& boot, std::int64_t now);
  /// Writes what is left, and the end of the array.
  TUTTI_DECL ~trace_file() override;

  TUTTI_DECL void take(const operation& o, std::int64_t issued, std::int64_t started, std::int64_t ended,
                       const call_site& site) override;
  TUTTI_DECL void end_batch(std::int64_t now) override;

 private:
  TUTTI_DECL void slice(std::string_view name, std::string_view category, std::size_t thread, std::int64_t from,
                        std::int64_t until);
  TUTTI_DECL void time(std::int64_t at);
  TUTTI_DECL std::size_t thread_for(std::int64_t from, std::int64_t until);
  TUTTI_DECL void write_out();

  os::fd file_;
  std::string path_, waiting_;
  std::int64_t base_;
  int rank_;
  std::vector<std::int64_t> ends_;  // of the last slice of each thread
};

TUTTI_DECL std::string trace_path(const std::string& folder, int rank, std::uint32_t number);

}  // namespace tutti::watch

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/watch/trace_file.hpp>
#endif
