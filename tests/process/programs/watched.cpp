// Makes collectives in a loop, for the tests of what can be seen from outside: after `calls` of them, rank `who` does
// `how`: stop (SIGSTOP), hang (in its own code, until there is a file `until`), other (calls a broadcast), recv (waits
// for a message that nobody sends), die; or is slow all the time. After a failure, ranks stay until there is a file
// `linger`. `alone` is a rank that joins a world of its own before.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/openssl.hpp>

#include "process/programs/options.hpp"

int main(int argc, char** argv) {
  const tutti_test::words w{argc, argv};
  const std::string how = w.text("how");
  const int calls = w.number("calls", 20);
  try {
    const char* const rank = std::getenv("RANK");
    if (w.has("alone") && rank && w.text("alone") == rank) {
      tutti::init_options own;
      own.rank = 0;
      own.world_size = 1;
      tutti::init(own).barrier().wait();
    }
    auto world = tutti::init(tutti_test::options_from(w));
    const bool odd = world.rank() == w.number("who", -1);
    std::vector<float> data(static_cast<std::size_t>(w.number("count", 1000)), 1.0F);
    try {
      for (int i = 0; i < calls; ++i) {
        if (odd && how == "slow") std::this_thread::sleep_for(std::chrono::milliseconds{w.number("late", 5)});
        world.all_reduce(data, tutti::max).wait();
      }
      std::puts("called");
      std::fflush(stdout);
      if (odd && how == "stop") ::raise(SIGSTOP);
      if (odd && how == "die") ::raise(SIGKILL);
      while (odd && how == "hang" && !std::filesystem::exists(w.text("until")))
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
      if (odd && how == "other") {
        world.broadcast(data, 0).wait();
      } else if (odd && how == "recv") {
        world.recv(data, 0).wait();
      } else {
        world.barrier().wait();
      }
    } catch (const tutti::error&) {
      while (w.has("linger") && !std::filesystem::exists(w.text("linger")))
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
      throw;
    }
    if (w.has("dump")) world.dump_flight(w.text("dump"));
    std::puts("done");
    return 0;
  } catch (const std::exception& e) {
    std::printf("ended: %s\n", e.what());
    return 1;
  }
}
