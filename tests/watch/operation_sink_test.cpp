#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/core/log.hpp>
#include <tutti/os/host.hpp>
#include <tutti/os/process.hpp>
#include <tutti/watch/flight.hpp>
#include <tutti/watch/flight_recorder.hpp>
#include <tutti/watch/metrics.hpp>
#include <tutti/watch/metrics_file.hpp>
#include <tutti/watch/trace_file.hpp>

#include "support/temporary_directory.hpp"

namespace {

using namespace tutti::watch;
using nlohmann::json;
using tutti::dtype;
using tutti::errc;

std::uint64_t issue(flight_recorder& r, std::uint64_t sequence, const char* call = "all_reduce") {
  return r.issue(issued_operation{call_kind::of(call), 1000, 4, dtype::f32}.place(sequence, 0, tutti::algorithm::ring),
                 std::source_location::current());
}
std::string text_of_file(const std::string& path) {
  std::ifstream file{path};
  return {std::istreambuf_iterator<char>{file}, {}};
}

/// Counts what it is given.
struct counting final : operation_sink {
  std::vector<std::uint64_t>& taken;
  explicit counting(std::vector<std::uint64_t>& t) : taken(t) {}
  void take(const operation& o, std::int64_t issued, std::int64_t started, std::int64_t ended,
            const call_site&) override {
    CHECK(issued <= started);
    CHECK(started <= ended);
    taken.push_back(o.sequence);
  }
  void end_batch(std::int64_t) override {}
};

TEST_CASE("operation_sink: gets each operation once, also of more than the recorder holds, and none before its end") {
  std::vector<std::uint64_t> taken;
  constexpr std::uint64_t calls = 3 * recording::records_kept + 17;
  {
    flight_recorder r{0, 2};
    r.send_to(std::make_unique<counting>(taken));
    const auto long_one = issue(r, 0);
    for (std::uint64_t n = 1; n <= calls; ++n) r.ended_at_once(issue(r, n));
    CHECK(std::ranges::find(taken, 0U) == taken.end());
    CHECK(taken.size() >= calls - recording::records_kept);
    r.ended(long_one, {});
  }
  CHECK(taken.size() == calls + 1);
  CHECK(std::set<std::uint64_t>(taken.begin(), taken.end()).size() == calls + 1);
}

TEST_CASE("operation_sink: a tick passes operations on") {
  std::vector<std::uint64_t> taken;
  flight_recorder r{0, 2};
  r.send_to(std::make_unique<counting>(taken));
  r.ended_at_once(issue(r, 1));
  r.tick(tutti::clock::now());
  CHECK(taken.size() == 1);
}

TEST_CASE("operation_sink: one that fails is let go, and the recorder goes on") {
  struct failing final : operation_sink {
    void take(const operation&, std::int64_t, std::int64_t, std::int64_t, const call_site&) override {
      throw std::runtime_error{"the disk is full"};
    }
    void end_batch(std::int64_t) override {}
  };
  static int heard;
  heard = 0;
  const auto before = tutti::set_log_handler([](const tutti::log_record&) noexcept { ++heard; });
  {
    flight_recorder r{0, 2};
    r.send_to(std::make_unique<failing>());
    for (std::uint64_t n = 1; n < 10000; ++n) r.ended_at_once(issue(r, n));
  }
  tutti::set_log_handler(before);
  CHECK(heard == 1);
}

struct head_of : recording_head {
  head_of(int of, const char* on) {
    rank = of;
    size = 4;
    world = ~std::uint64_t{0};
    put_text(host, on);
  }
};

TEST_CASE(
    "trace_file: an array of events by the rules of the format, one a line, of which no two on a thread overlap") {
  const tutti_test::temporary_directory folder;
  const auto now = tutti::os::read_clocks().wall;
  const std::string path = trace_path(folder.path().string(), 3, 1);
  CHECK(path == folder.file("trace_3.json"));
  call_site site;
  site.line = 88;
  put_text(site.file, "/src/\"train\".cpp");
  operation o;
  o.call = call_kind::of("all_reduce");
  o.state = progress::completed;
  o.count = 1000;
  o.element_bytes = 4;
  o.type = dtype::f32;
  o.reduction = tutti::reduction_kind::max;
  {
    trace_file t{folder.path().string(), head_of(3, "host \"b\""), now};
    o.sequence = 41;
    t.take(o, now, now + 2000, now + 5000, site);
    o.sequence = 42;
    t.take(o, now + 3000, now + 3000, now + 9000, site);  // overlaps with the first
    o.call = call_kind::of("recv");
    o.state = progress::failed;
    o.result = errc::peer_lost;
    o.other = 1;
    t.take(o, now + 9500, now + 9500, now + 9500, call_site{});
    t.end_batch(now);
    // As a reader would find it if the rank were killed now: the array needs no end.
    const auto early = json::parse(text_of_file(path) + "]");
    CHECK(early.size() == 8);
  }
  const auto all = json::parse(text_of_file(path));
  REQUIRE(all.size() == 8);
  json events = json::array({all[0], all[1]});
  for (const json& e : all) {
    if (e["ph"] == "X") events.push_back(e);
    if (e["name"] == "thread_name") CHECK(e["args"]["name"] == "operations");
  }
  REQUIRE(events.size() == 6);
  CHECK(events[0]["ph"] == "M");
  CHECK(events[0]["args"]["name"] == "rank 3 (host \"b\")");
  CHECK(events[0]["args"]["world"] == "18446744073709551615");
  CHECK(events[0]["args"]["world_size"] == 4);
  const auto base = std::stoll(events[0]["args"]["base_ns"].get<std::string>());
  CHECK(base <= now);
  CHECK(now - base < trace_file::day);
  for (std::size_t i = 2; i < events.size(); ++i) {
    CHECK(events[i]["ph"] == "X");
    CHECK(events[i]["pid"] == 3);
    CHECK(events[i]["dur"] >= 0);
  }
  CHECK(events[2]["name"] == "all_reduce");
  CHECK(events[2]["ts"].get<double>() == doctest::Approx(static_cast<double>(now - base) / 1e3));
  CHECK(events[2]["dur"] == 5.0);
  CHECK(events[2]["args"]["sequence"] == 41);
  CHECK(events[2]["args"]["bytes"] == 4000);
  CHECK(events[2]["args"]["reduction"] == "max");
  CHECK(events[2]["args"]["at"] == "/src/\"train\".cpp:88");
  CHECK(events[3]["name"] == "wait");
  CHECK(events[3]["dur"] == 2.0);
  CHECK(events[3]["tid"] == events[2]["tid"]);
  CHECK(events[4]["tid"] != events[2]["tid"]);
  CHECK(events[5]["args"]["error"] == "peer lost");
  CHECK(events[5]["args"]["peer"] == 1);
  CHECK_THROWS_AS(trace_file("/nowhere/at/all", head_of(0, ""), now), tutti::error);
}

TEST_CASE("trace_file: waits and computation on their thread, passes and buckets in rows of their own") {
  using tutti::detail::time_span;
  const tutti_test::temporary_directory folder;
  constexpr std::int64_t us = 1000;
  const std::int64_t now = tutti::os::read_clocks().wall;
  {
    trace_file t{folder.path().string(), head_of(0, "host"), now};
    time_span wait;
    wait.call = "all_reduce";
    wait.number = 7;
    wait.thread = 4711;
    t.take_span(wait, now, 0, now + 10 * us);
    wait.call = "co_await";
    wait.number = 0;
    t.take_span(wait, now + 11 * us, 0, now + 11 * us + 500);  // too short, and part of the computation
    t.take_span(wait, now + 30 * us, 0, now + 40 * us);
    time_span bucket;
    bucket.what = time_span::kind::bucket;
    bucket.pass = 3;
    bucket.bytes = 4096;
    t.take_span(bucket, now, now + 5 * us, now + 20 * us);
    bucket.number = 1;
    t.take_span(bucket, now + 6 * us, now + 6 * us, now + 30 * us);  // overlaps with the first
    time_span pass;
    pass.what = time_span::kind::pass;
    pass.number = 3;
    t.take_span(pass, now - us, now + 25 * us, now + 31 * us);
    operation o;
    o.call = call_kind::of("all_reduce");
    o.state = progress::completed;
    o.tag = 2;  // bucket 1
    t.take(o, now, now, now + us, call_site{});
  }
  std::map<std::string, json> found;
  std::map<int, std::string> threads;
  for (const json& e : json::parse(text_of_file(folder.file("trace_0.json")))) {
    if (e["name"] == "thread_name") threads[e["tid"]] = e["args"]["name"];
    if (e["ph"] == "X") found.emplace(e["name"].get<std::string>() + "/" + std::to_string(e["tid"].get<int>()), e);
  }
  CHECK(threads.at(4711) == "thread");
  CHECK(found.at("wait for all_reduce #7/4711")["dur"] == 10.0);
  CHECK(found.at("computation/4711")["dur"] == 20.0);
  CHECK(found.at("wait for co_await/4711")["dur"] == 10.0);
  std::map<std::string, int> row;
  for (const auto& [tid, name] : threads) row.emplace(name, tid);
  const auto in = [&](const char* name, const char* of, int more = 0) {
    return found.at(std::string(name) + "/" + std::to_string(row.at(of) + more));
  };
  CHECK(in("bucket 0", "gradient buckets")["dur"] == 20.0);
  CHECK(in("bucket 0", "gradient buckets")["args"] == json{{"pass", 3}, {"bytes", 4096}});
  CHECK(in("ready", "gradient buckets")["dur"] == 5.0);
  CHECK(in("in flight", "gradient buckets")["dur"] == 15.0);
  CHECK(in("bucket 1", "gradient buckets", 1)["dur"] == 24.0);
  CHECK(in("pass 3", "passes")["dur"] == 32.0);
  CHECK(in("finish", "passes")["dur"] == 6.0);
  CHECK(in("all_reduce", "operations")["args"]["bucket"] == 1);
  CHECK(found.size() == 3 + 6 + 2 + 1);
}

TEST_CASE("trace_file: after a write that failed, nothing more is written") {
  const tutti_test::temporary_directory folder;
  const auto now = tutti::os::read_clocks().wall;
  const std::string path = folder.file("trace_0.json");
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  std::string cut_off;
  {
    trace_file t{folder.path().string(), head_of(0, "host"), now};
    const rlimit small{std::filesystem::file_size(path) + 100, before.rlim_max};  // as of a disk that is nearly full
    operation o;
    o.call = call_kind::of("all_reduce");
    o.state = progress::completed;
    t.take(o, now, now, now + 1000, call_site{});
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    CHECK_THROWS_AS(t.end_batch(now), tutti::error);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    cut_off = text_of_file(path);
  }
  std::signal(SIGXFSZ, handler);
  CHECK(text_of_file(path) == cut_off);
}

/// The samples of a text in Prometheus' format, by name and labels; checks its rules.
std::map<std::string, double> samples_of(const std::string& text) {
  const std::regex sample{R"re(([a-z_]+)(\{([a-z_]+="([^"\\\n]|\\.)*",?)*\}) ([-+.e0-9]+))re"};
  std::map<std::string, std::string> types;
  std::map<std::string, double> found;
  std::set<std::string> helped;
  std::istringstream lines{text};
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    std::istringstream words{line};
    std::string hash, what, name, rest;
    if (line.starts_with("# ")) {
      words >> hash >> what >> name;
      std::getline(words, rest);
      if (what == "HELP") CHECK(helped.insert(name).second);
      if (what == "TYPE") types[name] = rest.substr(1);
      continue;
    }
    std::smatch m;
    REQUIRE(std::regex_match(line, m, sample));
    std::string base = m[1];
    for (const std::string part : {"_bucket", "_sum", "_count"})
      if (base.ends_with(part) && types.contains(base.substr(0, base.size() - part.size())))
        base.resize(base.size() - part.size());
    REQUIRE(types.contains(base));
    CHECK(helped.contains(base));
    CHECK(base.starts_with("tutti_"));
    CHECK(base.ends_with("_total") == (types[base] == "counter"));
    CHECK(found.emplace(std::string(m[1]) + std::string(m[2]), std::stod(m[5])).second);
  }
  return found;
}

