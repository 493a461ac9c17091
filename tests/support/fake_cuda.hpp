#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/cuda/types.hpp>

/// A machine with GPUs that is none: streams are queues of functions, device memory is memory. It runs whenever
/// somebody looks, all of it under one mutex, so that what happens depends on nothing but the order of calls.
struct CUevent_st {
  int device = 0;
  std::uint64_t recorded = 0;
  std::set<std::uint64_t> ahead;  ///< marks that are still to come, each in the stream where it was recorded
  bool alive = true;
};
struct CUstream_st {
  int device = 0;
  std::deque<std::function<bool()>> work;  ///< each says whether it has ended
  bool alive = true;
};

namespace fake {

/// Of the calling thread: which rank it is, for injected errors and the log.
inline thread_local int rank = -1;
inline thread_local int current_device = 0;

struct call {
  std::string what;
  int rank = -1;
  std::size_t count = 0;
  int type = -1, reduction = -1, peer = -1;
  const void* in = nullptr;
  void* out = nullptr;
};

/// One lives at a time, for as long as its test.
class machine {
 public:
  explicit machine(int devices = 4) : devices_(devices) { here_ = this; }
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;
  /// Threads that were left behind in a call leave it first.
  ~machine() {
    std::unique_lock guard{mutex};
    gate_open = true;
    changed.notify_all();
    changed.wait(guard, [this] { return inside == 0; });
    here_ = nullptr;
  }
  static machine& here() { return *here_; }

  /// The next call of this name, after `skip` of them, returns `code`; every one from there on if `always`. By any
  /// rank, or by one.
  struct injection {
    int code;
    int skip = 0;
    int only = -1;
    bool always = false;
  };
  void fail(const std::string& name, injection how) {
    const std::scoped_lock guard{mutex};
    injected_.insert_or_assign(name, how);
  }
  /// Under the mutex.
  int verdict(const char* name) {
    const auto found = injected_.find(name);
    if (found == injected_.end()) return 0;
    injection& how = found->second;
    if (how.only >= 0 && how.only != rank) return 0;
    if (how.skip-- > 0) return 0;
    const int code = how.code;
    if (!how.always) injected_.erase(found);
    return code;
  }

  /// Work of a user's in a stream: ends when `f` says so.
  void launch(tutti::cuda::stream_handle s, std::function<bool()> f) {
    const std::scoped_lock guard{mutex};
    resolve(s)->work.push_back(std::move(f));
    advance();
  }
  /// Under the mutex: everything that can run does.
  void advance() {
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& s : streams_)
        for (; !s->work.empty() && s->work.front()(); moved = true) s->work.pop_front();
    }
  }
  CUstream_st* resolve(tutti::cuda::stream_handle s) {
    if (reinterpret_cast<std::uintptr_t>(s) != 1) return s;
    CUstream_st*& mine = defaults_[current_device];
    if (!mine) mine = make_stream(current_device);
    return mine;
  }
  CUstream_st* make_stream(int device) {
    streams_.push_back(std::make_unique<CUstream_st>());
    streams_.back()->device = device;
    return streams_.back().get();
  }
  CUevent_st* make_event(int device) {
    events_.push_back(std::make_unique<CUevent_st>());
    events_.back()->device = device;
    return events_.back().get();
  }
  [[nodiscard]] int devices() const { return devices_; }
  /// What was made and not destroyed, of each kind.
  [[nodiscard]] std::size_t left() {
    const std::scoped_lock guard{mutex};
    std::size_t n = memory.size() + communicators + reductions;
    for (const auto& e : events_) n += e->alive;
    for (const auto& s : streams_) n += s->alive;
    for (const auto& [device, s] : defaults_) n -= s->alive;
    return n;
  }
  std::vector<call> calls() {
    const std::scoped_lock guard{mutex};
    return log;
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::set<void*> memory;
  std::vector<call> log;
  std::map<int, std::uint8_t> uuid_of;  ///< where devices are to look alike
  std::size_t communicators = 0, reductions = 0;
  int version = 22809;
  std::map<int, int> version_of;  ///< by rank, where ranks differ
  int polls_per_launch = 0;       ///< how often NCCL says "in progress" before a launch is in its stream
  bool dry = false;               ///< nothing is moved
  bool finalize_hangs = false;
  bool gate_open = true;  ///< ncclCommAbort returns
  int inside = 0;         ///< threads in ncclCommAbort
  int misuses = 0;        ///< calls that NCCL does not permit

 private:
  inline static machine* here_ = nullptr;
  int devices_;
  std::map<std::string, injection> injected_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::vector<std::unique_ptr<CUevent_st>> events_;
  std::map<int, CUstream_st*> defaults_;
};

