#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include <tutti/algo/hierarchical/node_map.hpp>
#include <tutti/algo/mismatch/signature.hpp>
#include <tutti/algo/shm/group/group.hpp>
#include <tutti/algo/shm/group/ticket_lock.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/transport/messaging/group_link.hpp>

namespace tutti::algo {

/// Shared memory of one node's ranks in a group that spans several nodes. They form a group of their own with two
/// shm groups: `up` for the rounds before a call goes to other nodes, `down` for those after it has come back, so that
/// the next call can use `up` meanwhile. Collectives whose rounds are all at one end use one shm group. Calls use both
/// in order of issue.
class node_group {
 public:
  struct side {
    ticket_lock order;  // of calls; each takes several tickets of the shm group
    shm_group place;
    std::vector<std::size_t> counts, offsets;  // of the blocks of the call that has its turn
  };

  node_group(const group& all, node_map where)
      : map(std::move(where)), members_{all.context, map.place, static_cast<int>(map.here.size()), {}} {
    for (const int r : map.here) members_.members.push_back(all.world_rank(r));
    for (side* s : {&up, &down}) {
      s->counts.resize(map.here.size());
      s->offsets.resize(map.here.size());
    }
  }

  [[nodiscard]] int size() const noexcept { return members_.size; }

  /// Returns a link of this node's ranks for the collectives that a call runs inside. These have no sequence number:
  /// the shm group compares their order and lengths, but only begin() records a call by name.
  template <transport T>
  [[nodiscard]] group_link<T> inside(const group_link<T>& whole) const noexcept {
    return {whole.link(), members_, 0};
  }

  /// Begins `call` on one shm group; all ranks of the node must do so. Does nothing if this rank is alone on its node.
  template <mapped_transport T>
  routine begin(group_link<T> whole, side& s, call_signature call) {
    if (size() == 1) co_return;
    if (!s.place.is_open())
      co_await s.place.open(group_link<T>{whole.link(), members_, whole.sequence(), whole.call()});
    s.place.begin(call);
  }

  template <class F>
  void for_each_shm_group(F f) noexcept {
    f(up.place);
    f(down.place);
  }

  const node_map map;
  side up, down;

 private:
  group members_;
};

}  // namespace tutti::algo
