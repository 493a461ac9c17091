#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include <tutti/config.hpp>
#include <tutti/core/json_string.hpp>
#include <tutti/os/throw_errno.hpp>
#include <tutti/os/write_all.hpp>
#include <tutti/watch/dump.hpp>
#include <tutti/watch/trace_file.hpp>

namespace tutti::watch {

namespace detail {

TUTTI_DECL std::string quoted_json(std::string_view t) {
  std::string text;
  ::tutti::detail::append_json(text, t);
  return text;
}

}  // namespace detail

TUTTI_DECL std::string trace_path(const std::string& folder, int rank, std::uint32_t number) {
  return detail::path_in(folder, "trace_", rank, number, ".json");
}

TUTTI_DECL trace_file::trace_file(const std::string& folder, const recording_head& of, std::int64_t now)
    : path_(trace_path(folder, of.rank, of.number)), base_(now / day * day), rank_(of.rank) {
  ::unlink(path_.c_str());  // an earlier job's file may still be read
  file_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!file_) os::throw_errno(errno, "cannot create " + path_);
  const std::string number = std::to_string(rank_), process = R"("pid":)" + number + R"(,"tid":0)",
                    title = "rank " + number + " (" + std::string(text_of(of.host)) + ")";
  waiting_ =
      "[\n"
      R"({"name":"process_name","ph":"M",)" +
      process + R"(,"args":{"name":)" + detail::quoted_json(title) + R"(,"base_ns":")" + std::to_string(base_) +
      R"(","boot":)" + detail::quoted_json(text_of(of.boot)) + R"(,"world":")" + std::to_string(of.world) +
      R"(","world_size":)" + std::to_string(of.size) + "}},\n" + R"({"name":"process_sort_index","ph":"M",)" + process +
      R"(,"args":{"sort_index":)" + number + "}}";
  write_out();
}

TUTTI_DECL trace_file::~trace_file() {
  if (!file_) return;
  try {
    waiting_ += "\n]\n";
    write_out();
  } catch (const std::exception&) {  // the array needs no end
  }
}

TUTTI_DECL void trace_file::take(const operation& o, std::int64_t issued, std::int64_t started, std::int64_t ended,
                                 const call_site& site) {
  const std::size_t thread = row_for(operations_, issued, ended);
  slice(o.call.name(), o.call.is_message() ? "message" : "collective", thread, issued, ended);
  const std::uint64_t bytes = o.count * o.element_bytes;
  waiting_ += R"(,"args":{"sequence":)" + std::to_string(o.sequence) + R"(,"group":)" +
              std::to_string(unsigned{o.context}) + R"(,"count":)" + std::to_string(o.count) + R"(,"bytes":)" +
              std::to_string(bytes) + R"(,"dtype":)" + detail::quoted_json(tutti::name(o.type)) + R"(,"algorithm":")" +
              tutti::name(o.via) + '"';
  if (o.reduction) waiting_ += std::string(R"(,"reduction":")") + tutti::name(*o.reduction) + '"';
  if (o.other >= 0) waiting_ += (o.call.is_message() ? R"(,"peer":)" : R"(,"root":)") + std::to_string(o.other);
  if (o.call.is_message()) waiting_ += R"(,"tag":)" + std::to_string(o.tag);
  if (o.bucket() >= 0) waiting_ += R"(,"bucket":)" + std::to_string(o.bucket());
  if (site.line != 0)
    waiting_ += R"(,"at":)" + detail::quoted_json(std::string(text_of(site.file)) + ":" + std::to_string(site.line));
  if (o.state == progress::failed)
    waiting_ += R"(,"error":)" + detail::quoted_json(category().message(static_cast<int>(o.result)));
  waiting_ += "}}";
  // Until then nobody else had come, or the operation waited for its turn.
  if (started > issued && started < ended) part("wait", "wait", thread, issued, started);
  constexpr std::size_t enough = std::size_t{1} << 16;
  if (waiting_.size() >= enough) write_out();
}

