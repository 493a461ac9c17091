// A whole training step, with its all_reduce, captured into a CUDA graph and then replayed: the host launches it by one
// call. Gradient descent fits a linear model; each rank has other rows of it.
//
//   tutti-run -n 4 --devices 0,1,2,3 -- graph [steps]       (or alone)
//
// Under capture, an operation ends by join(stream): the host cannot wait for work that is recorded and not run.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <vector>

#include <tutti/bootstrap/nccl.hpp>
#include <tutti/tutti.hpp>

#include "common/cublas_handle.hpp"
#include "common/cuda_check.hpp"
#include "common/random.hpp"

namespace {

using common::cublas_check, common::cuda_check;
using gpu_communicator = tutti::communicator<tutti::nccl>;

constexpr int rows = 4096, columns = 512;

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i] - b[i]), 2);
  return std::sqrt(sum);
}

/// A linear model; a step is weights -= rate * mean over ranks of the gradient of |X weights - y|^2 / (2 rows).
class linear_model {
 public:
  linear_model(gpu_communicator& gpus, cudaStream_t stream)
      : gpus_{gpus},
        stream_{stream},
        blas_{stream},
        x_{gpus.backend().device(), std::size_t{rows} * columns},
        y_{gpus.backend().device(), rows},
        residual_{gpus.backend().device(), rows},
        gradient_{gpus.backend().device(), columns},
        weights_{gpus.backend().device(), columns},
        answer_(columns) {
    common::random_source same{7}, own{100 + static_cast<std::uint64_t>(gpus.rank())};
    std::vector<float> x(std::size_t{rows} * columns), y(rows);
    for (float& w : answer_) w = static_cast<float>(same.symmetric(1));
    for (float& value : x) value = static_cast<float>(own.symmetric(1));
    for (std::size_t c = 0; c < columns; ++c)
      for (std::size_t r = 0; r < rows; ++r) y[r] += x[c * rows + r] * answer_[c];  // column-major, as in cuBLAS
    copy_in(x_, x);
    copy_in(y_, y);
    reset();
  }

  void reset() { copy_in(weights_, std::vector<float>(columns)); }

  /// Issues a step to the stream; does not wait.
  void step() {
    const float one = 1, minus = -1, share = 1.0F / rows, zero = 0, down = -1.5F;
    float *x = at(x_), *r = at(residual_), *g = at(gradient_), *w = at(weights_);
    cublas_check(cublasScopy(blas_, rows, at(y_), 1, r, 1), "cublasScopy");
    cublas_check(cublasSgemv(blas_, CUBLAS_OP_N, rows, columns, &one, x, rows, w, 1, &minus, r, 1), "cublasSgemv");
    cublas_check(cublasSgemv(blas_, CUBLAS_OP_T, rows, columns, &share, x, rows, r, 1, &zero, g, 1), "cublasSgemv");
    gpus_.all_reduce(gradient_.span(), tutti::mean, {.stream = stream_}).join(stream_);
    cublas_check(cublasSaxpy(blas_, columns, &down, g, 1, w, 1), "cublasSaxpy");
  }

  [[nodiscard]] std::vector<float> weights() const {
    std::vector<float> all(columns);
    cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    cuda_check(cudaMemcpy(all.data(), at(weights_), columns * sizeof(float), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return all;
  }
  [[nodiscard]] const std::vector<float>& answer() const { return answer_; }

 private:
  using memory = tutti::cuda::device_memory<float>;
  static float* at(const memory& m) { return m.span().data(); }
  void copy_in(const memory& to, const std::vector<float>& from) const {
    cuda_check(cudaMemcpyAsync(at(to), from.data(), from.size() * sizeof(float), cudaMemcpyHostToDevice, stream_),
               "cudaMemcpyAsync");
    cuda_check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");  // the vector is destroyed on return
  }

  gpu_communicator& gpus_;
  cudaStream_t stream_;
  common::cublas_handle blas_;
  memory x_, y_, residual_, gradient_, weights_;
  std::vector<float> answer_;
};

/// A captured step of the model. Owns the graph.
class captured_step {
 public:
  captured_step(linear_model& model, cudaStream_t stream) {
    // A global capture would forbid some calls to other threads, such as NCCL's.
    cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t graph = nullptr;
    try {
      model.step();
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream, &graph));
      if (graph) static_cast<void>(cudaGraphDestroy(graph));
      throw;
    }
    cuda_check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    const cudaError_t made = cudaGraphInstantiate(&exec_, graph, 0);
    static_cast<void>(cudaGraphDestroy(graph));
    cuda_check(made, "cudaGraphInstantiate");
  }
  captured_step(const captured_step&) = delete;
  captured_step& operator=(const captured_step&) = delete;
  ~captured_step() { static_cast<void>(cudaGraphExecDestroy(exec_)); }

  void replay(cudaStream_t stream) const { cuda_check(cudaGraphLaunch(exec_, stream), "cudaGraphLaunch"); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

/// Calls f `steps` times, prints the host's and the whole time of each in microseconds, and returns the weights.
template <class F>
std::vector<float> timed(const gpu_communicator& gpus, linear_model& model, int steps, const char* how, F f) {
  using std::chrono::duration, std::chrono::steady_clock;
  model.reset();
  const auto start = steady_clock::now();
  for (int i = 0; i < steps; ++i) f();
  const auto issued = steady_clock::now();
  auto weights = model.weights();
  const auto done = steady_clock::now();
  if (gpus.rank() == 0)
    std::printf("%-8s  %4d steps  host %8.2f us  step %8.2f us  distance from the answer %.6f\n", how, steps,
                duration<double, std::micro>(issued - start).count() / steps,
                duration<double, std::micro>(done - start).count() / steps, distance(weights, model.answer()));
  return weights;
}

void run(int steps) {
  auto world = tutti::init();
  common::choose_device(world.local_rank());
  auto gpus = tutti::gpu_world(world);
  const tutti::cuda::stream stream{gpus.backend().device()};
  linear_model model{gpus, stream.native()};

  model.step();  // NCCL connects and cuBLAS loads its kernels before the capture
  const auto eager = timed(gpus, model, steps, "eager", [&] { model.step(); });
  const captured_step graph{model, stream.native()};
  const auto replayed = timed(gpus, model, steps, "replayed", [&] { graph.replay(stream.native()); });
  gpus.barrier().wait();  // no rank destroys its graph while a peer replays its own
  if (!(distance(eager, replayed) < 1e-4)) throw std::runtime_error{"replayed steps lead elsewhere than eager ones"};
  if (steps >= 100 && !(distance(replayed, model.answer()) < 1e-2))
    throw std::runtime_error{"the answer was not found"};
}

}  // namespace

int main(int argc, char** argv) try {
  run(argc > 1 ? std::max(std::atoi(argv[1]), 1) : 200);
} catch (const std::exception& e) {
  std::fprintf(stderr, "graph: %s\n", e.what());
  return 1;
}
