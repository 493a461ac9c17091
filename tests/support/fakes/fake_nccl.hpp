#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include <support/fakes/fake_collectives.hpp>
#include <support/fakes/fake_cuda.hpp>
#include <tutti/backend/nccl/types.hpp>

namespace fake {

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
      static_cast<void>(m.unsafe());  // cudaFree(nullptr), on the caller's thread
      static std::map<std::uint64_t, std::weak_ptr<clique>> cliques;
      std::uint64_t key = 0;
      std::memcpy(&key, id.bytes.data(), sizeof key);
      auto c = cliques[key].lock();
      if (!c) cliques[key] = c = std::make_shared<clique>();
      made = member(m, c, n, me, how);
    });
    return r == result::success && how == tutti::nccl_calls::nonblocking ? result::in_progress : r;
  }
  static result async_error(comm_handle comm, result& r) noexcept {
    return on("ncclCommGetAsyncError", [&](machine& m) {
      if (comm->freed) ++m.misuses;
      if (comm->working == 0 && comm->late) std::exchange(comm->late, nullptr)();
      if (comm->working > 0) {
        --comm->working;
        r = result::in_progress;
      } else if (comm->child_slot) {
        const clique& c = *comm->child->all;
        r = c.joined.size() < c.size ? result::in_progress : result::success;
        if (r == result::success) *std::exchange(comm->child_slot, nullptr) = comm->child;
      } else if (comm->async != result::success) {
        r = comm->async;
      } else if (comm->all->joined.size() < comm->all->size || (comm->holding && --comm->polls > 0)) {
        r = result::in_progress;
      } else {
        if (std::exchange(comm->holding, false)) enqueue(comm, std::exchange(comm->held, {}), comm->held_for);
        r = result::success;
      }
    });
  }
  static bool has(tutti::nccl_feature f) noexcept { return !machine::here().lacking.contains(f); }
  static result revoke(comm_handle comm) noexcept {
    const result r = on("ncclCommRevoke", [&](machine& m) {
      if (comm->freed || comm->stopped) ++m.misuses;
      if (comm->holding || comm->spoilt) ++m.misuses;  // NCCL frees the launch, and goes on with it when it is asked
      comm->stopped = comm->all->broken = true;
      if (m.errors_stay) comm->async = result::remote;
      comm->holding = false;
      comm->working = comm->blocking ? 0 : 2;
      m.log.push_back({.what = "ncclCommRevoke", .rank = comm->rank});
    });
    return r == result::success && !comm->blocking ? result::in_progress : r;
  }
  /// As the real one, it says success while it has only begun, where calls do not block.
  static result shrink(comm_handle comm, int* dead, int n, comm_handle& made, tutti::nccl_calls how) noexcept {
    if (comm->async != result::success) return comm->async;
    return on("ncclCommShrink", [&](machine& m) {
      static_cast<void>(m.unsafe());
      if (comm->freed || n == 0 || std::find(dead, dead + n, comm->rank) != dead + n) ++m.misuses;
      comm->stopped = comm->all->broken = true;
      made = nullptr;
      std::vector<int> gone(dead, dead + n);
      auto c = comm->all->without[gone].lock();
      if (!c) comm->all->without[gone] = c = std::make_shared<clique>();
      const auto before = std::ranges::count_if(gone, [&](int d) { return d < comm->rank; });
      comm->child = member(m, c, static_cast<int>(comm->all->size) - n, comm->rank - static_cast<int>(before), how);
      if (comm->blocking)
        made = comm->child;
      else
        comm->child_slot = &made;
      m.log.push_back({.what = "ncclCommShrink", .rank = comm->rank, .count = static_cast<std::size_t>(n)});
    });
  }
  static result finalize(comm_handle comm) noexcept {
    bool hangs = false;
    const result r = on("ncclCommFinalize", [&](machine& m) {
      static_cast<void>(m.unsafe());
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
    m.reductions -= std::exchange(comm->reductions, 0);
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
  static const char* last_error(comm_handle) noexcept { return machine::here().last_error; }

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
      ++m.reductions, ++comm->reductions;
    });
  }
  static result destroy_reduction(tutti::nccl_reduction, comm_handle comm) noexcept {
    return on("ncclRedOpDestroy", [&](machine& m) { --m.reductions, --comm->reductions; });
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
  static result all_to_all(const void* in, void* out, std::size_t count, tutti::nccl_dtype t, comm_handle comm,
                           stream_handle s) noexcept {
    parts p;
    for (int r = 0; r < static_cast<int>(comm->all->size); ++r) {
      const std::size_t first = static_cast<std::size_t>(r) * count * bytes_of(t);
      p.push_back(message(part::kind::send, in, first, count, t, r));
      p.push_back(message(part::kind::recv, out, first, count, t, r));
    }
    return give_all("ncclAlltoAll", p, comm, s);
  }
  static result gather(const void* in, void* out, std::size_t count, tutti::nccl_dtype t, int root, comm_handle comm,
                       stream_handle s) noexcept {
    parts p{message(part::kind::send, in, 0, count, t, root)};
    for (int r = 0; comm->rank == root && r < static_cast<int>(comm->all->size); ++r)
      p.push_back(message(part::kind::recv, out, static_cast<std::size_t>(r) * count * bytes_of(t), count, t, r));
    return give_all("ncclGather", p, comm, s);
  }
  static result scatter(const void* in, void* out, std::size_t count, tutti::nccl_dtype t, int root, comm_handle comm,
                        stream_handle s) noexcept {
    parts p{message(part::kind::recv, out, 0, count, t, root)};
    for (int r = 0; comm->rank == root && r < static_cast<int>(comm->all->size); ++r)
      p.push_back(message(part::kind::send, in, static_cast<std::size_t>(r) * count * bytes_of(t), count, t, r));
    return give_all("ncclScatter", p, comm, s);
  }
  static result allocate(void*& p, std::size_t bytes) noexcept {
    return on("ncclMemAlloc", [&](machine& m) {
      m.memory.insert(p = ::operator new(bytes));
      m.log.push_back({.what = "ncclMemAlloc", .rank = rank, .count = bytes, .out = p});
    });
  }
  static result deallocate(void* p) noexcept {
    return on("ncclMemFree", [&](machine& m) {
      m.log.push_back({.what = "ncclMemFree", .out = p});
      if (m.memory.erase(p) != 0)
        ::operator delete(p);
      else
        ++m.misuses;
    });
  }
  /// As shrink(). What an injection of "a window" says comes when that is over, as 2.28.9 says what it meets.
  static result register_window(comm_handle comm, void* p, std::size_t bytes, tutti::nccl_window& w) noexcept {
    return on("ncclCommWindowRegister", [&](machine& m) {
      static_cast<void>(m.unsafe());
      if (comm->freed || comm->holding || comm->working > 0) ++m.misuses;
      m.log.push_back({.what = "ncclCommWindowRegister", .rank = comm->rank, .count = bytes, .out = p});
      if (const auto refusal = static_cast<result>(m.verdict("a window")); refusal != result::success)
        comm->late = [comm, refusal] { comm->async = refusal; };
      else
        ++m.windows, ++comm->windows, comm->late = [&w, p] { w = p; };
      comm->working = comm->blocking ? 0 : 2;
      if (comm->blocking) std::exchange(comm->late, nullptr)();
    });
  }
  static result deregister_window(comm_handle comm, tutti::nccl_window w) noexcept {
    return on("ncclCommWindowDeregister", [&](machine& m) {
      static_cast<void>(m.unsafe());
      if (comm->freed || comm->holding || comm->working > 0) ++m.misuses;
      --m.windows, --comm->windows;
      m.log.push_back({.what = "ncclCommWindowDeregister", .rank = comm->rank, .out = w});
      comm->working = comm->blocking ? 0 : 1;
    });
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
    static_cast<void>(m.unsafe());
    if (std::exchange(comm->freed, true)) ++m.misuses;
    --m.communicators;
    m.windows -= std::exchange(comm->windows, 0);
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
  static comm_handle member(machine& m, const std::shared_ptr<clique>& c, int n, int me, tutti::nccl_calls how) {
    static std::vector<std::unique_ptr<ncclComm>> all;  // never freed: a use after the end is seen, not a crash
    c->size = static_cast<std::size_t>(n);
    ncclComm* const made = all.emplace_back(std::make_unique<ncclComm>()).get();
    made->all = c;
    made->rank = me;
    made->device = current_device;
    made->blocking = how == tutti::nccl_calls::blocking;
    c->joined.push_back(made);
    ++m.communicators;
    return made;
  }
  template <class Void>
  static std::shared_ptr<part> message(part::kind what, Void* data, std::size_t first, std::size_t count,
                                       tutti::nccl_dtype t, int peer) {
    part p{what, nullptr, nullptr, count, t, 0, peer};
    if constexpr (std::is_const_v<Void>)
      p.in = static_cast<const std::byte*>(data) + first;
    else
      p.out = static_cast<std::byte*>(data) + first;
    return std::make_shared<part>(p);
  }
  static result give(const char* name, const part& p, comm_handle comm, stream_handle s) {
    return give_all(name, {std::make_shared<part>(p)}, comm, s);
  }
  static result give_all(const char* name, const parts& all, comm_handle comm, stream_handle s) {
    bool held = false, spoilt = false;
    const result r = on(name, [&](machine& m) {
      if (comm->freed || comm->holding || comm->working > 0) ++m.misuses;       // NCCL is busy, or has gone
      if (comm->all->size == 1 && current_device != comm->device) ++m.misuses;  // where it launches its kernel
      const CUstream_st* const to = m.resolve(s);
      spoilt = to->in && to->in->spoilt;
      if (!pending.empty() && m.resolve(pending_stream)->in != to->in) ++m.misuses;  // half of a launch captured
      for (const auto& p : all) {
        p->rank = comm->rank;
        if (!is_message(*p)) p->sequence = ++comm->sequence;
        if (p->reduction > static_cast<int>(tutti::nccl_reduction::op_avg))
          p->factor = comm->factors[static_cast<std::size_t>(p->reduction) -
                                    static_cast<std::size_t>(tutti::nccl_reduction::op_avg) - 1];
      }
      const part& p = *all.front();
      m.log.push_back({name, comm->rank, p.count, static_cast<int>(p.type), p.reduction, p.root, p.in, p.out});
      if (depth > 0) {
        pending.insert(pending.end(), all.begin(), all.end());
        pending_comm = comm;
        pending_stream = s;
      } else {
        held = launch(m, comm, all, s);
      }
    });
    comm->spoilt |= r != result::success;
    if (spoilt) return result::unhandled_cuda;
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
