// NCCL where there is no GPU, for programs that LD_PRELOAD this beside cuda.cpp: its ranks meet in a file that all map,
// at most eight of them. Calls run when their stream does, at once: they wait for the peers, not for ever. Where one of
// these is no more they do nothing, and the communicator says so until it is revoked. What NCCL 2.28.9 returns success
// for before it is done, windows and smaller communicators, is done when the communicator is asked for its state.
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <nccl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <support/fakes/fake_numbers.hpp>

#include "gpu/pretended/streams.hpp"

namespace {

constexpr std::size_t head_bytes = 4096, slot_bytes = std::size_t{256} << 20, box_bytes = std::size_t{16} << 20;

/// At the beginning of the file.
struct head {
  std::atomic<unsigned> arrived, generation;
  std::atomic<bool> full[8][8];  ///< a message from one rank to another
  std::atomic<pid_t> processes[8];
  std::atomic<std::uint64_t> gpus[8];  ///< where each rank is
};

}  // namespace

struct ncclComm {
  int rank = 0, size = 1;
  std::byte* base = nullptr;
  std::vector<double> factors;
  std::string file;
  int revoked = 0;
  std::atomic<bool> broken = false;       ///< a peer is no more
  std::function<ncclResult_t()> pending;  ///< what was said to have succeeded
  int asked = 0;                          ///< since then

  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(size); }
  [[nodiscard]] std::size_t me() const { return static_cast<std::size_t>(rank); }
  [[nodiscard]] head& shared() const { return *reinterpret_cast<head*>(base); }
  [[nodiscard]] std::byte* slot(std::size_t r) const { return base + head_bytes + r * slot_bytes; }
  [[nodiscard]] std::byte* box(std::size_t from, std::size_t to) const {
    return slot(ranks()) + (from * ranks() + to) * box_bytes;
  }
  [[nodiscard]] bool all_live() const {
    for (std::size_t r = 0; r < ranks(); ++r) {
      const pid_t p = shared().processes[r];
      if (p != 0 && ::kill(p, 0) != 0 && errno == ESRCH) return false;
    }
    return true;
  }
  /// False: a peer is no more.
  template <class F>
  bool wait(F until) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    for (unsigned i = 1; !broken && !until(); ++i) {
      std::this_thread::yield();
      if (i % 64 == 0 && !all_live() && !until()) broken = true;
      if (std::chrono::steady_clock::now() < end) continue;
      std::fprintf(stderr, "the pretended NCCL: rank %d waits for its peers in vain\n", rank);
      std::_Exit(3);
    }
    return !broken;
  }
  bool barrier() {
    if (broken) return false;
    const unsigned now = shared().generation;
    if (shared().arrived.fetch_add(1) + 1 == static_cast<unsigned>(size)) {
      shared().arrived = 0;
      ++shared().generation;
      return true;
    }
    return wait([&] { return shared().generation != now; });
  }
};

namespace {

thread_local int groups = 0;
thread_local std::vector<std::function<void()>> collectives;  // of the group that is open

/// Those of a group run at its end, behind its messages.
template <class F>
ncclResult_t call(cudaStream_t s, F f) {
  if (groups > 0)
    collectives.push_back([=] { pretended::enqueue(s, f); });
  else
    pretended::enqueue(s, f);
  return ncclSuccess;
}

struct message {
  ncclComm_t comm = nullptr;
  std::size_t from = 0, to = 0, bytes = 0;
  const void* in = nullptr;
  void* out = nullptr;  ///< null: it is sent