/// CUDA's runtime on it.
struct cuda {
  using result = tutti::cuda::result;
  using event_handle = tutti::cuda::event_handle;
  using stream_handle = tutti::cuda::stream_handle;

  static result device_count(int& n) noexcept {
    return on("cudaGetDeviceCount", [&](machine& m) { n = m.devices(); });
  }
  static result identify(int device, tutti::cuda::device_identity& who) noexcept {
    return on("cudaGetDeviceProperties", [&](machine& m) {
      const auto alike = m.uuid_of.find(device);
      who.uuid.fill(alike == m.uuid_of.end() ? static_cast<std::uint8_t>(device + 1) : alike->second);
      std::string_view{"a fake"}.copy(who.model.data(), who.model.size() - 1);
    });
  }
  static result get_device(int& device) noexcept {
    return on("cudaGetDevice", [&](machine&) { device = current_device; });
  }
  static result set_device(int device) noexcept {
    if (device >= machine::here().devices()) return result::invalid_device;
    return on("cudaSetDevice", [&](machine&) { current_device = device; });
  }
  static result create_event(event_handle& e) noexcept {
    return on("cudaEventCreateWithFlags", [&](machine& m) { e = m.make_event(current_device); });
  }
  static result destroy_event(event_handle e) noexcept {
    return on("cudaEventDestroy", [&](machine&) { e->alive = false; });
  }
  static result record(event_handle e, stream_handle s) noexcept {
    return on("cudaEventRecord", [&](machine& m) {
      CUstream_st* const to = m.resolve(s);
      if (to->device != e->device || !e->alive) ++m.misuses;
      const std::uint64_t mark = ++e->recorded;
      e->ahead.insert(mark);
      to->work.push_back([e, mark] { return e->ahead.erase(mark), true; });
    });
  }
  static result query_event(event_handle e) noexcept {
    bool done = false;
    const result r = on("cudaEventQuery", [&](machine&) { done = !e->ahead.contains(e->recorded); });
    return r == result::success && !done ? result::not_ready : r;
  }
  static result create_stream(stream_handle& s) noexcept {
    return on("cudaStreamCreateWithPriority", [&](machine& m) { s = m.make_stream(current_device); });
  }
  static result destroy_stream(stream_handle s) noexcept {
    return on("cudaStreamDestroy", [&](machine&) { s->alive = false; });
  }
  static result query_stream(stream_handle s) noexcept {
    bool done = false;
    const result r = on("cudaStreamQuery", [&](machine& m) { done = m.resolve(s)->work.empty(); });
    return r == result::success && !done ? result::not_ready : r;
  }
  static result wait(stream_handle s, event_handle e) noexcept {
    return on("cudaStreamWaitEvent", [&](machine& m) {
      m.resolve(s)->work.push_back([e, mark = e->recorded] { return !e->ahead.contains(mark); });
    });
  }
  static result allocate(void*& p, std::size_t bytes) noexcept {
    return on("cudaMalloc", [&](machine& m) { m.memory.insert(p = ::operator new(bytes)); });
  }
  static result deallocate(void* p) noexcept {
    return on("cudaFree", [&](machine& m) {
      if (m.memory.erase(p) != 0)
        ::operator delete(p);
      else
        ++m.misuses;
    });
  }
  static result fill_zero(void* p, std::size_t bytes, stream_handle s) noexcept {
    return on("cudaMemsetAsync", [&](machine& m) {
      m.resolve(s)->work.push_back([p, bytes] { return std::memset(p, 0, bytes), true; });
    });
  }
  static result copy(void* to, const void* from, std::size_t bytes, stream_handle s) noexcept {
    return on("cudaMemcpyAsync", [&](machine& m) {
      m.resolve(s)->work.push_back([to, from, bytes] { return std::memcpy(to, from, bytes), true; });
    });
  }
  static const char* name(result r) noexcept {
    return r == result::no_device ? "cudaErrorNoDevice" : "cudaErrorIllegalAddress";
  }
  static const char* words(result r) noexcept {
    return r == result::no_device ? "no CUDA-capable device is detected" : "an illegal memory access was encountered";
  }

 private:
  template <class F>
  static result on(const char* name, F f) noexcept {
    machine& m = machine::here();
    const std::scoped_lock guard{m.mutex};
    m.advance();
    if (const int code = m.verdict(name)) return static_cast<result>(code);
    f(m);
    m.advance();
    return result::success;
  }
};
static_assert(tutti::cuda::moving_api<cuda>);

}  // namespace fake
