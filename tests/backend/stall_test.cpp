#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <tutti/backend/driver.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/core/log.hpp>
#include <tutti/transport/threads.hpp>

namespace {

std::mutex heard_mutex;
std::vector<std::string> heard;
std::atomic<int> warnings{0};

void hear(const tutti::log_record& r) noexcept {
  const std::scoped_lock guard(heard_mutex);
  heard.emplace_back(r.message);
  ++warnings;
}

TEST_CASE(
    "driver: warns of a collective that waits for long, at doubling times, once it has ended, and not of messages") {
  const auto before = tutti::set_log_handler(&hear);
  heard.clear();
  warnings = 0;
  tutti::run_threads(2, [](tutti::communicator<tutti::threads>& world) {
    {
      const auto guard = world.engine().lock();
      world.backend().shared_driver()->warn_after(std::chrono::milliseconds{20});
    }
    std::vector<float> data(100, 1.0F);
    world.barrier().wait();
    if (world.rank() == 0) {
      auto message = world.recv(data, 1);  // waits for as long, and is not warned of
      world.all_reduce(data, tutti::max).wait();
      message.wait();
    } else {
      while (warnings < 2) std::this_thread::sleep_for(std::chrono::milliseconds{1});
      world.all_reduce(data, tutti::max).wait();
      world.send(data, 0).wait();
    }
  });
  tutti::set_log_handler(before);
  REQUIRE(heard.size() >= 3);
  const std::string call = "rank 0: all_reduce #2 (stall_test.cpp:";
  for (const std::string& text : heard) CHECK_MESSAGE(text.starts_with(call), text);
  CHECK(heard[0].find("100 x float32, max) has waited for ") != std::string::npos);
  CHECK(heard[0].find("rank 1 (a thread of this process), last seen at #1, has not called it") != std::string::npos);
  CHECK(heard.back().find(" has ended after ") != std::string::npos);
}

}  // namespace
