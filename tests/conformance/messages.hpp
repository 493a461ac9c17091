#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/op.hpp>
#include <tutti/core/args.hpp>

#include <conformance/operands.hpp>
#include <conformance/report.hpp>

namespace conformance {

// Messages of up to 256 KiB travel at once, larger ones when their receiver is there.
inline const sizes message_bytes{0, 1, 100, 65537, 100000, 262144, 262145, 1 << 20};

inline std::vector<std::uint8_t> message(std::size_t bytes, int from, int to, std::uint64_t tag, std::uint64_t salt) {
  std::vector<std::uint8_t> m(bytes);
  const std::uint64_t seed =
      mix(salt + tag * 256 + static_cast<std::uint64_t>(from) * 16 + static_cast<std::uint64_t>(to));
  for (std::size_t i = 0; i < bytes; ++i)
    m[i] = static_cast<std::uint8_t>(seed >> (i % 7 * 8)) ^ static_cast<std::uint8_t>(i / 251);
  return m;
}

/// Everyone sends all sizes to everyone else, each with a tag of its own; received in another order than sent.
template <class World>
void check_tags_out_of_order(session<World>& s) {
  const int me = s.world.rank(), size = s.world.size();
  const std::uint64_t salt = s.salt();
  const std::size_t kinds = size > 4 ? 7 : std::size(message_bytes);
  std::vector<std::vector<std::uint8_t>> out;
  std::vector<tutti::op> sends;
  for (int to = 0; to < size; ++to)
    for (std::size_t k = 0; k < kinds && to != me; ++k) {
      out.push_back(message(message_bytes[k], me, to, k, salt));
      sends.push_back(s.world.send(out.back(), to, static_cast<std::uint32_t>(k)));
    }
  for (int away = 1; away < size; ++away) {
    const int from = (me + away) % size;
    for (std::size_t i = 0; i < kinds; ++i) {
      const std::size_t k = (i * 3 + kinds - 1) % kinds;  // neither count has the factor 3
      std::vector<std::uint8_t> in(message_bytes[k]);
      s.world.recv(in, from, static_cast<std::uint32_t>(k)).wait();
      which c = s.name("recv", in.size(), "uint8");
      c.note = "from rank " + std::to_string(from) + ", tag " + std::to_string(k);
      const auto wanted = message(in.size(), from, me, k, salt);
      expect_equal(c, std::span{in}, [&](std::size_t j) { return wanted[j]; });
    }
  }
  for (auto& o : sends) o.wait();
}

/// Elements of one type go once around.
template <class T, class World>
void check_send_recv(session<World>& s, std::size_t count) {
  const int me = s.world.rank(), size = s.world.size();
  if (size == 1) return;  // nobody sends to itself
  const int right = (me + 1) % size, left = (me + size - 1) % size;
  const std::uint64_t salt = s.salt();
  const auto from = [&](int rank) {
    return table<T>{count, [&](std::size_t i) { return element_of<T>(i, salt + static_cast<std::uint64_t>(rank)); }};
  };
  const guarded<T> out(count, from(me)), in(count);
  auto sending = s.world.send(out.span(), right);
  s.world.recv(in.span(), left).wait();
  sending.wait();
  const which c = s.name("recv", count, type_name<T>());
  expect_equal(c, in.span(), from(left));
  expect(in.intact() && out.intact(), c, "something beside the buffers was written");
}

/// Messages of one tag arrive in the order of their sends, small ones not before large ones.
template <class World>
void check_one_tag(session<World>& s, std::uint32_t tag) {
  const int me = s.world.rank(), size = s.world.size();
  if (size == 1) return;
  const std::uint64_t salt = s.salt();
  const int right = (me + 1) % size, left = (me + size - 1) % size;
  constexpr std::size_t lengths[] = {100000, 10, 0, 70000, 65536, 3};
  std::vector<std::vector<std::uint8_t>> out, in;
  std::vector<tutti::op> sends, receives;
  for (std::size_t k = 0; k < std::size(lengths); ++k) out.push_back(message(lengths[k], me, right, k, salt));
  for (std::size_t k = 0; k < std::size(lengths); ++k) in.emplace_back(lengths[k]);
  for (const auto& m : out) sends.push_back(s.world.send(m, right, tag));
  if (me % 2 == 0) s.world.barrier().wait();  // all is under way before the first receive, or the other way round
  for (auto& m : in) receives.push_back(s.world.recv(m, left, tag));
  if (me % 2 != 0) s.world.barrier().wait();
  for (std::size_t k = 0; k < in.size(); ++k) {
    receives[k].wait();
    which c = s.name("recv", in[k].size(), "uint8");
    c.note = "tag " + std::to_string(tag) + ", message " + std::to_string(k) + " of that tag";
    const auto wanted = message(lengths[k], left, me, k, salt);
    expect_equal(c, std::span{in[k]}, [&](std::size_t j) { return wanted[j]; });
  }
  for (auto& o : sends) o.wait();
}

/// Both ends of a pair send before they receive.
template <class World>
void check_exchange(session<World>& s, std::size_t bytes) {
  const int me = s.world.rank(), peer = me ^ 1;
  if (peer >= s.world.size()) return;
  const auto out = message(bytes, me, peer, 0, bytes);
  std::vector<std::uint8_t> in(bytes);
  auto sending = s.world.send(out, peer);
  auto receiving = s.world.recv(in, peer);
  sending.wait();
  receiving.wait();
  const auto wanted = message(bytes, peer, me, 0, bytes);
  expect_equal(s.name("recv", bytes, "uint8"), std::span{in}, [&](std::size_t j) { return wanted[j]; });
}

/// Messages of some ranks shift nothing for the others' collectives.
template <class World>
void check_messages_beside_collectives(session<World>& s) {
  using enum tutti::algorithm;
  const int me = s.world.rank();
  for (int round = 0; round < 3; ++round) {
    int word = me * 10 + round;
    if (s.world.size() > 1 && me == 0) s.world.send(std::span{&word, 1}, 1, 0xffffffffu).wait();
    if (me == 1) {
      s.world.recv(std::span{&word, 1}, 0, 0xffffffffu).wait();
      expect(word == round, s.name("recv", 1, "int32"), "got " + std::to_string(word));
    }
    for (const auto via : s.template algorithms<tutti::all_reduce_args>(
             {automatic, direct, ring, recursive_doubling, halving_doubling, hierarchical}, sizeof(int))) {
      std::vector<int> v(100, me + round);
      s.world.all_reduce(v, tutti::max, {.via = via}).wait();
      expect_equal(s.name("all_reduce", v.size(), "int32", via), std::span{v},
                   [&](std::size_t) { return s.world.size() - 1 + round; });
    }
  }
}

/// Everyone sends to everyone and receives from whoever is first, in sizes that travel at once and that do not.
template <class World>
void check_any_source(session<World>& s, std::size_t bytes) {
  const int me = s.world.rank(), size = s.world.size();
  if (size == 1) return;
  constexpr std::uint32_t rounds = 2;
  const auto tag = static_cast<std::uint32_t>(1000 + s.salt());
  std::vector<std::vector<std::uint8_t>> out;
  std::vector<tutti::op> sends;
  for (std::uint32_t k = 0; k < rounds; ++k)
    for (int to = 0; to < size; ++to) {
      if (to == me) continue;
      out.push_back(message(bytes, me, to, k, tag));
      sends.push_back(s.world.send(out.back(), to, tag));
    }
  std::vector<std::uint32_t> heard(s.size());
  for (std::uint32_t i = 0; i < rounds * static_cast<std::uint32_t>(size - 1); ++i) {
    std::vector<std::uint8_t> in(bytes);
    const int from = s.world.recv_any(in, tag).wait();
    which c = s.name("recv_any", bytes, "uint8");
    c.note = "from rank " + std::to_string(from);
    expect(from >= 0 && from < size && from != me, c, "no rank that could have sent it");
    const std::uint32_t k = heard[static_cast<std::size_t>(from)]++;
    expect(k < rounds, c, "more messages than were sent");
    const auto wanted = message(bytes, from, me, k, tag);
    expect_equal(c, std::span{in}, [&](std::size_t j) { return wanted[j]; });
  }
  for (auto& o : sends) o.wait();
}

template <class World>
void check_messages(session<World>& s) {
  for_each(every_dtype{}, [&]<class T>() {
    for (const std::size_t count : s.counts(every_count)) check_send_recv<T>(s, count);
  });
  check_messages_beside_collectives(s);
  check_tags_out_of_order(s);
  for (const std::uint32_t tag : {0u, 7u, 0xffffffffu}) check_one_tag(s, tag);
  for (const std::size_t bytes : s.counts(message_bytes)) check_exchange(s, bytes);
  for (const std::size_t bytes : s.counts({0, 10, 262144, 300000})) check_any_source(s, bytes);
}

}  // namespace conformance
