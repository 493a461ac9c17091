// The trainer on MPI, with one blocking all_reduce of all gradients in each step.
#include <mpi.h>

#include <cstddef>
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include "trainers/exchange.hpp"
#include "trainers/trainer.hpp"

namespace {

class mpi_exchange {
 public:
  explicit mpi_exchange(std::span<const tutti::grad::parameter_shape> shapes) : array_(shapes) {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
    MPI_Comm_size(MPI_COMM_WORLD, &size_);
  }
  int rank() const { return rank_; }
  int size() const { return size_; }
  void broadcast(std::span<float> parameters) {
    MPI_Bcast(parameters.data(), static_cast<int>(parameters.size()), MPI_FLOAT, 0, MPI_COMM_WORLD);
  }
  std::span<const std::span<float>> gradients() const { return array_.gradients(); }
  void begin(double samples) { array_.begin(samples); }
  void ready(std::size_t) {}
  double finish(double loss) {
    return array_.finish(loss, [](std::span<float> all) {
      MPI_Allreduce(MPI_IN_PLACE, all.data(), static_cast<int>(all.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
  }

 private:
  trainers::whole_array array_;
  int rank_ = 0, size_ = 1;
};

}  // namespace

int main(int argc, char** argv) try {
  MPI_Init(&argc, &argv);
  trainers::run(trainers::parse(argc, argv), "MPI_Allreduce",
                [](const std::vector<tutti::grad::parameter_shape>& shapes) { return mpi_exchange{shapes}; });
  MPI_Finalize();
} catch (const std::exception& failure) {
  std::fprintf(stderr, "trainer-mpi: %s\n", failure.what());
  MPI_Abort(MPI_COMM_WORLD, 1);
}