  [[nodiscard]] std::size_t lane() const { return (out ? 8 + from : to); }
  [[nodiscard]] bool moves() const {
    auto& full = comm->shared().full[from][to];
    if (full != (out != nullptr)) return false;
    if (bytes != 0) std::memcpy(out ? out : comm->box(from, to), out ? comm->box(from, to) : in, bytes);
    full = out == nullptr;
    return true;
  }
};
thread_local std::vector<message> messages;  // of the group that is open
thread_local cudaStream_t of_messages = nullptr;

/// All of them in whatever order they can, but for those of one direction between two ranks, as NCCL does.
void exchange(std::vector<message> left) {
  if (left.empty()) return;
  left.front().comm->wait([&] {
    std::array<bool, 16> stuck{};
    std::erase_if(left, [&](const message& m) { return !(stuck[m.lane()] = stuck[m.lane()] || !m.moves()); });
    return left.empty();
  });
}
ncclResult_t give(const message& m, cudaStream_t s) {
  if (m.bytes > box_bytes) {
    std::fprintf(stderr, "the pretended NCCL: a message of %zu bytes is too long\n", m.bytes);
    std::_Exit(3);
  }
  if (groups == 0) {
    pretended::enqueue(s, [m] { exchange({m}); });
  } else {
    messages.push_back(m);
    of_messages = s;
  }
  return ncclSuccess;
}

tutti::nccl_dtype ours(ncclDataType_t t) { return static_cast<tutti::nccl_dtype>(t); }
std::size_t bytes_of(std::size_t count, ncclDataType_t t) { return count * fake::bytes_of(ours(t)); }

/// Everybody's input lies in their slots, as `prepare` has left it there, while `f` runs.
template <class Prepare, class F>
void meet(ncclComm_t c, const void* in, std::size_t bytes, Prepare prepare, F f) {
  if (bytes > slot_bytes) {
    std::fprintf(stderr, "the pretended NCCL: %zu bytes are too many\n", bytes);
    std::_Exit(3);
  }
  if (in) std::memcpy(c->slot(c->me()), in, bytes);
  prepare(c->slot(c->me()));
  if (!c->barrier()) return;
  f();
  c->barrier();
}
template <class F>
void meet(ncclComm_t c, const void* in, std::size_t bytes, F f) {
  meet(c, in, bytes, [](std::byte*) {}, f);
}
/// Each rank multiplies what it brings by its own factor, where the reduction has one.
template <class F>
void reduce(ncclComm_t c, const void* in, std::size_t n, ncclDataType_t t, int with, F f) {
  const auto scale = [&](std::byte* mine) {
    if (with <= ncclAvg) return;
    const double factor = c->factors[static_cast<std::size_t>(with - ncclAvg - 1)];
    for (std::size_t i = 0; i < n; ++i) fake::store(ours(t), mine, i, fake::load(ours(t), mine, i) * factor);
  };
  meet(c, in, bytes_of(n, t), scale, f);
}

double folded(ncclComm_t c, std::size_t i, tutti::nccl_dtype t, int with) {
  double sum = 0;
  for (std::size_t r = 0; r < c->ranks(); ++r) {
    double x = fake::load(t, c->slot(r), i);
    if (with == ncclAvg && !fake::is_integer(t)) x = fake::rounded(t, x / c->size);
    if (r == 0)
      sum = x;
    else if (with == ncclProd)
      sum = fake::rounded(t, sum * x);
    else if (with == ncclMax)
      sum = std::max(sum, x);
    else if (with == ncclMin)
      sum = std::min(sum, x);
    else
      sum = fake::rounded(t, sum + x);
  }
  return with == ncclAvg && fake::is_integer(t) ? sum / c->size : sum;
}
void fold(ncclComm_t c, void* out, std::size_t first, std::size_t count, ncclDataType_t t, int with) {
  const std::size_t written = c->size == 1 && with > ncclAvg ? fake::written_alone(count, ours(t)) : count;
  for (std::size_t i = 0; i < written; ++i) fake::store(ours(t), out, i, folded(c, first + i, ours(t), with));
}
void put(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}
/// The GPU of this thread, on the machine that this process says it is.
std::uint64_t here() {
  int device = 0;
  cudaGetDevice(&device);
  const char* const machine = std::getenv("NCCL_HOSTID");
  return std::hash<std::string>{}(machine ? machine : "") + static_cast<std::uint64_t>(device);
}
/// All ranks of a communicator meet in a file. NCCL takes two on one GPU for a mistake.
ncclResult_t connect(ncclComm_t* made, int size, const std::string& path, int rank) {
  const auto n = static_cast<std::size_t>(size);
  const std::size_t bytes = head_bytes + n * slot_bytes + n * n * box_bytes;  // of which little is ever touched
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (size > 8 || file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) return ncclSystemError;
  void* const base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (base == MAP_FAILED) return ncclSystemError;
  auto* const c = new ncclComm;
  c->rank = rank, c->size = size, c->base = static_cast<std::byte*>(base), c->file = path;
  c->shared().processes[c->me()] = ::getpid();
  c->shared().gpus[c->me()] = here();
  *made = c;
  const bool met = c->barrier();
  ::unlink(path.c_str());
  if (!met) return ncclRemoteError;
  const std::span all{c->shared().gpus, n};
  return std::count(all.begin(), all.end(), here()) == 1 ? ncclSuccess : ncclInvalidUsage;
}
std::byte* at(void* p, std::size_t bytes) { return static_cast<std::byte*>(p) + bytes; }
const std::byte* at(const void* p, std::size_t bytes) { return static_cast<const std::byte*>(p) + bytes; }

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = 22809;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static std::atomic<int> made = 0;
  std::memset(id, 0, sizeof *id);
  std::snprintf(id->internal, sizeof id->internal, "/dev/shm/pretended-nccl-%d-%d", ::getpid(), ++made);
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  return connect(made, size, id.internal, rank);
}
/// The third answer is the one after which all is done.
ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t* state) {
  if (c->pending && ++c->asked < 3) {
    *state = ncclInProgress;
  } else if (c->pending) {
    c->asked = 0;
    *state = std::exchange(c->pending, nullptr)();
  } else {
    *state = c->broken && c->revoked == 0 ? ncclRemoteError : ncclSuccess;
  }
  return ncclSuccess;
}
ncclResult_t ncclCommShrink(ncclComm_t c, int* dead, int n, ncclComm_t* made, ncclConfig_t*, int) {
  if (c->revoked == 0 || n < 1 || n >= c->size || c->pending) return ncclInvalidUsage;
  *made = nullptr;
  const int below = static_cast<int>(std::count_if(dead, dead + n, [c](int r) { return r < c->rank; }));
  c->pending = [=, size = c->size - n, file = c->file + "-fewer"] {
    return connect(made, size, file, c->rank - below);
  };
  return ncclSuccess;
}
ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommDestroy(ncclComm_t) { return ncclSuccess; }  // a thread may look at it still
ncclResult_t ncclCommAbort(ncclComm_t) { return ncclSuccess; }
ncclResult_t ncclCommRevoke(ncclComm_t c, int) {
  c->revoked = 1;
  c->broken = true;  // for what is in flight
  return ncclSuccess;
}
ncclResult_t ncclMemAlloc(void** p, std::size_t bytes) {
  return (*p = std::malloc(bytes)) ? ncclSuccess : ncclSystemError;
}
ncclResult_t ncclMemFree(void* p) {
  std::free(p);
  return ncclSuccess;
}
ncclResult_t ncclCommWindowRegister(ncclComm_t c, void* p, std::size_t, ncclWindow_t* made, int) {
  if (c->pending) return ncclInvalidUsage;
  *made = nullptr;
  c->pending = [=] {
    *made = static_cast<ncclWindow_t>(p);
    return ncclSuccess;
  };
  return ncclSuccess;
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t) { return ncclSuccess; }
const char* ncclGetLastError(ncclComm_t) { return ""; }

