// Measures the time that tutti::grad::reducer adds to a backward pass, beside torch DDP (peer_ddp.py), with the same
// shapes, work and timing. Every gradient is added to once, as by torch's AccumulateGrad, from the last parameter to
// the first; $PEER_COMPUTE is the other work of the backward pass (see compute.h). "Exposed" is the time by which a
// step is longer than "backward, alone", whose gradients are in ordinary memory.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/async/progress_thread.hpp>
#include <tutti/grad/mean.hpp>
#include <tutti/tutti.hpp>

#include "compute.h"
#include "harness.h"

namespace {

using shapes = std::vector<tutti::grad::parameter_shape>;

shapes resnet50() {
  std::vector<std::size_t> n{64 * 3 * 7 * 7, 64, 64};
  std::size_t in = 64;
  const std::size_t blocks[] = {3, 4, 6, 3}, widths[] = {64, 128, 256, 512};
  for (int stage = 0; stage < 4; ++stage)
    for (std::size_t b = 0; b < blocks[stage]; ++b) {
      const std::size_t w = widths[stage], out = 4 * w;
      for (std::size_t c : {w * in, w, w, w * w * 9, w, w, out * w, out, out}) n.push_back(c);
      if (b == 0)
        for (std::size_t c : {out * in, out, out}) n.push_back(c);
      in = out;
    }
  for (std::size_t c : {std::size_t{1000 * 2048}, std::size_t{1000}}) n.push_back(c);
  shapes all;
  for (std::size_t c : n) all.push_back({"", c});
  return all;
}

shapes gpt2_small() {
  const std::size_t d = 768;
  shapes all{{"", 50257 * d}, {"", 1024 * d}};
  for (int layer = 0; layer < 12; ++layer)
    for (std::size_t c : {d, d, d * 3 * d, 3 * d, d * d, d, d, d, d * 4 * d, 4 * d, 4 * d * d, d})
      all.push_back({"", c});
  for (int i = 0; i < 2; ++i) all.push_back({"", d});
  return all;
}

/// Does one parameter's part of a backward pass.
void differentiate(std::span<float> gradient) {
  peers::compute(gradient.size());
  float one = 1;
  asm volatile("" : "+x"(one));
  for (float& g : gradient) g += one;
}

using gradients = std::vector<std::span<float>>;

/// A variant of a step, and the times of its steps on the slowest rank.
struct way {
  std::string what;
  gradients zeroed;  ///< before each step, untimed, as torch's zero_grad() does
  std::function<void()> step;
  gradients mean{};                 ///< location of the mean after the step
  tutti::engine* driven = nullptr;  ///< engine for a progress_thread, if any
  std::vector<double> ms{};
};

/// A whole model. Every step runs all variants, so that other load of the machine affects all of them.
class bench {
 public:
  bench(tutti::communicator<>& world, peers::Harness& h, const char* model, shapes s)
      : world_(world), h_(h), model_(model), shapes_(std::move(s)) {
    std::size_t all = 0;
    for (const auto& one : shapes_) {
      memory_.push_back(std::vector<float>(one.count));
      own_.push_back(memory_.back());
      all += one.count;
    }
    block_.resize(all);
    held_ = world_.register_buffer(block_);
    if (!held_.registered()) throw std::runtime_error("a block is not registered");
  }

  void run() {
    tutti::grad::reducer weighted{world_, shapes_};
    tutti::grad::reducer plain{world_, shapes_, {}, tutti::grad::mean_hook{}};
    tutti::grad::reducer small{world_, shapes_, {{.cap_bytes = std::size_t{1} << 20}}, tutti::grad::mean_hook{}};
    tutti::grad::reducer weighted_block{world_, shapes_, block_};
    tutti::grad::reducer plain_block{world_, shapes_, block_, {}, tutti::grad::mean_hook{}};
    ways_.push_back({"tutti: backward, alone", own_, [this] {
                       for (std::size_t i = shapes_.size(); i-- > 0;) differentiate(own_[i]);
                     }});
    tutti::engine* const engine = &world_.engine();
    in_arena("tutti: in the arena, weighted", weighted);
    in_arena("tutti: in the arena, weights that differ", weighted, nullptr, 32 + world_.rank());
    in_arena("tutti: in registered memory, weighted", weighted_block);
    in_arena("tutti: in registered memory, weights that differ", weighted_block, nullptr, 32 + world_.rank());
    in_arena("tutti: in the arena", plain);
    in_arena("tutti: in registered memory", plain_block);
    in_arena("tutti: in the arena, progress_thread", plain, engine);
    in_arena("tutti: in the arena, buckets of 1 MiB", small);
    copied("tutti: copied in, weighted", weighted, copies::in);
    copied("tutti: copied in, weights that differ", weighted, copies::in, 32 + world_.rank());
    copied("tutti: copied in", plain, copies::in);
    copied("tutti: copied in, progress_thread", plain, copies::in, 1, copier::reducer, engine);
    copied("tutti: copied in, buckets of 1 MiB", small, copies::in);
    copied("tutti: copied in by the caller, weighted", weighted, copies::in, 1, copier::caller);
    copied("tutti: copied in and out", plain, copies::in_and_out);
    const int steps = peers::env_int("PEER_STEPS", 15);
    for (int i = -2; i < steps; ++i)
      for (way& w : ways_) take(w, i >= 0);
    for (way& w : ways_) report(w);
  }

