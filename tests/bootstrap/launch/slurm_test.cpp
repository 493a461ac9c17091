#include <doctest/doctest.h>

#include <cstdint>
#include <optional>
#include <set>

#include <tutti/bootstrap/launch/slurm.hpp>

TEST_CASE("ports of Slurm jobs lie in their range and differ between neighbours") {
  std::set<int> ports;
  for (std::uint64_t job = 1000000; job < 1000200; ++job)
    for (std::uint64_t step = 0; step < 31; ++step) {
      const int port = tutti::detail::slurm_port(job, step);
      CHECK(port >= 20480);
      CHECK(port < 28672);
      ports.insert(port);
    }
  CHECK(ports.size() == 200 * 31);
}

TEST_CASE("tasks per node") {
  using tutti::detail::slurm_tasks_on_node;
  CHECK(slurm_tasks_on_node("2", 0) == 2);
  CHECK(slurm_tasks_on_node("4(x2),3", 1) == 4);
  CHECK(slurm_tasks_on_node("4(x2),3", 2) == 3);
  CHECK(slurm_tasks_on_node("4(x2),3", 3) == std::nullopt);
  CHECK(slurm_tasks_on_node("5,4(x3)", 3) == 4);
  for (const char* broken : {"", "x", "4(x", "4(x2", "4(x)", "(x2)", ",4", "-1"}) {
    CAPTURE(broken);
    CHECK(slurm_tasks_on_node(broken, 0) == std::nullopt);
  }
}