ncclResult_t ncclGroupStart() {
  ++groups;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (--groups > 0) return ncclSuccess;
  if (!messages.empty()) pretended::enqueue(of_messages, [all = std::exchange(messages, {})] { exchange(all); });
  for (const auto& f : std::exchange(collectives, {})) f();
  return ncclSuccess;
}
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* made, void* factor, ncclDataType_t t, ncclScalarResidence_t,
                                      ncclComm_t c) {
  c->factors.push_back(fake::load(ours(t), factor, 0));
  *made = static_cast<ncclRedOp_t>(static_cast<int>(ncclAvg) + static_cast<int>(c->factors.size()));
  return ncclSuccess;
}
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t n, ncclDataType_t t, ncclRedOp_t with, ncclComm_t c,
                           cudaStream_t s) {
  return call(s, [=] { reduce(c, in, n, t, with, [&] { fold(c, out, 0, n, t, with); }); });
}
ncclResult_t ncclReduce(const void* in, void* out, std::size_t n, ncclDataType_t t, ncclRedOp_t with, int root,
                        ncclComm_t c, cudaStream_t s) {
  return call(s, [=] {
    reduce(c, in, n, t, with, [&] {
      if (c->rank == root) fold(c, out, 0, n, t, with);
    });
  });
}
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t n, ncclDataType_t t, ncclRedOp_t with,
                               ncclComm_t c, cudaStream_t s) {
  return call(s, [=] { reduce(c, in, n * c->ranks(), t, with, [&] { fold(c, out, n * c->me(), n, t, with); }); });
}
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t n, ncclDataType_t t, int root, ncclComm_t c,
                           cudaStream_t s) {
  return call(s, [=] {
    meet(c, c->rank == root ? in : nullptr, bytes_of(n, t),
         [&] { put(out, c->slot(static_cast<std::size_t>(root)), bytes_of(n, t)); });
  });
}
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
  return call(s, [=] {
    const std::size_t each = bytes_of(n, t);
    meet(c, in, each, [&] {
      for (std::size_t r = 0; r < c->ranks(); ++r) put(at(out, r * each), c->slot(r), each);
    });
  });
}
ncclResult_t ncclSend(const void* in, std::size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return give({c, c->me(), static_cast<std::size_t>(peer), bytes_of(n, t), in}, s);
}
ncclResult_t ncclRecv(void* out, std::size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t s) {
  return give({c, static_cast<std::size_t>(peer), c->me(), bytes_of(n, t), nullptr, out}, s);
}

ncclResult_t ncclAlltoAll(const void* in, void* out, std::size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t s) {
  ncclGroupStart();
  for (int r = 0; r < c->size; ++r) {
    const std::size_t offset = static_cast<std::size_t>(r) * bytes_of(n, t);
    ncclSend(at(in, offset), n, t, r, c, s);
    ncclRecv(at(out, offset), n, t, r, c, s);
  }
  return ncclGroupEnd();
}
ncclResult_t ncclGather(const void* in, void* out, std::size_t n, ncclDataType_t t, int root, ncclComm_t c,
                        cudaStream_t s) {
  ncclGroupStart();
  ncclSend(in, n, t, root, c, s);
  for (int r = 0; c->rank == root && r < c->size; ++r)
    ncclRecv(at(out, static_cast<std::size_t>(r) * bytes_of(n, t)), n, t, r, c, s);
  return ncclGroupEnd();
}
ncclResult_t ncclScatter(const void* in, void* out, std::size_t n, ncclDataType_t t, int root, ncclComm_t c,
                         cudaStream_t s) {
  ncclGroupStart();
  for (int r = 0; c->rank == root && r < c->size; ++r)
    ncclSend(at(in, static_cast<std::size_t>(r) * bytes_of(n, t)), n, t, r, c, s);
  ncclRecv(out, n, t, root, c, s);
  return ncclGroupEnd();
}

}  // extern "C"
