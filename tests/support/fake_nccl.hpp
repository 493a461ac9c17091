#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <support/fake_cuda.hpp>
#include <support/fake_numbers.hpp>
#include <tutti/backend/nccl_types.hpp>

namespace fake {

/// One call of NCCL on one rank: a part of a kernel.
struct part {
  enum class kind { all_reduce, reduce, reduce_scatter, broadcast, all_gather, send, recv } what;
  const void* in;
  void* out;
  std::size_t count;
  tutti::nccl_dtype type;
  int reduction = 0, root = 0;
  double factor = 1;
  int rank = 0;
  std::uint64_t sequence = 0;
  bool arrived = false, done = false;
};
using parts = std::vector<std::shared_ptr<part>>;

/// The ranks of a communicator, and who of them has arrived where.
struct clique {
  std::size_t size = 0;
  bool broken = false;  ///< a rank has aborted, whose buffers may be gone
  std::vector<ncclComm*> joined;
  std::map<std::uint64_t, parts> meetings;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<part>>> sent, received;
};

}  // namespace fake

struct ncclComm {
  std::shared_ptr<fake::clique> all;
  int rank = 0, device = 0;
  bool blocking = false, aborted = false, freed = false;
  tutti::nccl_result async = tutti::nccl_result::success;
  int polls = 0;
  bool holding = false;  ///< a launch that is still in progress
  fake::parts held;
  tutti::cuda::stream_handle held_for = nullptr;
  std::uint64_t sequence = 0;
  std::vector<double> factors;
};

namespace fake {

/// What NCCL computes of element i, in rank order; its means multiply first.
inline double folded(const parts& all, std::size_t i) {
  const auto t = all[0]->type;
  const auto kind = static_cast<tutti::nccl_reduction>(all[0]->reduction);
  const double n = static_cast<double>(all.size());
  double sum = 0;
  for (std::size_t r = 0; r < all.size(); ++r) {
    double x = load(t, all[r]->in, i);
    if (kind == tutti::nccl_reduction::op_avg && !is_integer(t)) x = rounded(t, x * rounded(t, 1 / n));
    if (all[r]->reduction > static_cast<int>(tutti::nccl_reduction::op_avg)) x = rounded(t, x * all[r]->factor);
    if (r == 0)
      sum = x;
    else if (kind == tutti::nccl_reduction::op_prod)
      sum = rounded(t, sum * x);
    else if (kind == tutti::nccl_reduction::op_max)
      sum = std::max(sum, x);
    else if (kind == tutti::nccl_reduction::op_min)
      sum = std::min(sum, x);
    else
      sum = rounded(t, sum + x);
  }
  return kind == tutti::nccl_reduction::op_avg && is_integer(t) ? sum / n : sum;
}

inline void execute(const parts& all) {
  const part& any = *all[0];
  const std::size_t width = bytes_of(any.type), n = all.size();
  const auto at = [](auto* p, std::size_t bytes) { return static_cast<std::byte*>(p) + bytes; };
  if (any.what == part::kind::broadcast) {
    const void* from = all[static_cast<std::size_t>(any.root)]->in;
    for (const auto& p : all) std::memmove(p->out, from, p->count * width);
  } else if (any.what == part::kind::all_gather) {
    for (const auto& to : all)
      for (std::size_t r = 0; r < n; ++r)
        std::memmove(at(to->out, r * any.count * width), all[r]->in, any.count * width);
  } else {
    std::vector<double> result(any.count * (any.what == part::kind::reduce_scatter ? n : 1));
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = folded(all, i);
    for (std::size_t r = 0; r < n; ++r) {
      if (any.what == part::kind::reduce && static_cast<int>(r) != any.root) continue;
      const std::size_t first = any.what == part::kind::reduce_scatter ? r * any.count : 0;
      for (std::size_t i = 0; i < any.count; ++i) store(any.type, all[r]->out, i, result[first + i]);
    }
  }
}

/// A part has come to the head of its rank's stream.
inline void arrive(clique& c, const std::shared_ptr<part>& p) {
  p->arrived = true;
  if (c.broken) return;
  const bool dry = machine::here().dry;
  if (p->what == part::kind::send || p->what == part::kind::recv) {
    const bool sends = p->what == part::kind::send;
    const std::pair way = sends ? std::pair{p->rank, p->root} : std::pair{p->root, p->rank};
    (sends ? c.sent : c.received)[way].push_back(p);
    auto &from = c.sent[way], &to = c.received[way];
    for (; !from.empty() && !to.empty(); from.pop_front(), to.pop_front()) {
      if (from.front()->count != to.front()->count) ++machine::here().misuses;
      if (!dry && from.front()->count == to.front()->count)
        std::memmove(to.front()->out, from.front()->in, to.front()->count * bytes_of(p->type));
      from.front()->done = to.front()->done = true;
    }
    return;
  }
  parts& all = c.meetings[p->sequence];
  all.push_back(p);
  if (all.size() != c.size) return;
  std::ranges::sort(all, {}, [](const auto& q) { return q->rank; });
  const bool alike = std::ranges::all_of(all, [&](const auto& q) {
    return q->what == all[0]->what && q->count == all[0]->count && q->type == all[0]->type && q->root == all[0]->root;
  });
  if (!alike) ++machine::here().misuses;
  if (alike && !dry) execute(all);
  for (const auto& q : all) q->done = true;
}

inline void enqueue(ncclComm* comm, const parts& together, tutti::cuda::stream_handle s) {
  machine::here().resolve(s)->work.push_back([comm, together] {
    if (comm->aborted) return true;
    for (const auto& p : together)
      if (!p->arrived) arrive(*comm->all, p);
    return std::ranges::all_of(together, [](const auto& p) { return p->done; });
  });
}

/// NCCL on that machine.
struct nccl {
  using cuda = fake::cuda;
  using result = tutti::nccl_result;
  using comm_handle = tutti::nccl_comm;
  using stream_handle = tutti::cuda::stream_handle;

