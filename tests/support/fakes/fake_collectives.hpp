#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <support/fakes/fake_cuda.hpp>
#include <support/fakes/fake_numbers.hpp>
#include <tutti/backend/nccl/types.hpp>

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
  bool broken = false;                                        ///< a rank has aborted, whose buffers may be gone
  std::map<std::vector<int>, std::weak_ptr<clique>> without;  ///< what it was shrunk to
  std::vector<ncclComm*> joined;
  std::map<std::uint64_t, parts> calls;
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<part>>> sent, received;
};

}  // namespace fake

struct ncclComm {
  std::shared_ptr<fake::clique> all;
  int rank = 0, device = 0;
  bool blocking = false, aborted = false, freed = false;
  tutti::nccl_result async = tutti::nccl_result::success;
  int polls = 0;
  bool holding = false;        ///< a launch that is still in progress
  int working = 0;             ///< how often it still says "in progress" of a call that is no launch
  bool stopped = false;        ///< revoked: nothing is in flight any more
  bool spoilt = false;         ///< a launch has ended in an error
  std::function<void()> late;  ///< what it writes when that call is over
  ncclComm* child = nullptr;
  ncclComm** child_slot = nullptr;
  fake::parts held;
  tutti::cuda::stream_handle held_for = nullptr;
  std::uint64_t sequence = 0;
  std::vector<double> factors;
  std::size_t windows = 0, reductions = 0;
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
    const bool product = any.reduction > static_cast<int>(tutti::nccl_reduction::op_avg);
    const bool loses = n == 1 && product && machine::here().version < 22907;
    const std::size_t written = loses ? written_alone(any.count, any.type) : any.count;
    for (std::size_t r = 0; r < n; ++r) {
      if (any.what == part::kind::reduce && static_cast<int>(r) != any.root) continue;
      const std::size_t first = any.what == part::kind::reduce_scatter ? r * any.count : 0;
      for (std::size_t i = 0; i < written; ++i) store(any.type, all[r]->out, i, result[first + i]);
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
  parts& all = c.calls[p->sequence];
  all.push_back(p);
  if (all.size() != c.size) return;
  std::ranges::sort(all, {}, [](const auto& q) { return q->rank; });
  const bool same = std::ranges::all_of(all, [&](const auto& q) {
    return q->what == all[0]->what && q->count == all[0]->count && q->type == all[0]->type && q->root == all[0]->root;
  });
  if (!same) ++machine::here().misuses;
  if (same && !dry) execute(all);
  for (const auto& q : all) q->done = true;
}

inline work kernel(ncclComm* comm, const parts& together) {
  return [comm, together] {
    if (comm->aborted || comm->stopped) return true;
    for (const auto& p : together)
      if (!p->arrived) arrive(*comm->all, p);
    return std::ranges::all_of(together, [](const auto& p) { return p->done; });
  };
}
inline bool is_message(const part& p) { return p.what == part::kind::send || p.what == part::kind::recv; }

/// What a graph holds is met by the others when it is launched.
inline void enqueue(ncclComm* comm, const parts& together, tutti::cuda::stream_handle s) {
  CUstream_st* const to = machine::here().resolve(s);
  if (!to->in) return to->work.push_back(kernel(comm, together));
  machine::here().give(to, [comm, together] {
    parts fresh;
    for (const auto& p : together) {
      fresh.push_back(std::make_shared<part>(*p));
      if (!is_message(*p)) fresh.back()->sequence = ++comm->sequence;
    }
    return kernel(comm, fresh);
  });
}

}  // namespace fake
