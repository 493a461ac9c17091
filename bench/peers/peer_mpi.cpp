// MPI peer: built once against Open MPI and once against MPICH.
#include <mpi.h>

#include "harness.h"

struct Mpi {
  int size;
  bool supports(int, size_t) { return true; }
  void prepare(int, float*, float*, size_t) {}
  void run(int op, float* buf, float* out, size_t count) {
    const int c = static_cast<int>(count), part = c / size;
    switch (op) {
      case peers::kAllReduce:
        MPI_Allreduce(MPI_IN_PLACE, buf, c, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case peers::kBroadcast:
        MPI_Bcast(buf, c, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
      case peers::kBarrier:
        MPI_Barrier(MPI_COMM_WORLD);
        break;
      case peers::kReduceScatter:
        MPI_Reduce_scatter_block(buf, out, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
      case peers::kAllGather:
        MPI_Allgather(buf, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case peers::kGather:
        MPI_Gather(buf, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
      case peers::kScatter:
        MPI_Scatter(buf, part, MPI_FLOAT, out, part, MPI_FLOAT, 0, MPI_COMM_WORLD);
        break;
      case peers::kAllToAll:
        MPI_Alltoall(buf, part, MPI_FLOAT, out, part, MPI_FLOAT, MPI_COMM_WORLD);
        break;
      case peers::kReduce:
        MPI_Reduce(buf, out, c, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
        break;
      case peers::kScan:
        MPI_Scan(buf, out, c, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        break;
    }
  }
};

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank, size;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1 && !std::strcmp(argv[1], "--startup")) {  // nothing but Init, one barrier, Finalize
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
  }
  {
    peers::Harness h(rank, size);
    Mpi a{size};
    peers::run_suite(a, h, peers::Options(argc, argv));
  }
  MPI_Finalize();
}
