#pragma once
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/os/memory.hpp>
#include <tutti/os/read_file.hpp>
#include <tutti/watch/metrics.hpp>

namespace tutti::watch {

TUTTI_DECL void metrics::take(const operation& o, std::int64_t issued, std::int64_t started, std::int64_t ended) {
  counts& c = calls_[(std::min)(std::size_t{o.call.number}, calls_.size() - 1)];
  const auto since_issue = [&](std::int64_t t) {
    return static_cast<double>((std::max)(t - issued, std::int64_t{0})) / 1e9;
  };
  const double seconds = since_issue(ended), waited = since_issue(started);
  ++c.ended;
  if (o.state == progress::failed) ++c.failed;
  c.bytes += o.count * o.element_bytes;
  c.seconds += seconds;
  c.waited += waited;
  ++c.within[bin_of(seconds)];
  last_end_ = (std::max)(last_end_, ended);
  if (o.call.is_message() || o.state != progress::completed) return;
  for (arrivals* a : {&collectives_, o.bucket() >= 0 ? &bucket_collectives_ : nullptr}) {
    if (a == nullptr) continue;
    ++a->count;
    a->seconds += waited;
    ++a->within[bin_of(waited)];
  }
}

TUTTI_DECL void metrics::take_span(const ::tutti::detail::time_span& s, std::int64_t begun, std::int64_t middle,
                                   std::int64_t ended) {
  ended = (std::max)(begun, ended);
  middle = std::clamp(middle, begun, ended);
  const auto seconds = [](std::int64_t from, std::int64_t until) { return static_cast<double>(until - from) / 1e9; };
  switch (s.what) {
    case ::tutti::detail::time_span::kind::wait:
      exposed_ += seconds(begun, ended);
      break;
    case ::tutti::detail::time_span::kind::bucket:
      buckets_ += seconds(middle, ended);
      break;
    case ::tutti::detail::time_span::kind::pass:
      ++passes_;
      pass_ += seconds(begun, ended);
      finish_ += seconds(middle, ended);
      break;
  }
}

TUTTI_DECL void metrics::see(std::int64_t now) {
  last_seen_ = (std::max)(now, last_seen_);
  if (where_.read) transport_ = where_.read(where_.transport);
}

/// Writer of Prometheus' text format, in which all series of a name stand together.
class metrics_text {
 public:
  metrics_text(std::span<const metrics> worlds, std::span<const gpu_reading> devices)
      : worlds_(worlds), devices_(devices) {
    for (const metrics& m : worlds) {
      std::string labels = "job_name=" + quoted(m.where_.job) + ",rank=\"" + std::to_string(m.where_.rank) + '"';
      if (m.where_.number > 1) labels += ",world=\"" + std::to_string(m.where_.number) + '"';
      labels_.push_back(std::move(labels));
    }
  }

  std::string write() {
    of_worlds();
    of_operations();
    of_reducers();
    if (!devices_.empty()) of_devices();
    return std::move(text_);
  }

 private:
  using world_value = std::string (*)(const metrics&);

