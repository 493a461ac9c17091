#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/core/args.hpp>

#include <conformance/operands.hpp>
#include <conformance/report.hpp>

namespace conformance {

/// The sum of world ranks over a group, every way there is, and a message around it.
template <class World, class Group>
void check_group(session<World>& s, Group& group, const std::vector<int>& members, const std::string& note) {
  using enum tutti::algorithm;
  which c = s.name("split");
  c.note = note;
  expect(group.size() == static_cast<int>(members.size()), c,
         "the group has " + std::to_string(group.size()) + " ranks");
  const auto me = static_cast<std::size_t>(group.rank());
  expect(members[me] == s.world.rank(), c, "this rank became " + std::to_string(group.rank()));
  int sum = 0;
  for (const int m : members) sum += m;
  for (const auto via : s.template algorithms<tutti::all_reduce_args>(
           {automatic, direct, ring, recursive_doubling, halving_doubling}, sizeof(int)))
    for (const std::size_t count : s.counts({1, 1000, 40000})) {
      std::vector<int> v(count, s.world.rank());
      group.all_reduce(v, tutti::sum, {.via = via}).wait();
      c = s.name("all_reduce", count, "int32", via);
      c.note = note;
      expect_equal(c, std::span{v}, [&](std::size_t) { return sum; });
    }
  std::vector<int> all(members.size());
  const int mine = s.world.rank();
  group.all_gather(std::span{&mine, 1}, all).wait();
  expect_equal(c, std::span{all}, [&](std::size_t i) { return members[i]; });
  for (int root = 0; root < group.size(); ++root) {
    std::string text = std::to_string(mine);
    group.broadcast(text, root).wait();
    expect(text == std::to_string(members[static_cast<std::size_t>(root)]), c,
           "root " + std::to_string(root) + ": " + text);
  }
  group.barrier().wait();
  if (group.size() == 1) return;
  const int right = (group.rank() + 1) % group.size(), left = (group.rank() + group.size() - 1) % group.size();
  int got = -1;
  auto sending = group.send(std::span{&mine, 1}, right);
  group.recv(std::span{&got, 1}, left).wait();
  sending.wait();
  expect(got == members[static_cast<std::size_t>(left)], c, "the message came from another rank");
}

template <class World>
void check_groups(session<World>& s) {
  const int rank = s.world.rank(), size = s.world.size();
  std::vector<int> everyone, backwards, alike;
  for (int r = 0; r < size; ++r) {
    everyone.push_back(r);
    backwards.insert(backwards.begin(), r);
    if (r % 2 == rank % 2) alike.push_back(r);
  }
  auto parity = s.world.split(rank % 2);
  check_group(s, parity, alike, "by parity");
  auto reversed = s.world.split(0, -rank);
  check_group(s, reversed, backwards, "in reverse order");
  auto alone = s.world.split(rank);
  check_group(s, alone, {rank}, "everyone alone");
  auto copy = s.world.split(0);
  check_group(s, copy, everyone, "a copy");

  // A group of a group; the parent is still the parent.
  std::vector<int> quarter;
  for (const int r : alike)
    if (r / 2 % 2 == rank / 2 % 2) quarter.push_back(r);
  auto nested = parity.split(rank / 2 % 2);
  check_group(s, nested, quarter, "nested");
  check_group(s, parity, alike, "by parity, after a split of it");

  // Several at once: their messages do not mix, and neither do their places in shared memory.
  for (const std::size_t count : s.counts({10, 30000})) {
    std::vector<std::vector<int>> data(6, std::vector<int>(count, rank));
    std::vector<tutti::op> ops;
    ops.push_back(s.world.all_reduce(data[0]));
    ops.push_back(parity.all_reduce(data[1]));
    ops.push_back(copy.all_reduce(data[2], tutti::max, {.via = tutti::algorithm::ring}));
    ops.push_back(reversed.all_reduce(data[3], tutti::min));
    ops.push_back(s.world.all_reduce(data[4], tutti::max, {.via = tutti::algorithm::ring}));
    ops.push_back(nested.all_reduce(data[5]));
    while (!ops.empty()) {
      ops.back().wait();
      ops.pop_back();
    }
    int even = 0, near = 0;
    for (const int r : alike) even += r;
    for (const int r : quarter) near += r;
    const int wanted[] = {size * (size - 1) / 2, even, size - 1, 0, size - 1, near};
    for (std::size_t i = 0; i < data.size(); ++i) {
      which c = s.name("all_reduce", count, "int32");
      c.note = "operation " + std::to_string(i) + " of six in six groups at once";
      expect_equal(c, std::span{data[i]}, [&](std::size_t) { return wanted[i]; });
    }
  }
  const auto moved = std::move(parity);
  expect(moved.size() == static_cast<int>(alike.size()), s.name("split"), "the group changed when it was moved");
}

}  // namespace conformance
