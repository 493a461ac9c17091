#pragma once
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/async/op_state.hpp>
#include <tutti/async/routine.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/messaging/link_core.hpp>

// Drives transports without a communicator.

namespace drive {

using namespace std::chrono_literals;

struct owner final : tutti::op_owner {
  tutti::engine home;
  std::function<void(tutti::status)> on_failure;  // under the engine's lock, as a backend's abort is
  void release(tutti::op_state&) noexcept override {}
  void failed(tutti::status& why) noexcept override {
    if (on_failure) on_failure(why);
  }
  tutti::error describe(const tutti::op_state& s) const override { return {s.result, "an operation of a test"}; }
  tutti::engine& engine() noexcept override { return home; }
};

/// One routine and what became of it. A test that fails may drop it in flight: its slot is leaked then.
class flight {
 public:
  flight(owner& o, tutti::routine&& work) : state_(std::make_unique<tutti::op_state>()) {
    state_->owner = &o;
    state_->word = tutti::op_state::in_flight;
    std::move(work).start(*state_);
  }
  flight(const flight&) = delete;
  ~flight() {
    if (!done()) static_cast<void>(state_.release());
  }
  [[nodiscard]] bool done() const noexcept { return state_->done(); }
  [[nodiscard]] tutti::status result() const noexcept { return state_->result; }
  /// How it ended; a code that no test expects while it is in flight.
  [[nodiscard]] tutti::errc code() const noexcept { return done() ? result().code : static_cast<tutti::errc>(9999); }
  [[nodiscard]] const tutti::routine::promise_type* work() const noexcept {
    return static_cast<const tutti::routine::promise_type*>(state_->work);
  }

 private:
  std::unique_ptr<tutti::op_state> state_;
};

template <class Link>
tutti::routine send(Link& link, int peer, std::uint64_t tag, std::span<const std::byte> bytes) {
  co_await link.send(peer, tag, bytes);
}
template <class Link>
tutti::routine recv(Link& link, int peer, std::uint64_t tag, std::span<std::byte> bytes) {
  co_await link.recv(peer, tag, bytes);
}

/// Bytes that tell from where to where they were sent.
inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> out(bytes);
  std::uint64_t x = seed * 0x9e3779b97f4a7c15U + 1;
  for (std::byte& b : out) {
    x = x * 6364136223846793005U + 1442695040888963407U;
    b = static_cast<std::byte>(x >> 56);
  }
  return out;
}

inline std::vector<std::byte> bytes_of(const std::string& text) {
  std::vector<std::byte> out(text.size());
  std::transform(text.begin(), text.end(), out.begin(), [](char c) { return static_cast<std::byte>(c); });
  return out;
}

template <class Transport>
class source final : public tutti::progress_source {
 public:
  explicit source(Transport& t) : transport_(&t) {}
  bool poll() noexcept override { return transport_->poll(); }
  void tick(tutti::deadline now) noexcept override { transport_->tick(now); }
  void prepare_park() noexcept override { transport_->prepare_park(); }
  void park(tutti::duration d) noexcept override { transport_->park(d); }
  void finish_park() noexcept override { transport_->finish_park(); }
  void unpark() noexcept override { transport_->unpark(); }

 private:
  Transport* transport_;
};

/// One rank of a transport with its own engine.
template <class Transport>
class rank_driver {
 public:
  explicit rank_driver(Transport& t, std::uint32_t spins = 50) : transport_(&t), source_(t) {
    owner_.home.wait_by({{spins, spins}, {20, 20}});
    owner_.home.attach(source_);
    owner_.on_failure = [&t](tutti::status why) { t.abort(why); };
  }
  ~rank_driver() { owner_.home.detach(source_); }
  rank_driver(const rank_driver&) = delete;