TEST_CASE("metrics_file: counters by call, and a histogram, in Prometheus' format") {
  const tutti_test::temporary_directory folder;
  const std::string path = metrics_path(folder.path().string(), "a \"job\"\n", 2, 1);
  constexpr std::int64_t ms = 1'000'000;
  const std::int64_t now = 1'700'000'000'000 * ms;
  operation o;
  o.call = call_kind::of("all_reduce");
  o.state = progress::completed;
  o.count = 1000;
  o.element_bytes = 4;
  {
    metrics_file m{folder.path().string(), {"a \"job\"\n", 2, 0, 4, 1, now}};
    CHECK(samples_of(text_of_file(path)).at(R"(tutti_world_ranks{job_name="a \"job\"\n",rank="2"})") == 4);
    CHECK(samples_of(text_of_file(path)).at(R"(tutti_world_generation{job_name="a \"job\"\n",rank="2"})") == 1);
    CHECK(samples_of(text_of_file(path)).at(R"(tutti_world_open{job_name="a \"job\"\n",rank="2"})") == 1);
    CHECK(samples_of(text_of_file(path))
              .at(R"(tutti_last_operation_timestamp_seconds{job_name="a \"job\"\n",rank="2"})") == 1.7e9);
    m.take(o, now, now + 2 * ms, now + 5 * ms, {});
    m.take(o, now, now, now, {});
    o.state = progress::failed;
    m.take(o, now, now, now + 2'000'000 * ms, {});
    m.end_batch(now + 1000 * ms);  // too soon to write
    CHECK(text_of_file(path).find("call=") == std::string::npos);
    m.end_batch(now + 6000 * ms);
    CHECK(text_of_file(path).find("call=") != std::string::npos);
    CHECK(samples_of(text_of_file(path)).at(R"(tutti_last_seen_timestamp_seconds{job_name="a \"job\"\n",rank="2"})") ==
          1.7e9 + 6);
    m.end_batch(now + 7000 * ms);   // too soon again
    m.end_batch(now + 12000 * ms);  // nothing new, but the rank is there
    CHECK(samples_of(text_of_file(path)).at(R"(tutti_last_seen_timestamp_seconds{job_name="a \"job\"\n",rank="2"})") ==
          1.7e9 + 12);
    CHECK(samples_of(text_of_file(path)).at(R"(tutti_world_open{job_name="a \"job\"\n",rank="2"})") == 1);
  }
  const auto samples = samples_of(text_of_file(path));
  CHECK(samples.at(R"(tutti_world_open{job_name="a \"job\"\n",rank="2"})") == 0);
  const std::string labels = R"({job_name="a \"job\"\n",rank="2",call="all_reduce"})";
  CHECK(samples.at("tutti_operation_bytes_total" + labels) == 12000);
  CHECK(samples.at("tutti_operation_failures_total" + labels) == 1);
  CHECK(samples.at("tutti_operation_wait_seconds_total" + labels) == doctest::Approx(0.002));
  CHECK(samples.at("tutti_operation_duration_seconds_count" + labels) == 3);
  CHECK(samples.at("tutti_operation_duration_seconds_sum" + labels) == doctest::Approx(2000.005));
  const auto within = [&](const char* limit) {
    return samples.at(
        R"(tutti_operation_duration_seconds_bucket{job_name="a \"job\"\n",rank="2",call="all_reduce",le=")" +
        std::string(limit) + "\"}");
  };
  CHECK(within("1e-05") == 1);
  CHECK(within("0.01") == 2);
  CHECK(within("100") == 2);
  CHECK(within("+Inf") == 3);
  CHECK(samples.at(R"(tutti_process_resident_memory_bytes{job_name="a \"job\"\n",rank="2"})") > 0);
}

