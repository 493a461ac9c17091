#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tutti/transport/messaging/channel.hpp>

#include "transport/drive.hpp"
#include "transport/memory_pipe.hpp"

// Two channels that are each other's peers, over pipes in memory.
namespace channel_pair {

using drive::flight;
using tutti::errc;
using tutti::status;
using tutti::detail::channel;
using tutti::detail::channel_base;
using tutti::detail::frame;

static_assert(tutti::byte_stream<drive::memory_pipe>);

inline constexpr std::size_t eager = channel_base::eager_limit;

/// A channel that can be used by a routine, as one peer of a mesh.
class end {
 public:
  end(drive::wire& out, drive::wire& in) : c{ready_, places_, out, in, manners} {}

  auto send(int, std::uint64_t tag, std::span<const std::byte> s) noexcept {
    struct sending : tutti::detail::transfer {
      sending(end& e, std::uint64_t t, std::span<const std::byte> bytes) noexcept
          : transfer(t, const_cast<std::byte*>(bytes.data()), bytes.size()) {
        e.begun(*this, e.c.send(*this));
      }
    };
    return sending{*this, tag, s};
  }
  auto recv(int, std::uint64_t tag, std::span<std::byte> s) noexcept {
    struct receiving : tutti::detail::transfer {
      receiving(end& e, std::uint64_t t, std::span<std::byte> bytes) noexcept
          : transfer(t, bytes.data(), bytes.size()) {
        e.begun(*this, e.c.recv(*this));
      }
    };
    return receiving{*this, tag, s};
  }

  /// As a transport does it: the first failure ends everything.
  status poll() {
    bool moved = false;
    if (failure.ok()) failure = c.progress(moved);
    if (!failure.ok()) c.fail(failure);
    ready_.run();
    return failure;
  }

  drive::pipe_manners manners;
  status failure{};

 private:
  void begun(tutti::detail::transfer& t, status s) noexcept {
    if (s.ok()) return;
    if (failure.ok()) failure = s;
    if (!t.finished()) ready_.complete(t, s);
  }
  tutti::detail::pending_list ready_;
  tutti::detail::early_places places_;

 public:
  channel<drive::memory_pipe> c;
};

struct pair {
  drive::wire to_b, to_a;
  end a{to_b, to_a}, b{to_a, to_b};
  drive::owner owner;

  flight send(end& e, std::uint64_t tag, std::span<const std::byte> s) { return {owner, drive::send(e, 0, tag, s)}; }
  flight recv(end& e, std::uint64_t tag, std::span<std::byte> s) { return {owner, drive::recv(e, 0, tag, s)}; }
  void poll(int times = 1) {
    for (int i = 0; i < times; ++i) {
      a.poll();
      b.poll();
    }
  }
  /// Polls until both are done, for a bounded time.
  bool finish(const flight& x, const flight& y) {
    for (int i = 0; i < 400000 && !(x.done() && y.done()); ++i) poll();
    return x.code() == errc::ok && y.code() == errc::ok;
  }
  void raw_to_b(const frame& f, std::span<const std::byte> payload = {}) {
    const auto head = f.encode();
    to_b.bytes.insert(to_b.bytes.end(), head.begin(), head.end());
    to_b.bytes.insert(to_b.bytes.end(), payload.begin(), payload.end());
  }
};

inline std::vector<std::byte> room(std::size_t bytes) { return std::vector<std::byte>(bytes); }

}  // namespace channel_pair