TUTTI_DECL void trace_file::take_span(const tutti::detail::time_span& s, std::int64_t begun, std::int64_t middle,
                                      std::int64_t ended) {
  using kind = tutti::detail::time_span::kind;
  ended = (std::max)(begun, ended);
  if (s.what == kind::wait) return take_wait(s, begun, ended);
  const bool is_pass = s.what == kind::pass;
  const std::size_t row = row_for(is_pass ? passes_ : buckets_, begun, ended);
  middle = std::clamp(middle, begun, ended);
  slice((is_pass ? "pass " : "bucket ") + std::to_string(s.number), is_pass ? "pass" : "bucket", row, begun, ended);
  if (is_pass) {
    waiting_ += '}';
    return part("finish", "pass", row, middle, ended);
  }
  waiting_ += R"(,"args":{"pass":)" + std::to_string(s.pass) + R"(,"bytes":)" + std::to_string(s.bytes) + "}}";
  part("ready", "bucket", row, begun, middle);
  part("in flight", "bucket", row, middle, ended);
}

TUTTI_DECL void trace_file::take_wait(const tutti::detail::time_span& s, std::int64_t from, std::int64_t until) {
  constexpr std::int64_t shortest = 1000;
  if (until - from < shortest) return;
  const auto thread = static_cast<std::size_t>(s.thread);
  if (const auto known = threads_.find(s.thread); known == threads_.end()) {
    name_thread(thread, "thread");
  } else {
    from = (std::max)(from, known->second);
    if (from - known->second >= shortest) part("computation", "computation", thread, known->second, from);
  }
  const std::string number = s.number != 0 ? " #" + std::to_string(s.number) : "";
  part(std::string("wait for ") + s.call + number, "wait", thread, from, (std::max)(from, until));
  threads_[s.thread] = (std::max)(from, until);
}

TUTTI_DECL void trace_file::end_batch(std::int64_t) { write_out(); }

TUTTI_DECL void trace_file::slice(std::string_view name, std::string_view category, std::size_t thread,
                                  std::int64_t from, std::int64_t until) {
  waiting_ += ",\n{\"ts\":";
  time(from - base_);
  waiting_ += R"(,"dur":)";
  time((std::max)(until - from, std::int64_t{0}));
  waiting_ += R"(,"ph":"X","pid":)" + std::to_string(rank_) + R"(,"tid":)" + std::to_string(thread) + R"(,"cat":")";
  waiting_ += category;
  waiting_ += R"(","name":")";
  waiting_ += name;
  waiting_ += '"';
}

TUTTI_DECL void trace_file::time(std::int64_t at) {
  char text[40];
  const int n = std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(at / 1000),
                              static_cast<long long>(at % 1000));
  waiting_.append(text, static_cast<std::size_t>(n));
}

TUTTI_DECL void trace_file::part(std::string_view name, std::string_view category, std::size_t thread,
                                 std::int64_t from, std::int64_t until) {
  slice(name, category, thread, from, until);
  waiting_ += '}';
}

TUTTI_DECL void trace_file::name_thread(std::size_t thread, std::string_view name) {
  waiting_ += R"(,
{"name":"thread_name","ph":"M","pid":)" +
              std::to_string(rank_) + R"(,"tid":)" + std::to_string(thread) + R"(,"args":{"name":)" +
              detail::quoted_json(name) + "}}";
}

TUTTI_DECL std::size_t trace_file::row_for(rows& of, std::int64_t from, std::int64_t until) {
  std::size_t t = 0;
  while (t < of.ends.size() && of.ends[t] > from) ++t;
  if (t == of.ends.size()) {
    of.ends.push_back(0);
    name_thread(of.first + t, of.name);
  }
  of.ends[t] = until;
  return of.first + t;
}

TUTTI_DECL void trace_file::write_out() {
  const int why = os::write_all(file_.native(), std::as_bytes(std::span{waiting_}));
  waiting_.clear();
  if (why == 0) return;
  file_.reset();  // it may end with a part of a line, to which nothing can be added
  os::throw_errno(why, "cannot write " + path_);
}

}  // namespace tutti::watch
