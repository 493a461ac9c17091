// tutti as one more peer. $PEER_VARIANT:
//   plain      user buffers in ordinary memory (default)
//   symmetric  user buffers from communicator::allocate
//   registered user buffers in ordinary memory that communicator::register_buffer has registered
//   tcp        ordinary memory, every message over TCP on loopback
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <tutti/tutti.hpp>

#include "harness.h"

namespace {

struct Tutti {
  tutti::communicator<>& world;
  std::string variant;
  std::map<float*, tutti::mapped_array<float>> arrays{};
  std::map<float*, tutti::registration> registrations{};

  bool supports(int, size_t) { return true; }
  void prepare(int, float*, float*, size_t) {}

  float* allocate(size_t bytes) {
    if (variant != "symmetric") {
      float* const p = peers::make_buffer(bytes);
      if (variant == "registered") registrations[p] = world.register_buffer(std::span{p, bytes / sizeof(float)});
      return p;
    }
    auto array = world.allocate<float>(std::max<size_t>(bytes / sizeof(float), 1));
    float* p = array.data();
    arrays.emplace(p, std::move(array));
    return p;
  }
  void release(float* p) {
    registrations.erase(p);
    if (arrays.erase(p) == 0) std::free(p);
  }

  void run(int op, float* buf, float* out, size_t count) {
    const auto n = static_cast<size_t>(world.size());
    switch (op) {
      case peers::kAllReduce:
        world.all_reduce(std::span{buf, count}).wait();
        break;
      case peers::kBroadcast:
        world.broadcast(std::span{buf, count}, 0).wait();
        break;
      case peers::kBarrier:
        world.barrier().wait();
        break;
      case peers::kReduceScatter:
        world.reduce_scatter(std::span{buf, count}, std::span{out, count / n}).wait();
        break;
      case peers::kAllGather:
        world.all_gather(std::span{buf, count / n}, std::span{out, count}).wait();
        break;
      case peers::kGather:
        world.gather(std::span{buf, count / n}, std::span{out, count}, 0).wait();
        break;
      case peers::kScatter:
        world.scatter(std::span{buf, count}, std::span{out, count / n}, 0).wait();
        break;
      case peers::kAllToAll:
        world.all_to_all(std::span{buf, count}, std::span{out, count}).wait();
        break;
      case peers::kReduce:
        world.reduce(std::span{buf, count}, std::span{out, count}, 0).wait();
        break;
      case peers::kScan:
        world.scan(std::span{buf, count}, std::span{out, count}).wait();
        break;
    }
  }
};

}  // namespace

int main(int argc, char** argv) try {
  const int rank = peers::env_int("PEER_RANK", 0), size = peers::env_int("PEER_SIZE", 1);
  const char* v = std::getenv("PEER_VARIANT");
  const std::string variant = v ? v : "plain";
  peers::Harness h(rank, size);

  tutti::init_options options;
  options.rendezvous = "file://" + std::string(std::getenv("PEER_DIR")) + "/tutti?rank=" + std::to_string(rank) +
                       "&world_size=" + std::to_string(size);
  if (variant == "tcp") options.transport = tutti::transport_choice::tcp;
  if (const char* address = std::getenv("PEER_ADDR")) {
    options.interface = address;
    options.network = tutti::exposure::insecure;  // emulated hosts on one machine
  }
  h.barrier();
  double t = peers::now_us();
  auto world = tutti::init(options);
  t = h.max_over_ranks(peers::now_us() - t);
  if (argc > 1 && !std::strcmp(argv[1], "--startup")) {
    if (rank == 0) std::printf("{\"init_ms\":%.3f}\n", t * 1e-3);
    h.barrier();
    return 0;
  }
  Tutti a{world, variant};
  peers::run_suite(a, h, peers::Options(argc, argv));
  h.barrier();
} catch (const std::exception& e) {
  std::fprintf(stderr, "peer_tutti: %s\n", e.what());
  return 1;
}