  void of_worlds() {
    each("tutti_world_ranks", "gauge", "Ranks of the world.",
         [](const metrics& m) { return std::to_string(m.where_.size); });
    each("tutti_world_generation", "gauge", "Number of the world among those that this process has joined.",
         [](const metrics& m) { return std::to_string(m.where_.number); });
    each("tutti_world_start_time_seconds", "gauge", "Time at which the rank joined its world.",
         [](const metrics& m) { return seconds(m.where_.joined); });
    each("tutti_world_open", "gauge", "1 until the rank leaves its world, then 0.",
         [](const metrics& m) { return std::string(m.left_ ? "0" : "1"); });
    each("tutti_last_operation_timestamp_seconds", "gauge",
         "Time at which an operation last ended, or the rank joined.",
         [](const metrics& m) { return seconds(m.last_end_); });
    each("tutti_last_seen_timestamp_seconds", "gauge", "Time at which the rank was last in a call or wait of tutti.",
         [](const metrics& m) { return seconds(m.last_seen_); });
    each("tutti_world_shared_memory_bytes", "gauge", "Memory of the rank that others of its machine can map.",
         [](const metrics& m) { return std::to_string(m.transport_.shared_bytes); });
    each("tutti_connection_retries_total", "counter", "Attempts to connect to other ranks that were made again.",
         [](const metrics& m) { return std::to_string(m.transport_.connection_retries); });
    each("tutti_exposed_seconds_total", "counter", "Time in which threads were blocked in waits for operations.",
         [](const metrics& m) { return number(m.exposed_); });
    const std::string resident = "tutti_process_resident_memory_bytes", bytes = std::to_string(resident_bytes());
    begin(resident, "gauge", "Memory of this process.");
    for (const std::string& labels : labels_) line(resident, labels, bytes);
  }

  void of_operations() {
    of_calls("tutti_operation_failures_total", "counter", "Operations that have failed.",
             [](const metrics::counts& c) { return std::to_string(c.failed); });
    of_calls("tutti_operation_bytes_total", "counter", "Bytes of the buffers of operations that have ended.",
             [](const metrics::counts& c) { return std::to_string(c.bytes); });
    of_calls("tutti_operation_wait_seconds_total", "counter", "Time until operations heard of other ranks.",
             [](const metrics::counts& c) { return number(c.waited); });
    const std::string name = "tutti_operation_duration_seconds";
    begin(name, "histogram", "Time from the issue of operations to their end.");
    for_calls([&](const metrics::counts& c, const std::string& labels) {
      histogram(name, labels, c.within, c.seconds, c.ended);
    });
    const std::string arrival = "tutti_arrival_wait_seconds";
    begin(arrival, "histogram", "Time for which collectives have waited for ranks that came later.");
    for (std::size_t i = 0; i < worlds_.size(); ++i) {
      const auto of = [&](const char* what, const metrics::arrivals& a) {
        if (a.count != 0) histogram(arrival, labels_[i] + ",of=\"" + what + '"', a.within, a.seconds, a.count);
      };
      of("collectives", worlds_[i].collectives_);
      of("buckets", worlds_[i].bucket_collectives_);
    }
  }

  /// Time of buckets outside of finish() is hidden behind the backward pass.
  void of_reducers() {
    const auto of = [&](const char* name, const char* help, world_value value) {
      begin(name, "counter", help);
      for (std::size_t i = 0; i < worlds_.size(); ++i)
        if (worlds_[i].passes_ != 0) line(name, labels_[i], value(worlds_[i]));
    };
    of("tutti_reducer_passes_total", "Passes of reducers.", [](const metrics& m) { return std::to_string(m.passes_); });
    of("tutti_reducer_pass_seconds_total", "Time of passes.", [](const metrics& m) { return number(m.pass_); });
    of("tutti_reducer_finish_seconds_total", "Time in finish(), behind which nothing was computed.",
       [](const metrics& m) { return number(m.finish_); });
    of("tutti_reducer_bucket_seconds_total", "Time from the launch of buckets to their means.",
       [](const metrics& m) { return number(m.buckets_); });
  }