  static result version(int& v) noexcept {
    return on("ncclGetVersion", [&](machine& m) {
      const auto own = m.version_of.find(rank);
      v = own == m.version_of.end() ? m.version : own->second;
    });
  }
  static result unique_id(tutti::nccl_unique_id& id) noexcept {
    return on("ncclGetUniqueId", [&](machine&) {
      static std::uint64_t last = 0;
      ++last;
      std::memcpy(id.bytes.data(), &last, sizeof last);
    });
  }
  static result init(comm_handle& made, int n, const tutti::nccl_unique_id& id, int me,
                     tutti::nccl_calls how) noexcept {
    const result r = on("ncclCommInitRankConfig", [&](machine& m) {
      static std::map<std::uint64_t, std::weak_ptr<clique>> cliques;
      static std::vector<std::unique_ptr<ncclComm>> all;  // never freed: a use after the end is seen, not a crash
      std::uint64_t key = 0;
      std::memcpy(&key, id.bytes.data(), sizeof key);
      auto c = cliques[key].lock();
      if (!c) cliques[key] = c = std::make_shared<clique>();
      c->size = static_cast<std::size_t>(n);
      made = all.emplace_back(std::make_unique<ncclComm>()).get();
      made->all = c;
      made->rank = me;
      made->device = current_device;
      made->blocking = how == tutti::nccl_calls::blocking;
      c->joined.push_back(made);
      ++m.communicators;
    });
    return r == result::success && how == tutti::nccl_calls::nonblocking ? result::in_progress : r;
  }
  static result async_error(comm_handle comm, result& r) noexcept {
    return on("ncclCommGetAsyncError", [&](machine& m) {
      if (comm->freed) ++m.misuses;
      if (comm->async != result::success) {
        r = comm->async;
      } else if (comm->all->joined.size() < comm->all->size || (comm->holding && --comm->polls > 0)) {
        r = result::in_progress;
      } else {
        if (std::exchange(comm->holding, false)) enqueue(comm, std::exchange(comm->held, {}), comm->held_for);
        r = result::success;
      }
    });
  }
  static result finalize(comm_handle comm) noexcept {
    bool hangs = false;
    const result r = on("ncclCommFinalize", [&](machine& m) {
      hangs = m.finalize_hangs;
      if (hangs) comm->async = result::in_progress;
    });
    return hangs ? result::in_progress : r;
  }
  static result destroy(comm_handle comm) noexcept {
    return on("ncclCommDestroy", [&](machine& m) { free(m, comm); });
  }
  static result abort(comm_handle comm) noexcept {
    machine& m = machine::here();
    std::unique_lock guard{m.mutex};
    ++m.inside;
    m.changed.wait(guard, [&] { return m.gate_open; });
    comm->aborted = comm->all->broken = true;
    free(m, comm);
    m.log.push_back({.what = "ncclCommAbort", .rank = comm->rank});
    m.advance();
    --m.inside;
    m.changed.notify_all();
    return result::success;
  }
  static const char* words(result r) noexcept {
    return r == result::remote ? "remote process exited or there was a network error" : "internal error";
  }
  static const char* last_error(comm_handle) noexcept { return "what the fake says"; }

