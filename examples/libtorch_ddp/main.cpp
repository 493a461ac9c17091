// DistributedDataParallel for libtorch, which has none. Gradients are views into the reducer's memory, and are averaged
// while autograd computes those before them.
//
//   tutti-run -n 2 -- libtorch_ddp
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/torch.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <tutti/grad/reducer.hpp>
#include <tutti/tutti.hpp>
#include <vector>

namespace {

/// A wrapper of a model on the CPU with parameters of float. Call its backward() in place of loss.backward().
class data_parallel {
 public:
  data_parallel(tutti::communicator<>& world, torch::nn::Module& model)
      : world_(world), parameters_(model.parameters()), reducer_(world, shapes()) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      auto& p = parameters_[i];
      world.broadcast(std::span{p.data_ptr<float>(), reducer_.gradient<float>(i).size()}, 0).wait();
      p.mutable_grad() = torch::from_blob(reducer_.gradient<float>(i).data(), p.sizes());
      accumulators_.push_back(torch::autograd::impl::grad_accumulator(p));  // a tensor only has a weak pointer to it
      accumulators_.back()->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, i](const auto& outputs, const auto&) { return pass_->ready(i), outputs; }));
    }
  }
  /// Computes gradients, averaged over all samples of all ranks. Zero the gradients before; they must not be undefined.
  void backward(const torch::Tensor& loss, double samples) {
    pass_.emplace(reducer_.begin(samples));
    loss.backward();
    pass_->rest_unused();
    tutti::sync_wait(world_, pass_->finish());
    pass_.reset();
  }

 private:
  [[nodiscard]] std::vector<tutti::grad::parameter_shape> shapes() const {
    std::vector<tutti::grad::parameter_shape> all;
    for (const auto& p : parameters_) all.push_back({"", static_cast<std::size_t>(p.numel())});
    return all;
  }

  tutti::communicator<>& world_;
  std::vector<torch::Tensor> parameters_;
  tutti::grad::reducer<tutti::communicator<>> reducer_;
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
  std::optional<tutti::grad::pass<tutti::grad::reducer<tutti::communicator<>>>> pass_;
};

/// Trains a model on this rank's rows of a batch for some steps; returns the loss on all rows.
template <class Backward>
float train(torch::nn::Sequential& model, long first, long rows, Backward backward) {
  torch::optim::SGD optimizer(model->parameters(), 0.05);
  torch::manual_seed(1);
  const auto x = torch::randn({24, 8}), y = x.sum(1, /*keepdim=*/true);
  for (int step = 0; step < 50; ++step) {
    model->zero_grad(/*set_to_none=*/false);
    backward(torch::mse_loss(model->forward(x.narrow(0, first, rows)), y.narrow(0, first, rows)));
    optimizer.step();
  }
  return torch::mse_loss(model->forward(x), y).item<float>();
}

torch::nn::Sequential make_model(int seed) {
  torch::manual_seed(static_cast<std::uint64_t>(seed));
  return torch::nn::Sequential(torch::nn::Linear(8, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1));
}

}  // namespace

int main() try {
  torch::set_num_threads(1);
  auto world = tutti::init();
  const int n = world.size(), rank = world.rank();

  auto alone = make_model(0);
  const float expected = train(alone, 0, 24, [](const torch::Tensor& loss) { loss.backward(); });

  auto model = make_model(rank);  // data_parallel broadcasts the parameters of rank 0
  data_parallel parallel{world, *model};
  const long first = 24L * rank * rank / (n * n), rows = 24L * (rank + 1) * (rank + 1) / (n * n) - first;  // unequal
  const float loss =
      train(model, first, rows, [&](const torch::Tensor& of) { parallel.backward(of, static_cast<double>(rows)); });

  const float least = world.all_reduce(loss, tutti::min).wait(), most = world.all_reduce(loss, tutti::max).wait();
  if (rank == 0)
    std::printf("loss %.6f on %d ranks, %.6f on one\n", static_cast<double>(loss), n, static_cast<double>(expected));
  if (least == most && std::abs(loss - expected) < 1e-4F) return 0;
  std::fprintf(stderr, "libtorch_ddp: ranks differ, or the mean does: %g to %g, not %g\n", static_cast<double>(least),
               static_cast<double>(most), static_cast<double>(expected));
  return 1;
} catch (const std::exception& e) {
  std::fprintf(stderr, "libtorch_ddp: %s\n", e.what());
  return 1;
}