TEST_CASE("metrics_file: one that cannot be written for a while is warned of once, and written again later") {
  const tutti_test::temporary_directory home;
  const std::string folder = home.file("metrics"), path = metrics_path(folder, "job", 0, 1);
  std::filesystem::create_directory(folder);
  constexpr std::int64_t s = 1'000'000'000, now = 1'700'000'000 * s;
  static int heard;
  heard = 0;
  const auto before = tutti::set_log_handler([](const tutti::log_record&) noexcept { ++heard; });
  {
    metrics_file m{folder, {"job", 0, 0, 1, 1, now}};
    const auto seen = [&] {
      return samples_of(text_of_file(path)).at(R"(tutti_last_seen_timestamp_seconds{job_name="job",rank="0"})");
    };
    const auto open = [&] { return samples_of(text_of_file(path)).at(R"(tutti_world_open{job_name="job",rank="0"})"); };
    std::filesystem::rename(folder, home.file("away"));
    CHECK_NOTHROW(m.end_batch(now + 6 * s));
    CHECK_NOTHROW(m.end_batch(now + 12 * s));
    CHECK(heard == 1);
    std::filesystem::rename(home.file("away"), folder);
    CHECK(seen() == 1.7e9);
    m.end_batch(now + 18 * s);
    CHECK(seen() == 1.7e9 + 18);
    CHECK(open() == 1);
    std::filesystem::rename(folder, home.file("away"));
    m.end_batch(now + 24 * s);
    CHECK(heard == 2);
  }
  tutti::set_log_handler(before);
}

