#pragma once
#include <cstddef>
#include <utility>
#include <vector>

#include <tutti/algo/board.hpp>
#include <tutti/algo/called.hpp>
#include <tutti/algo/machine_map.hpp>
#include <tutti/algo/turnstile.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/transport/lane.hpp>

namespace tutti::algo {

/// What the ranks of one machine share in a group that spans several. They are a group of their own, and meet on one of
/// two boards before a call goes to other machines (`up`), and on the other after it has come back (`down`): so the
/// next call can be on its way up meanwhile. Those that do all inside at one end of their way use one. Calls have their
/// turn on both in the order of their issue.
class machine_memory {
 public:
  struct side {
    turnstile order;  // of calls, each of which takes several turns on the board
    board place;
    std::vector<std::size_t> counts, offsets;  // of the blocks of the call that has its turn
  };

  machine_memory(const group& all, machine_map where)
      : map(std::move(where)), members_{all.context, map.place, static_cast<int>(map.here.size()), {}} {
    for (const int r : map.here) members_.members.push_back(all.world_rank(r));
    for (side* s : {&up, &down}) {
      s->counts.resize(map.here.size());
      s->offsets.resize(map.here.size());
    }
  }

  [[nodiscard]] int size() const noexcept { return members_.size; }

  /// The ranks of this machine as the link of what a call does inside. Of its steps the board tells in order and
  /// length, but not by name: they have no number, and only begin() shows a call.
  template <transport T>
  [[nodiscard]] lane<T> inside(const lane<T>& whole) const noexcept {
    return {whole.link(), members_, 0};
  }

  /// Begins `call` on one side, as all of this machine do; nothing where this rank is alone.
  template <mapped_transport T>
  routine begin(lane<T> whole, side& s, called call) {
    if (size() == 1) co_return;
    if (!s.place.is_open()) co_await s.place.open(lane<T>{whole.link(), members_, whole.sequence(), whole.call()});
    s.place.begin(call);
  }

  template <class F>
  void for_each_board(F f) noexcept {
    f(up.place);
    f(down.place);
  }

  const machine_map map;
  side up, down;

 private:
  group members_;
};

}  // namespace tutti::algo
