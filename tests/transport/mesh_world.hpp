#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include <tutti/transport/messaging/call_log.hpp>
#include <tutti/transport/messaging/mesh.hpp>

#include "transport/drive.hpp"
#include "transport/memory_pipe.hpp"

// Meshes that are each other's peers, over pipes in memory.
namespace mesh_world {

using drive::flight;
using tutti::status;

inline constexpr std::size_t eager = tutti::detail::channel_base::eager_limit;

class rank_of_mesh : public tutti::mesh<drive::memory_pipe> {
 public:
  using mesh::mesh;
  using mesh::note_call;
  using mesh::still_needs;
  void note_call(const tutti::call_log::entry& c) noexcept {
    mesh::note_call(c, [](std::uint64_t) { return true; });
  }
  void attach(int peer, drive::wire& out, drive::wire& in) { connect(peer, out, in, manners); }

  bool poll() noexcept {
    return poll_channels([this](const status& s) { abort(s); });
  }
  void abort(status why) noexcept {
    if (!fail_all(why)) return;
    for (int p = 0; p < size(); ++p)
      if (channel(p)) channel(p)->say(tutti::detail::frame::abort_with(why));
  }
  [[nodiscard]] int waiting_for(const tutti::routine::promise_type* work) const noexcept {
    return channel_waits_for(work);
  }

  drive::pipe_manners manners;
};

class world {
 public:
  explicit world(int n) : wires_(static_cast<std::size_t>(n * n)) {
    for (int r = 0; r < n; ++r) ranks_.push_back(std::make_unique<rank_of_mesh>(r, n));
    for (int r = 0; r < n; ++r)
      for (int p = 0; p < n; ++p)
        if (r != p) at(r).attach(p, wire(r, p), wire(p, r));
  }
  rank_of_mesh& at(int r) { return *ranks_[static_cast<std::size_t>(r)]; }
  drive::wire& wire(int from, int to) {
    return wires_[static_cast<std::size_t>(from) * ranks_.size() + static_cast<std::size_t>(to)];
  }
  void poll(int times = 1) {
    for (int i = 0; i < times; ++i)
      for (auto& r : ranks_) r->poll();
  }
  std::unique_ptr<flight> start(int rank, tutti::routine&& work) {
    owner.on_failure = [this, rank](status why) { at(rank).abort(why); };
    return std::make_unique<flight>(owner, std::move(work));
  }

  drive::owner owner;

 private:
  std::deque<drive::wire> wires_;
  std::vector<std::unique_ptr<rank_of_mesh>> ranks_;
};

}  // namespace mesh_world