TEST_CASE(
    "metrics: how long collectives have waited for later ranks, and those of a reducer's buckets, as histograms") {
  constexpr std::int64_t ms = 1'000'000;
  metrics m{{"a"}};
  const std::string name = "tutti_arrival_wait_seconds";
  CHECK_FALSE(text_of(std::span{&m, 1}, {}).find(name + "_count") != std::string::npos);
  operation o;
  o.call = call_kind::of("all_reduce");
  o.state = progress::completed;
  m.take(o, 0, 0, ms);  // the last to come, or all at once
  m.take(o, 0, 5 * ms, 6 * ms);
  o.tag = 1;  // of bucket 0
  m.take(o, 0, 40 * ms, 41 * ms);
  o.state = progress::failed;
  m.take(o, 0, 0, 9000 * ms);
  o.call = call_kind::of("recv");
  o.state = progress::completed;
  m.take(o, 0, 7 * ms, 8 * ms);
  const auto samples = samples_of(text_of(std::span{&m, 1}, {}));
  const auto at = [&](const char* what, const char* part, const std::string& more = "") {
    return samples.at(name + part + R"({job_name="a",rank="0",of=")" + what + '"' + more + '}');
  };
  CHECK(samples.size() == 2 * 14 + 10 + 2 * 11);  // as docs/monitoring/README.md counts them
  CHECK(at("collectives", "_count") == 3);
  CHECK(at("collectives", "_sum") == doctest::Approx(0.045));
  CHECK(at("collectives", "_bucket", R"(,le="1e-05")") == 1);
  CHECK(at("collectives", "_bucket", R"(,le="0.01")") == 2);
  CHECK(at("collectives", "_bucket", R"(,le="+Inf")") == 3);
  CHECK(at("buckets", "_count") == 1);
  CHECK(at("buckets", "_sum") == doctest::Approx(0.04));
  CHECK(at("buckets", "_bucket", R"(,le="0.01")") == 0);
}