  static result group_start() noexcept {
    return on("ncclGroupStart", [](machine&) { ++depth; });
  }
  static result group_end() noexcept {
    comm_handle comm = nullptr;
    bool held = false;
    const result r = on("ncclGroupEnd", [&](machine& m) {
      if (--depth > 0 || pending.empty()) return;
      m.log.push_back({.what = "launch", .rank = pending_comm->rank, .count = pending.size()});
      comm = pending_comm;
      held = launch(m, comm, std::exchange(pending, {}), pending_stream);
    });
    if (r != result::success) {
      depth = 0;
      pending.clear();
    }
    return held ? result::in_progress : r;
  }
  static result create_scaled_sum(tutti::nccl_reduction& made, void* factor, tutti::nccl_dtype t,
                                  comm_handle comm) noexcept {
    return on("ncclRedOpCreatePreMulSum", [&](machine& m) {
      comm->factors.push_back(load(t, factor, 0));
      made = static_cast<tutti::nccl_reduction>(static_cast<int>(tutti::nccl_reduction::op_avg) + comm->factors.size());
      ++m.reductions;
    });
  }
  static result destroy_reduction(tutti::nccl_reduction, comm_handle) noexcept {
    return on("ncclRedOpDestroy", [](machine& m) { --m.reductions; });
  }

  static result all_reduce(const void* in, void* out, std::size_t count, tutti::nccl_dtype t,
                           tutti::nccl_reduction with, comm_handle comm, stream_handle s) noexcept {
    return give("ncclAllReduce", {part::kind::all_reduce, in, out, count, t, static_cast<int>(with)}, comm, s);
  }
  static result reduce(const void* in, void* out, std::size_t count, tutti::nccl_dtype t, tutti::nccl_reduction with,
                       int root, comm_handle comm, stream_handle s) noexcept {
    return give("ncclReduce", {part::kind::reduce, in, out, count, t, static_cast<int>(with), root}, comm, s);
  }
  static result reduce_scatter(const void* in, void* out, std::size_t count, tutti::nccl_dtype t,
                               tutti::nccl_reduction with, comm_handle comm, stream_handle s) noexcept {
    return give("ncclReduceScatter", {part::kind::reduce_scatter, in, out, count, t, static_cast<int>(with)}, comm, s);
  }
  static result broadcast(const void* in, void* out, std::size_t count, tutti::nccl_dtype t, int root, comm_handle comm,
                          stream_handle s) noexcept {
    return give("ncclBroadcast", {part::kind::broadcast, in, out, count, t, 0, root}, comm, s);
  }
  static result all_gather(const void* in, void* out, std::size_t count, tutti::nccl_dtype t, comm_handle comm,
                           stream_handle s) noexcept {
    return give("ncclAllGather", {part::kind::all_gather, in, out, count, t}, comm, s);
  }
  static result send(const void* in, std::size_t count, tutti::nccl_dtype t, int peer, comm_handle comm,
                     stream_handle s) noexcept {
    return give("ncclSend", {part::kind::send, in, nullptr, count, t, 0, peer}, comm, s);
  }
  static result recv(void* out, std::size_t count, tutti::nccl_dtype t, int peer, comm_handle comm,
                     stream_handle s) noexcept {
    return give("ncclRecv", {part::kind::recv, nullptr, out, count, t, 0, peer}, comm, s);
  }

 private:
  inline static thread_local int depth = 0;
  inline static thread_local parts pending;
  inline static thread_local comm_handle pending_comm = nullptr;
  inline static thread_local stream_handle pending_stream = nullptr;

  static void free(machine& m, comm_handle comm) {
    if (std::exchange(comm->freed, true)) ++m.misuses;
    --m.communicators;
  }
  /// True if it is not in the stream yet.
  static bool launch(machine& m, comm_handle comm, parts together, stream_handle s) {
    if (comm->blocking || m.polls_per_launch == 0) {
      enqueue(comm, together, s);
      return false;
    }
    comm->polls = m.polls_per_launch;
    comm->holding = true;
    comm->held = std::move(together);
    comm->held_for = s;
    return true;
  }
  static result give(const char* name, part p, comm_handle comm, stream_handle s) {
    bool held = false;
    const result r = on(name, [&](machine& m) {
      if (comm->freed || comm->holding) ++m.misuses;  // NCCL is busy, or has gone
      p.rank = comm->rank;
      if (p.what != part::kind::send && p.what != part::kind::recv) p.sequence = ++comm->sequence;
      if (p.reduction > static_cast<int>(tutti::nccl_reduction::op_avg))
        p.factor = comm->factors[static_cast<std::size_t>(p.reduction) -
                                 static_cast<std::size_t>(tutti::nccl_reduction::op_avg) - 1];
      m.log.push_back({name, comm->rank, p.count, static_cast<int>(p.type), p.reduction, p.root, p.in, p.out});
      auto shared = std::make_shared<part>(p);
      if (depth > 0) {
        pending.push_back(std::move(shared));
        pending_comm = comm;
        pending_stream = s;
      } else {
        held = launch(m, comm, {std::move(shared)}, s);
      }
    });
    return held ? result::in_progress : r;
  }
  template <class F>
  static result on(const char* name, F f) noexcept {
    machine& m = machine::here();
    const std::scoped_lock guard{m.mutex};
    if (const int code = m.verdict(name)) return static_cast<result>(code);
    f(m);
    m.advance();
    return result::success;
  }
};
static_assert(tutti::nccl_functions<nccl>);

}  // namespace fake
