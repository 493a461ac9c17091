// Gloo peer, TCP transport on $PEER_ADDR (loopback). $PEER_VARIANT picks the
// all_reduce:
//   ring, bcube          gloo::allreduce (new style)
//   hd, ring_chunked     AllreduceHalvingDoubling, AllreduceRingChunked (old style)
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "harness.h"

struct Gloo {
  std::shared_ptr<gloo::Context> ctx;
  std::string variant;
  std::unique_ptr<gloo::Algorithm> algo;  // old-style algorithms are bound to a buffer

  bool supports(int op, size_t) { return op != peers::kReduceScatter || variant == "hd"; }
  void prepare(int op, float* buf, float*, size_t count) {
    algo.reset();
    std::vector<float*> p{buf};
    const int c = static_cast<int>(count);
    if (op == peers::kAllReduce && variant == "hd") algo.reset(new gloo::AllreduceHalvingDoubling<float>(ctx, p, c));
    if (op == peers::kAllReduce && variant == "ring_chunked")
      algo.reset(new gloo::AllreduceRingChunked<float>(ctx, p, c));
    if (op == peers::kReduceScatter)
      algo.reset(new gloo::ReduceScatterHalvingDoubling<float>(ctx, p, c, std::vector<int>(ctx->size, c / ctx->size)));
  }
  void run(int op, float* buf, float* out, size_t count) {
    if (algo) {
      algo->run();
      if (op == peers::kReduceScatter) std::memcpy(out, buf, count / ctx->size * sizeof(float));
      return;
    }
    switch (op) {
      case peers::kAllReduce: {
        gloo::AllreduceOptions o(ctx);
        o.setAlgorithm(variant == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                          : gloo::AllreduceOptions::Algorithm::RING);
        o.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, size_t)>(&gloo::sum<float>));
        o.setOutput(buf, count);
        gloo::allreduce(o);
        break;
      }
      case peers::kBroadcast: {
        gloo::BroadcastOptions o(ctx);
        o.setRoot(0);
        o.setOutput(buf, count);
        gloo::broadcast(o);
        break;
      }
      case peers::kBarrier: {
        gloo::BarrierOptions o(ctx);
        gloo::barrier(o);
        break;
      }
      case peers::kAllGather: {
        gloo::AllgatherOptions o(ctx);
        o.setInput(buf, count / ctx->size);
        o.setOutput(out, count);
        gloo::allgather(o);
        break;
      }
    }
  }
};

int main(int argc, char** argv) {
  const int rank = peers::env_int("PEER_RANK", 0), size = peers::env_int("PEER_SIZE", 1);
  const std::string dir = std::getenv("PEER_DIR");
  peers::Harness h(rank, size);
  const char* addr = std::getenv("PEER_ADDR");
  gloo::transport::tcp::attr attr(addr ? addr : "127.0.0.1");
  auto dev = gloo::transport::tcp::CreateDevice(attr);
  gloo::rendezvous::FileStore store(dir);
  gloo::rendezvous::PrefixStore prefix("peers", store);
  auto ctx = std::make_shared<gloo::rendezvous::Context>(rank, size);
  h.barrier();
  double t = peers::now_us();
  ctx->connectFullMesh(prefix, dev);
  t = h.max_over_ranks(peers::now_us() - t);
  if (argc > 1 && !std::strcmp(argv[1], "--startup")) {
    if (rank == 0) std::printf("{\"connect_ms\":%.3f}\n", t * 1e-3);
    h.barrier();
    return 0;
  }
  const char* v = std::getenv("PEER_VARIANT");
  Gloo a{ctx, v ? v : "ring", nullptr};
  peers::run_suite(a, h, peers::Options(argc, argv));
  h.barrier();
}
