#include <doctest/doctest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "process/worlds.hpp"
#include "support/loopback_http.hpp"
#include "support/temporary_directory.hpp"

// Metrics of real jobs: at a port, and of GPUs, which a library stands for.
namespace {

using namespace tutti_test;

command watched(int ranks, std::vector<std::string> words, std::vector<std::string> environment) {
  command c = launched(ranks, "watched", words);
  c.environment.insert(c.environment.end(), environment.begin(), environment.end());
  return c;
}
/// Two ports, one after the other.
int two_ports() {
  for (;;)
    if (const int first = free_port(); free_port() == first + 1) return first;
}
std::string eventually(int port, const std::string& text) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{60};
  std::string reply;
  while (!contains(reply = get_metrics(port), text) && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  return reply;
}

TEST_CASE("metrics: TUTTI_METRICS_PORT serves each rank's at a port of its own, while one hangs in its own code") {
  const temporary_directory home;
  const int port = two_ports();
  processes job;
  job.start(watched(2, {"who=1", "how=hang", "until=" + home.file("end")},
                    {"TUTTI_METRICS_PORT=" + std::to_string(port), "TUTTI_METRICS_JOB=a"}));
  const auto shown = [&](int rank, const std::string& name, const std::string& more) {
    return name + "{job_name=\"a\",rank=\"" + std::to_string(rank) + '"' + more;
  };
  // Rank 0 waits, and tells what it has called. Rank 1 may have called all of it since it last told.
  const std::string waiting =
      eventually(port, shown(0, "tutti_operation_duration_seconds_count", ",call=\"all_reduce\"} "));
  CAPTURE(waiting);
  CHECK(contains(waiting, shown(0, "tutti_operation_bytes_total", ",call=\"all_reduce\"} ")));
  CHECK_FALSE(contains(waiting, shown(0, "tutti_world_shared_memory_bytes", "} 0\n")));
  const std::string hanging = eventually(port + 1, shown(1, "tutti_world_open", "} 1\n"));
  CAPTURE(hanging);
  for (const int r : {0, 1}) {
    const std::string& reply = r == 0 ? waiting : hanging;
    CHECK(contains(reply, shown(r, "tutti_world_open", "} 1\n")));
    CHECK(contains(reply, shown(r, "tutti_connection_retries_total", "} 0\n")));
    CHECK(contains(reply, shown(r, "tutti_exposed_seconds_total", "} ")));
    CHECK(contains(reply, shown(r, "tutti_world_shared_memory_bytes", "} ")));
    CHECK_FALSE(contains(reply, "tutti_reducer_passes_total{"));
    CHECK_FALSE(contains(reply, "tutti_gpu_"));
  }

  processes other;
  other.start(watched(2, {"how=well"}, {"TUTTI_METRICS_PORT=" + std::to_string(port), "TUTTI_METRICS_JOB=b"}));
  const auto refused = other.wait(std::chrono::seconds{60}).at(0);
  CAPTURE(refused.out);
  CHECK(refused.status == 0);
  for (const int taken : {port, port + 1})
    CHECK(contains(refused.out, "this rank has no metrics over HTTP: cannot listen on 127.0.0.1:" +
                                    std::to_string(taken) + " (is another job"));

  std::ofstream{home.file("end")};
  const auto done = job.wait(std::chrono::seconds{60}).at(0);
  CAPTURE(done.out);
  CHECK(done.status == 0);
  CHECK(get_metrics(port).empty());
}

TEST_CASE("metrics: GPUs by NVML where it is installed: those of the machine once, and each rank's own memory") {
  const temporary_directory home;
  processes job;
  job.start(watched(
      2, {"how=well"},
      {"TUTTI_METRICS_DIR=" + home.path().string(), "TUTTI_METRICS_JOB=a", "LD_LIBRARY_PATH=" TUTTI_FAKE_NVML_DIR}));
  const auto done = job.wait(std::chrono::seconds{60}).at(0);
  CAPTURE(done.out);
  REQUIRE(done.status == 0);
  for (const int r : {0, 1}) {
    std::ifstream file{home.file("tutti_a_rank_" + std::to_string(r) + ".prom")};
    const std::string text{std::istreambuf_iterator<char>{file}, {}};
    CAPTURE(text);
    const std::string second = "{job_name=\"a\",rank=\"" + std::to_string(r) + "\",gpu=\"1\",uuid=\"GPU-b\"} ";
    CHECK(contains(text, "tutti_gpu_process_memory_bytes" + second + "209715200\n"));
    CHECK_FALSE(
        contains(text, "tutti_gpu_process_memory_bytes{job_name=\"a\",rank=\"" + std::to_string(r) + "\",gpu=\"0\""));
    CHECK(contains(text, "tutti_gpu_memory_used_bytes" + second + "314572800\n") == (r == 0));
    CHECK(contains(text, "tutti_gpu_memory_total_bytes" + second + "1048576000\n") == (r == 0));
    CHECK(contains(text, "tutti_gpu_utilization_ratio" + second + "0.75\n") == (r == 0));
    CHECK(contains(text, "tutti_gpu_utilization_ratio{job_name=\"a\",rank=\"0\",gpu=\"0\",uuid=\"GPU-a\"} 0\n") ==
          (r == 0));
  }
}

}  // namespace