 private:
  enum class copies { in, in_and_out };
  enum class copier { reducer, caller };

  template <class Reducer>
  void in_arena(const char* what, Reducer& reducer, tutti::engine* driven = nullptr, double weight = 1) {
    const gradients g = reducer.gradients();
    const auto step = [this, g, &reducer, weight] {
      auto pass = reducer.begin(weight);
      for (std::size_t i = shapes_.size(); i-- > 0;) {
        differentiate(g[i]);
        pass.ready(i);
      }
      tutti::sync_wait(world_, pass.finish());
    };
    ways_.push_back({what, g, step, g, driven});
  }
  template <class Reducer>
  void copied(const char* what, Reducer& reducer, copies which, double weight = 1, copier by = copier::reducer,
              tutti::engine* driven = nullptr) {
    const gradients g = reducer.gradients();
    const auto step = [this, g, &reducer, which, weight, by] {
      auto pass = reducer.begin(weight);
      for (std::size_t i = shapes_.size(); i-- > 0;) {
        differentiate(own_[i]);
        if (by == copier::reducer) {
          pass.ready(i, own_[i]);
        } else {
          std::copy(own_[i].begin(), own_[i].end(), g[i].begin());
          pass.ready(i);
        }
      }
      tutti::sync_wait(world_, pass.finish());
      for (std::size_t i = 0; which == copies::in_and_out && i < g.size(); ++i)
        std::copy(g[i].begin(), g[i].end(), own_[i].begin());
    };
    ways_.push_back({what, own_, step, g, driven});
  }

  void take(way& w, bool counts) {
    for (const auto& g : w.zeroed) std::fill(g.begin(), g.end(), 0.0F);
    std::optional<tutti::progress_thread> driving;
    if (w.driven) driving.emplace(*w.driven);
    h_.barrier();
    const double start = peers::now_us();
    w.step();
    const double took = h_.max_over_ranks((peers::now_us() - start) * 1e-3);
    if (counts) w.ms.push_back(took);
    for (const auto& g : w.mean)
      if (g.front() != 1 || g[g.size() / 2] != 1 || g.back() != 1) throw std::runtime_error("a wrong mean");
  }

  void report(const way& w) {
    if (h_.rank != 0) return;
    std::vector<double> over;
    for (std::size_t i = 0; i < w.ms.size(); ++i) over.push_back(w.ms[i] - ways_.front().ms[i]);
    std::size_t elements = 0;
    for (const auto& s : shapes_) elements += s.count;
    std::printf(
        "{\"model\":\"%s\",\"n\":%d,\"tensors\":%zu,\"bytes\":%zu,\"what\":\"%s\",\"ms\":%.3f,\"min_ms\":%.3f,"
        "\"exposed_ms\":%.3f}\n",
        model_, h_.size, shapes_.size(), elements * 4, w.what.c_str(), median(w.ms),
        *std::min_element(w.ms.begin(), w.ms.end()), median(over));
    std::fflush(stdout);
  }
  static double median(std::vector<double> of) {
    std::nth_element(of.begin(), of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2), of.end());
    return of[of.size() / 2];
  }

  tutti::communicator<>& world_;
  peers::Harness& h_;
  const char* model_;
  shapes shapes_;
  std::vector<std::vector<float>> memory_;  // ordinary memory, one vector for each tensor
  std::vector<float> block_;                // one block for all of them, as llm.c's grads_memory
  tutti::registration held_;
  gradients own_;
  std::vector<way> ways_;
};

}  // namespace

int main() try {
  const int rank = peers::env_int("PEER_RANK", 0), size = peers::env_int("PEER_SIZE", 1);
  peers::Harness h(rank, size);
  tutti::init_options options;
  options.rendezvous = "file://" + std::string(std::getenv("PEER_DIR")) + "/tutti?rank=" + std::to_string(rank) +
                       "&world_size=" + std::to_string(size);
  auto world = tutti::init(options);
  bench{world, h, "resnet50", resnet50()}.run();
  bench{world, h, "gpt2-small", gpt2_small()}.run();
  h.barrier();
} catch (const std::exception& e) {
  std::fprintf(stderr, "peer_ddp_tutti: %s\n", e.what());
  return 1;
}