  void of_devices() {
    using condition = bool (*)(const metrics&, const gpu_reading&);
    using device_value = std::string (*)(const gpu_reading&);
    const auto of = [&](const char* name, const char* help, condition is_told, device_value value) {
      begin(name, "gauge", help);
      for (std::size_t i = 0; i < worlds_.size(); ++i)
        for (const gpu_reading& g : devices_)
          if (is_told(worlds_[i], g))
            line(name, labels_[i] + ",gpu=\"" + std::to_string(g.index) + "\",uuid=" + quoted(g.uuid), value(g));
    };
    const auto by_first = [](const metrics& m, const gpu_reading&) { return m.where_.local_rank == 0; };
    of("tutti_gpu_memory_used_bytes", "Memory of the GPU that is in use, by any process.", by_first,
       [](const gpu_reading& g) { return std::to_string(g.used_bytes); });
    of("tutti_gpu_memory_total_bytes", "Memory of the GPU.", by_first,
       [](const gpu_reading& g) { return std::to_string(g.total_bytes); });
    of("tutti_gpu_utilization_ratio", "Share of the last moments in which a kernel ran on the GPU.", by_first,
       [](const gpu_reading& g) { return number(g.utilization); });
    of(
        "tutti_gpu_process_memory_bytes", "Memory of the GPU that this process uses.",
        [](const metrics&, const gpu_reading& g) { return g.own_bytes.has_value(); },
        [](const gpu_reading& g) { return std::to_string(*g.own_bytes); });
  }

  void begin(const std::string& name, const char* type, const char* help) {
    text_ += "# HELP " + name + ' ' + help + "\n# TYPE " + name + ' ' + type + '\n';
  }
  void line(const std::string& name, const std::string& labels, const std::string& value) {
    text_ += name + '{' + labels + "} " + value + '\n';
  }
  void histogram(const std::string& name, const std::string& labels, std::span<const std::uint64_t> within, double sum,
                 std::uint64_t count) {
    std::uint64_t so_far = 0;
    for (std::size_t i = 0; i < within.size(); ++i) {
      so_far += within[i];
      const std::string limit = i < metrics::limits.size() ? number(metrics::limits[i]) : "+Inf";
      line(name + "_bucket", labels + ",le=\"" + limit + '"', std::to_string(so_far));
    }
    line(name + "_sum", labels, number(sum));
    line(name + "_count", labels, std::to_string(count));
  }
  void each(const char* name, const char* type, const char* help, world_value value) {
    begin(name, type, help);
    for (std::size_t i = 0; i < worlds_.size(); ++i) line(name, labels_[i], value(worlds_[i]));
  }
  template <class Call>
  void for_calls(Call call) {
    for (std::size_t w = 0; w < worlds_.size(); ++w)
      for (std::size_t i = 0; i < worlds_[w].calls_.size(); ++i)
        if (worlds_[w].calls_[i].ended != 0)
          call(worlds_[w].calls_[i], labels_[w] + ",call=\"" + call_kind{static_cast<std::uint8_t>(i)}.name() + '"');
  }
  void of_calls(const char* name, const char* type, const char* help, std::string (*value)(const metrics::counts&)) {
    begin(name, type, help);
    for_calls([&](const metrics::counts& c, const std::string& labels) { line(name, labels, value(c)); });
  }

  static std::string number(double x) {
    char text[40];
    return {std::begin(text), std::to_chars(std::begin(text), std::end(text), x).ptr};
  }
  static std::string seconds(std::int64_t nanoseconds) { return number(static_cast<double>(nanoseconds) / 1e9); }
  /// Returns a text as a label's value, in quotes.
  static std::string quoted(std::string_view t) {
    std::string text = "\"";
    for (const char c : t) {
      if (c == '\n') {
        text += "\\n";
        continue;
      }
      if (c == '"' || c == '\\') text += '\\';
      text += c;
    }
    return text + '"';
  }
  static std::uint64_t resident_bytes() {
    const std::string statm = os::read_file("/proc/self/statm", 128).value_or("");
    const std::size_t second = statm.find(' ');
    std::uint64_t pages = 0;
    if (second != std::string::npos) std::from_chars(statm.data() + second + 1, statm.data() + statm.size(), pages);
    return pages * os::page_bytes();
  }

  std::span<const metrics> worlds_;
  std::span<const gpu_reading> devices_;
  std::vector<std::string> labels_;  // of each world
  std::string text_;
};

TUTTI_DECL std::string text_of(std::span<const metrics> worlds, std::span<const gpu_reading> devices) {
  return metrics_text{worlds, devices}.write();
}

}  // namespace tutti::watch
