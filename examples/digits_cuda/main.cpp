// The trainer of digits/ on GPUs: the same network, images, order and steps, and so the same losses except for
// rounding. cuBLAS computes products, kernels.cu everything else. A device reducer averages gradients while the
// backward pass runs; the next images are copied meanwhile. The host waits for its device once in an epoch.
//
//   tutti-run -n 4 --devices 0,1,2,3 -- digits_cuda --epochs 10       (or alone)
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/bootstrap/nccl.hpp>
#include <tutti/tutti.hpp>

#include "common/equal_bits.hpp"
#include "common/loss_log.hpp"
#include "digits/batch.hpp"
#include "digits/evaluate.hpp"
#include "digits/load.hpp"
#include "digits/optimizer.hpp"
#include "digits/options.hpp"
#include "digits/progress.hpp"
#include "digits_cuda/cuda_device.hpp"
#include "digits_cuda/exchange.hpp"
#include "digits_cuda/feeder.hpp"
#include "digits_cuda/network.hpp"

namespace {

using digits::cuda::cuda_device;

class trainer {
 public:
  trainer(const digits::options& wanted, const digits::split_dataset& data, tutti::communicator<>& world,
          tutti::communicator<tutti::nccl>& gpus)
      : options_{wanted},
        data_{data},
        world_{world},
        device_{gpus.backend().device()},
        host_net_{data.train.shape, wanted.seed},
        exchange_{gpus, world, host_net_, device_.stream()},
        net_{device_, data.train.shape, host_net_, share_of(wanted.batch), exchange_.places()},
        feeder_{device_, data.train.shape, share_of(wanted.batch)},
        steps_{(data.train.size() + wanted.batch - 1) / wanted.batch},
        losses_{device_, steps_},
        progress_{world.rank(), wanted.epochs} {}

  void run() {
    if (world_.rank() == 0) loss_log_.open(options_.loss_log);
    for (std::size_t epoch = 0; epoch < options_.epochs; ++epoch) {
      const auto start = std::chrono::steady_clock::now();
      const double loss = train_epoch(epoch);
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      device_.download(net_.parameters().data(), host_net_.parameters());
      const auto test = tutti::sync_wait(world_, digits::evaluate(host_net_, data_.test, world_));
      progress_.epoch(epoch + 1, loss, test, static_cast<double>(data_.train.size()) / spent.count());
    }
    const auto bytes = std::as_bytes(std::span<const float>{host_net_.parameters()});
    progress_.line("parameters: " + tutti::sync_wait(world_, common::equal_bits(world_, bytes)));
  }

 private:
  /// Trains for one epoch and returns the mean loss; each step's loss is that before its update.
  double train_epoch(std::size_t epoch) {
    const auto order = digits::epoch_order(data_.train.size(), options_.seed, epoch);
    const auto images = [&](std::size_t step) {
      const std::size_t first = step * options_.batch;
      return std::span{order}.subspan(first, std::min(options_.batch, order.size() - first));
    };
    const auto bring = [&](std::size_t step) {
      feeder_.bring(digits::gather<float>(data_.train, digits::slice(images(step), rank(), ranks())));
    };
    bring(0);
    for (std::size_t step = 0; step < steps_; ++step) {
      const auto batch = feeder_.take();
      exchange_.begin(batch.size);
      net_.backward(batch, [&](std::size_t i) { exchange_.ready(i); });
      feeder_.done();
      exchange_.finish();
      net_.note_loss(losses_.data() + step);
      const double done = static_cast<double>(epoch * steps_ + step) / static_cast<double>(options_.epochs * steps_);
      const double rate = options_.learning_rate * std::max(0.0, 1.0 - done);
      net_.step(rate, digits::momentum_rule.momentum);
      if (step + 1 < steps_) bring(step + 1);  // while the device computes this step
    }
    std::vector<float> losses(steps_);
    device_.download(losses_.data(), losses);
    double total = 0;
    for (std::size_t step = 0; step < steps_; ++step) {
      const auto loss = static_cast<double>(losses[step]);
      if (!std::isfinite(loss))
        throw std::runtime_error{"the loss is no longer finite at step " + std::to_string(epoch * steps_ + step) +
                                 ": try a smaller --lr than " + std::to_string(options_.learning_rate)};
      if (world_.rank() == 0) loss_log_.write(epoch * steps_ + step, loss);
      total += loss * static_cast<double>(images(step).size());
    }
    return total / static_cast<double>(order.size());
  }

  [[nodiscard]] std::size_t rank() const { return static_cast<std::size_t>(world_.rank()); }
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(world_.size()); }
  [[nodiscard]] std::size_t share_of(std::size_t batch) const { return (batch + ranks() - 1) / ranks(); }

  const digits::options& options_;
  const digits::split_dataset& data_;
  tutti::communicator<>& world_;
  cuda_device device_;
  digits::model<float> host_net_;
  digits::cuda::gradient_exchange exchange_;
  digits::cuda::network<cuda_device> net_;
  digits::cuda::feeder feeder_;
  std::size_t steps_;
  cuda_device::array<float> losses_;
  digits::progress progress_;
  common::loss_log loss_log_;
};

void check(const digits::options& o) {
  const bool plain = o.dtype == digits::element_type::float32 && o.compress == digits::compression::none &&
                     o.accumulate == 1 && o.shards == 0 && o.zero == 0 && !o.adasum && !o.scale_loss &&
                     o.checkpoint.empty() && o.todo != digits::action::measure_speed;
  if (!plain)
    throw std::invalid_argument{
        "digits_cuda knows --seed, --batch, --epochs, --lr, --data, --loss-log and --share-gpus; for the rest there is "
        "digits"};
}

}  // namespace

int main(int argc, char** argv) try {
  // Allows more ranks than GPUs, for tests; NCCL needs an option of its own for that, see docs/gpu.md.
  std::vector<const char*> words{argv + 1, argv + argc};
  tutti::nccl_options how;
  if (std::erase_if(words, [](std::string_view w) { return w == "--share-gpus"; }) != 0)
    how.sharing = tutti::device_sharing::allowed;
  const auto wanted = digits::parse_options(words);
  if (wanted.todo == digits::action::show_help) {
    std::fputs(digits::usage().c_str(), stdout);
    return 0;
  }
  check(wanted);
  const auto data = digits::load_dataset(wanted.data);
  auto world = tutti::init();
  common::choose_device(world.local_rank());
  auto gpus = tutti::gpu_world(world, how);
  trainer{wanted, data, world, gpus}.run();
} catch (const std::invalid_argument& failure) {
  std::fprintf(stderr, "digits_cuda: %s\n", failure.what());
  return 2;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "digits_cuda: %s\n", failure.what());
  return 1;
}