TEST_CASE("metrics: time in waits, and what of a reducer's buckets its finish() did not hide") {
  using kind = tutti::detail::time_span::kind;
  constexpr std::int64_t ms = 1'000'000;
  metrics m{{"a"}};
  const auto span = [&](kind what, std::int64_t begun, std::int64_t middle, std::int64_t ended) {
    tutti::detail::time_span s;
    s.what = what;
    m.take_span(s, begun * ms, middle * ms, ended * ms);
  };
  span(kind::wait, 10, 0, 30);
  auto samples = samples_of(text_of(std::span{&m, 1}, {}));
  CHECK(samples.at(R"(tutti_exposed_seconds_total{job_name="a",rank="0"})") == doctest::Approx(0.02));
  CHECK_FALSE(samples.contains(R"(tutti_reducer_passes_total{job_name="a",rank="0"})"));
  span(kind::bucket, 100, 110, 150);
  span(kind::bucket, 120, 130, 170);
  span(kind::pass, 90, 160, 175);
  samples = samples_of(text_of(std::span{&m, 1}, {}));
  CHECK(samples.at(R"(tutti_reducer_passes_total{job_name="a",rank="0"})") == 1);
  CHECK(samples.at(R"(tutti_reducer_pass_seconds_total{job_name="a",rank="0"})") == doctest::Approx(0.085));
  CHECK(samples.at(R"(tutti_reducer_finish_seconds_total{job_name="a",rank="0"})") == doctest::Approx(0.015));
  CHECK(samples.at(R"(tutti_reducer_bucket_seconds_total{job_name="a",rank="0"})") == doctest::Approx(0.08));
}