  [[nodiscard]] Transport& transport() noexcept { return *transport_; }
  std::unique_ptr<flight> start(tutti::routine&& work) {
    const auto guard = owner_.home.lock();
    return std::make_unique<flight>(owner_, std::move(work));
  }
  std::unique_ptr<flight> send(int peer, std::uint64_t tag, std::span<const std::byte> bytes) {
    return start(drive::send(*transport_, peer, tag, bytes));
  }
  std::unique_ptr<flight> recv(int peer, std::uint64_t tag, std::span<std::byte> bytes) {
    return start(drive::recv(*transport_, peer, tag, bytes));
  }
  template <class Done>
  void until(Done done) {
    owner_.home.run_until(done);
  }
  tutti::status wait(const flight& f) {
    until([&] { return f.done(); });
    return f.result();
  }
  tutti::status run(tutti::routine&& work) { return wait(*start(std::move(work))); }
  auto lock() { return owner_.home.lock(); }

 private:
  Transport* transport_;
  owner owner_;
  source<Transport> source_;
};

/// Sizes around what a channel sends at once.
inline const std::vector<std::size_t>& sizes_around_the_eager_limit() {
  static const std::vector<std::size_t> sizes{0, 1, (64U << 10) - 1, 64U << 10, (64U << 10) + 1, 5U << 20};
  return sizes;
}

/// Everybody sends to everybody one message of each size, and receives them in another order. Empty when all arrived.
template <class Transport>
std::string all_to_all(rank_driver<Transport>& driver, const std::vector<std::size_t>& sizes) {
  Transport& t = driver.transport();
  struct message {
    int peer;
    std::size_t which;
    std::vector<std::byte> out, in;
    std::unique_ptr<flight> sending, receiving;
  };
  const auto seed = [&](int from, int to, std::size_t which) {
    return (static_cast<std::uint64_t>(from) * 100 + static_cast<std::uint64_t>(to)) * 100 + which;
  };
  std::vector<message> messages;
  for (int peer = 0; peer < t.size(); ++peer)
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (peer != t.rank())
        messages.push_back(
            {peer, i, pattern(sizes[i], seed(t.rank(), peer, i)), std::vector<std::byte>(sizes[i]), {}, {}});
  for (message& m : messages) m.sending = driver.send(m.peer, 40 + m.which, m.out);
  for (auto m = messages.rbegin(); m != messages.rend(); ++m) m->receiving = driver.recv(m->peer, 40 + m->which, m->in);
  driver.until([&] {
    return std::all_of(messages.begin(), messages.end(),
                       [](const message& m) { return m.sending->done() && m.receiving->done(); });
  });
  for (const message& m : messages) {
    const std::string what =
        "message of " + std::to_string(sizes[m.which]) + " bytes with rank " + std::to_string(m.peer);
    if (!m.sending->result().ok() || !m.receiving->result().ok()) return what + " failed";
    if (m.in != pattern(sizes[m.which], seed(m.peer, t.rank(), m.which))) return what + " has wrong bytes";
  }
  return {};
}

/// Every rank has called it before it returns; `round` tells rounds apart.
template <class Transport>
tutti::routine barrier(Transport& t, std::uint64_t round) {
  std::byte token{};
  for (int distance = 1; distance < t.size(); distance *= 2) {
    auto out = t.send((t.rank() + distance) % t.size(), round * 64 + static_cast<std::uint64_t>(distance), {});
    co_await t.recv((t.rank() - distance + t.size()) % t.size(), round * 64 + static_cast<std::uint64_t>(distance),
                    std::span{&token, 0});
    co_await out;
  }
}

/// A condition that a test switches.
class switched final : public tutti::condition {
 public:
  explicit switched(int peer = -1) : peer_(peer) {}
  bool holds() noexcept override { return on; }
  int waiting_for() const noexcept override { return peer_; }
  bool on = false;

 private:
  int peer_;
};

template <class Link, class Condition>
tutti::routine await_condition(Link& link, Condition& c) {
  link.watch(c);
  co_await c;
}

}  // namespace drive
