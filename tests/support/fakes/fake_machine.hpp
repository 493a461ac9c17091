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

#include <tutti/backend/nccl/feature.hpp>
#include <tutti/cuda/types.hpp>

/// A machine with GPUs that is none: streams are queues of functions, device memory is memory. It runs whenever
/// somebody looks, all of it under one mutex, so that what happens depends on nothing but the order of calls.
namespace fake {

using work = std::function<bool()>;  ///< says whether it has ended

/// What a stream's capture has written down so far.
struct graph {
  struct node {
    std::function<work()> make;  ///< for each launch anew
    std::vector<std::size_t> after;
  };
  std::uint64_t id = 0;
  std::vector<node> nodes;
  CUstream_st* origin = nullptr;
  bool spoilt = false, ended = false;
};

}  // namespace fake

struct CUevent_st {
  int device = 0;
  std::uint64_t recorded = 0;
  std::set<std::uint64_t> ahead;  ///< marks that are still to come, each in the stream where it was recorded
  bool alive = true;
  std::shared_ptr<fake::graph> in;  ///< was recorded in a capture, behind these nodes
  std::vector<std::size_t> tips;
};
struct CUstream_st {
  int device = 0;
  std::deque<fake::work> work;
  bool alive = true;
  std::shared_ptr<fake::graph> in;  ///< is being captured; what it is given next comes behind these nodes
  std::vector<std::size_t> tips;
};

namespace fake {

/// Of the calling thread: which rank it is, for injected errors and the log.
inline thread_local int rank = -1;
inline thread_local int current_device = 0;
inline thread_local tutti::cuda::capture_mode capture_mode{};

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
    for (void* p : memory) ::operator delete(p);  // what was left behind on purpose
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
    give(resolve(s), [f] { return f; });
    advance();
  }
  /// Under the mutex: runs when its turn comes, or is written down.
  void give(CUstream_st* s, const std::function<work()>& make) {
    if (!s->in) return s->work.push_back(make());
    s->in->nodes.push_back({make, std::exchange(s->tips, {s->in->nodes.size()})});
  }

  /// cudaStreamBeginCapture, in the mode that is asked for most.
  void begin_capture(tutti::cuda::stream_handle s) {
    const std::scoped_lock guard{mutex};
    static std::uint64_t last = 0;
    s->in = captures.emplace_back(std::make_shared<graph>());
    s->in->id = ++last;
    s->in->origin = s;
  }
  /// cudaStreamEndCapture; null where that fails: the capture was spoilt, or a stream that took part was not joined.
  std::shared_ptr<graph> end_capture(tutti::cuda::stream_handle s) {
    const std::scoped_lock guard{mutex};
    const auto g = s->in;
    std::set<std::size_t> before{s->tips.begin(), s->tips.end()};
    for (std::size_t i = g->nodes.size(); i-- > 0;)
      if (before.contains(i)) before.insert(g->nodes[i].after.begin(), g->nodes[i].after.end());
    bool joined = true;
    for (const auto& other : streams_)
      if (other->in == g) {
        for (const std::size_t tip : other->tips) joined &= before.contains(tip);
        other->in = nullptr;
        other->tips.clear();
      }
    g->ended = true;
    std::erase(captures, g);
    return joined && !g->spoilt ? g : nullptr;
  }
  /// cudaGraphLaunch.
  void replay(const std::shared_ptr<graph>& g, tutti::cuda::stream_handle s) {
    const std::scoped_lock guard{mutex};
    std::vector<work> todo;
    for (const auto& n : g->nodes) todo.push_back(n.make());
    resolve(s)->work.push_back([g, todo]() mutable {
      bool all = true;
      for (std::size_t i = 0; i < todo.size(); ++i) {
        bool ready = static_cast<bool>(todo[i]);
        for (const std::size_t a : g->nodes[i].after) ready &= !todo[a];
        if (ready && todo[i]()) todo[i] = nullptr;
        all &= !todo[i];
      }
      return all;
    });
    advance();
  }
  [[nodiscard]] bool captures_on(int device) const {
    for (const auto& g : captures)
      if (g->origin->device == device) return true;
    return false;
  }
  /// Under the mutex: a call that captures forbid threads that have not said otherwise.
  int unsafe() {
    if (captures.empty() || capture_mode == tutti::cuda::capture_mode::relaxed) return 0;
    for (const auto& g : captures) g->spoilt = true;
    ++misuses;
    return 900;
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
    std::size_t n = memory.size() + communicators + reductions + windows;
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
  std::map<int, int> bus_of;            ///< by rank, as if CUDA_VISIBLE_DEVICES gave devices other numbers
  std::size_t communicators = 0, reductions = 0, windows = 0;
  std::vector<std::shared_ptr<graph>> captures;  ///< that have begun and not ended
  std::set<tutti::nccl_feature> lacking;         ///< of NCCL
  int version = 22809;
  std::map<int, int> version_of;  ///< by rank, where ranks differ
  int polls_per_launch = 0;       ///< how often NCCL says "in progress" before a launch is in its stream
  bool dry = false;               ///< nothing is moved
  bool finalize_hangs = false;
  const char* last_error = "what the fake says";  ///< NCCL, when it is asked
  bool errors_stay = false;                       ///< of a lost peer, with a communicator that was revoked
  bool gate_open = true;                          ///< ncclCommAbort returns
  int inside = 0;                                 ///< threads in ncclCommAbort
  int misuses = 0;                                ///< calls that NCCL does not permit
  int questions = 0;                              ///< whether an event is over

 private:
  inline static machine* here_ = nullptr;
  int devices_;
  std::map<std::string, injection> injected_;
  std::vector<std::unique_ptr<CUstream_st>> streams_;
  std::vector<std::unique_ptr<CUevent_st>> events_;
  std::map<int, CUstream_st*> defaults_;
};

}  // namespace fake
