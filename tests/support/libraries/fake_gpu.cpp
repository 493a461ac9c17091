// CUDA's runtime and NCCL as one shared library, of one rank on one device that runs everything at once. What tests
// load in their place: the names and the calls are those of the real ones, written down from their manuals.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

struct unique_id {
  char bytes[128];
};
struct config {
  std::size_t size;
  unsigned magic, version;
  int blocking;
};
int capture_mode = 0;
int communicators = 0;

int moved(const void* in, void* out, std::size_t bytes) {
  if (in != out) std::memcpy(out, in, bytes);
  return 0;
}
std::size_t width(int type) {
  constexpr std::size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return bytes[type];
}

}  // namespace

extern "C" {

int cudaGetDeviceCount(int* n) { return *n = 1, 0; }
int cudaGetDeviceProperties(void* to, int) {
  std::memset(to, 0, 1000);
  std::strcpy(static_cast<char*>(to), "a loaded fake");
  static_cast<char*>(to)[256] = 7;
  return 0;
}
int cudaDeviceGetPCIBusId(char* to, int, int) { return std::strcpy(to, "0000:07:00.0"), 0; }
int cudaGetDevice(int* device) { return *device = 0, 0; }
int cudaSetDevice(int) { return 0; }
int cudaEventCreateWithFlags(void** e, unsigned flags) { return *e = std::malloc(1), flags == 2 ? 0 : 1; }
int cudaEventDestroy(void* e) { return std::free(e), 0; }
int cudaEventRecord(void*, void*) { return 0; }
int cudaEventQuery(void*) { return capture_mode == 2 ? 0 : 900; }
int cudaDeviceGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, 0; }
int cudaStreamCreateWithPriority(void** s, unsigned flags, int priority) {
  *s = std::malloc(1);
  return flags == 1 && priority == -5 ? 0 : 1;
}
int cudaStreamDestroy(void* s) { return std::free(s), 0; }
int cudaStreamQuery(void*) { return 0; }
int cudaStreamWaitEvent(void*, void*, unsigned flags) { return flags == 0 ? 0 : 1; }
int cudaStreamGetCaptureInfo(void*, int* status, unsigned long long*, void* a, void* b, void* c, void* d) {
  return *status = 0, a || b || c || d ? 1 : 0;
}
int cudaThreadExchangeStreamCaptureMode(int* mode) {
  const int before = capture_mode;
  capture_mode = *mode;
  *mode = before;
  return 0;
}
int cudaMalloc(void** p, std::size_t bytes) { return *p = std::malloc(bytes), 0; }
int cudaFree(void* p) { return std::free(p), 0; }
int cudaMallocHost(void** p, std::size_t bytes) { return *p = std::malloc(bytes), 0; }
int cudaFreeHost(void* p) { return std::free(p), 0; }
const char* cudaGetErrorName(int) { return "cudaErrorFake"; }
const char* cudaGetErrorString(int) { return "a fake"; }
int cudaGetLastError() { return 0; }

int ncclGetVersion(int* v) { return *v = 22809, 0; }
int ncclGetUniqueId(unique_id* id) { return std::memset(id, 5, sizeof *id), 0; }
int ncclCommInitRankConfig(void** comm, int n, unique_id id, int rank, config* how) {
  *comm = std::malloc(1);
  ++communicators;
  return n == 1 && rank == 0 && id.bytes[127] == 5 && how->size == 48 && how->magic == 0xcafebeef &&
                 how->version == 21800 && how->blocking == 0
             ? 0
             : 4;
}
int ncclCommGetAsyncError(void*, int* r) { return *r = 0, 0; }
int ncclCommFinalize(void*) { return 0; }
int ncclCommDestroy(void* comm) { return --communicators, std::free(comm), 0; }
int ncclCommAbort(void* comm) { return --communicators, std::free(comm), 0; }
int ncclCommRevoke(void*, int flags) { return flags; }
const char* ncclGetErrorString(int) { return "a fake's error"; }
const char* ncclGetLastError(void*) { return ""; }
int ncclGroupStart() { return 0; }
int ncclGroupEnd() { return 0; }
int ncclRedOpCreatePreMulSum(int* made, void*, int, int, void*) { return *made = 5, 0; }
int ncclRedOpDestroy(int made, void*) { return made == 5 ? 0 : 4; }
int ncclAllReduce(const void* in, void* out, std::size_t n, int t, int, void*, void*) {
  return moved(in, out, n * width(t));
}
int ncclReduce(const void* in, void* out, std::size_t n, int t, int, int, void*, void*) {
  return moved(in, out, n * width(t));
}
int ncclReduceScatter(const void* in, void* out, std::size_t n, int t, int, void*, void*) {
  return moved(in, out, n * width(t));
}
int ncclBroadcast(const void* in, void* out, std::size_t n, int t, int, void*, void*) {
  return moved(in, out, n * width(t));
}
int ncclAllGather(const void* in, void* out, std::size_t n, int t, void*, void*) {
  return moved(in, out, n * width(t));
}
int ncclSend(const void*, std::size_t, int, int, void*, void*) { return 0; }
int ncclRecv(void*, std::size_t, int, int, void*, void*) { return 0; }

int fake_gpu_communicators() { return communicators; }
}