TEST_CASE("metrics_file: jobs that share a folder have files and series of their own") {
  const tutti_test::temporary_directory folder;
  const std::string home = folder.path().string();
  CHECK(metrics_path(home, "a", 0, 1) == folder.file("tutti_a_rank_0.prom"));
  CHECK(metrics_path(home, "a", 1, 2) == folder.file("tutti_a_rank_1_world2.prom"));
  const std::string odd = metrics_path(home, "../b\n", 0, 1);
  CHECK(odd.starts_with(folder.file("tutti_.._b_-")));
  CHECK(odd != metrics_path(home, "../b ", 0, 1));
  const metrics_file a{home, {"a", 0, 0, 2}}, b{home, {"../b\n", 0, 0, 2}};
  auto samples = samples_of(text_of_file(metrics_path(home, "a", 0, 1)));
  const auto others = samples_of(text_of_file(odd));
  CHECK(samples.size() == others.size());
  const auto alone = samples.size() + others.size();
  samples.insert(others.begin(), others.end());
  CHECK(samples.size() == alone);
}

TEST_CASE("metrics_file: files of processes that have ended are removed by the next job; others stay") {
  const tutti_test::temporary_directory folder;
  const std::string home = folder.path().string();
  std::string machine_id = text_of_file("/etc/machine-id");
  machine_id.resize((std::min)(machine_id.find('\n'), machine_id.size()));
  const std::string machine = machine_id.empty() ? "" : tutti::os::hostname() + "/" + machine_id;
  const std::string kernel = kernel_and_pids(), first = "# Written on " + kernel + " of " + machine + " by process ";
  const auto left_by = [&](const char* job, const std::string& writer) {
    {
      const metrics_file m{home, {job}};
    }
    std::string text = text_of_file(metrics_path(home, job, 0, 1));
    REQUIRE(text.starts_with(first));
    text.replace(0, text.find('\n'), writer.starts_with('#') ? writer : first + writer);
    std::ofstream{metrics_path(home, job, 0, 1)} << text;
  };
  const std::string own = std::to_string(::getpid());
  left_by("alive", own + ' ' + std::to_string(tutti::os::process_start_time(::getpid()).value()));
  left_by("earlier", own + " 1");  // an earlier process had this pid
  left_by("elsewhere", "# Written on another/7 of other/1234 by process " + own + " 1");
  left_by("nameless", "# Written on another/7 of  by process " + own + " 1");
  left_by("boot", "# Written on another/7 of " + machine + " by process " + own + " 1");
  left_by("container", "# Written on " + kernel + "7 of " + machine + " by process " + own + " 1");
  left_by("unknown", "# A comment");
  std::ofstream{folder.file("node_exporter.prom")} << "# Written on " << kernel_and_pids() << " by process " << own
                                                   << " 1\n";
  const metrics_file next{home, {"next"}};
  const auto exists = [&](const char* job) { return std::filesystem::exists(metrics_path(home, job, 0, 1)); };
  CHECK(exists("alive"));
  CHECK_FALSE(exists("earlier"));
  CHECK(exists("elsewhere"));
  CHECK(exists("nameless"));
  CHECK(exists("boot") == machine.empty());  // this machine has ended all processes since
  CHECK(exists("container"));
  CHECK(exists("unknown"));
  CHECK(exists("next"));
  CHECK(std::filesystem::exists(folder.file("node_exporter.prom")));
}

}  // namespace
