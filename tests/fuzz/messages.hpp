#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>

#include <conformance/operands.hpp>
#include <fuzz/area.hpp>
#include <fuzz/collective_program.hpp>

namespace collective_program {

/// Element i of what `a` has for `b`.
template <class T>
T parcel(const step& s, std::size_t a, std::size_t b, std::size_t i) {
  return conformance::element_of<T>(i, s.salt * 64 + a * 8 + b);
}

/// Ranks send to each other, but for some; those of all steps have one of two tags, and keep their order.
template <class T>
std::function<void()> exchange(world_type& w, const step& s, std::size_t most) {
  struct message {
    std::size_t peer;
    std::shared_ptr<area<T>> data;
    std::shared_ptr<tutti::op> op;
  };
  const auto n = static_cast<std::size_t>(w.size()), me = static_cast<std::size_t>(w.rank());
  const auto tag = static_cast<std::uint32_t>(s.gaps % 2);
  auto in = std::make_shared<std::vector<message>>(), out = std::make_shared<std::vector<message>>();
  const auto make = [&](std::size_t offset, std::size_t from) {
    return std::make_shared<area<T>>(w, offset, std::min(most, s.lengths[from]), s.in_world_memory);
  };
  const auto sends = [&](std::size_t from, std::size_t to) {
    return from != to && (from * 5 + to * 3 + s.type) % 4 != 0;
  };
  const auto receive = [&] {
    for (std::size_t from = 0; from < n; ++from) {
      if (!sends(from, me)) continue;
      in->push_back({from, make(s.offset_in, from), nullptr});
      in->back().op = std::make_shared<tutti::op>(w.recv(in->back().data->span(), static_cast<int>(from), tag));
    }
  };
  if (s.backwards) receive();
  for (std::size_t to = 0; to < n; ++to) {
    if (!sends(me, to)) continue;
    out->push_back({to, make(s.offset_out, me), nullptr});
    const auto data = out->back().data->span();
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = parcel<T>(s, me, to, i);
    out->back().op = std::make_shared<tutti::op>(w.send(data, static_cast<int>(to), tag));
  }
  if (!s.backwards) receive();
  return [=] {
    for (message& m : *in) {
      m.op->wait();
      expect<T>("a message", m.data->span(), [&](std::size_t i) { return parcel<T>(s, m.peer, me, i); });
      m.data->check("a message");
    }
    for (message& m : *out) m.op->wait();
  };
}

/// All send to the root, which takes them as they come.
template <class T>
std::function<void()> gather_any(world_type& w, const step& s, std::size_t most) {
  const auto n = static_cast<std::size_t>(w.size()), me = static_cast<std::size_t>(w.rank());
  const auto root = static_cast<std::size_t>(s.root);
  const auto tag = static_cast<std::uint32_t>(1 + s.salt);
  const auto make = [&](std::size_t offset) {
    return std::make_shared<area<T>>(w, offset, std::min(most, s.count), s.in_world_memory);
  };
  if (me != root) {
    const auto data = make(s.offset_out);
    for (std::size_t i = 0; i < data->span().size(); ++i) data->span()[i] = parcel<T>(s, me, root, i);
    return [data, op = std::make_shared<tutti::op>(w.send(data->span(), s.root, tag))] { op->wait(); };
  }
  using taken = std::pair<std::shared_ptr<area<T>>, std::shared_ptr<tutti::basic_op<int>>>;
  auto all = std::make_shared<std::vector<taken>>();
  for (std::size_t k = 1; k < n; ++k) {
    const auto data = make(s.offset_in);
    all->emplace_back(data, std::make_shared<tutti::basic_op<int>>(w.recv_any(data->span(), tag)));
  }
  return [=] {
    std::set<int> from;
    for (auto& [data, op] : *all) {
      const int r = op->wait();
      if (r == s.root || !from.insert(r).second) throw std::runtime_error("a message came from nobody who sent one");
      expect<T>("a message of any rank", data->span(),
                [&](std::size_t i) { return parcel<T>(s, static_cast<std::size_t>(r), root, i); });
      data->check("a message of any rank");
    }
  };
}

}  // namespace collective_program
