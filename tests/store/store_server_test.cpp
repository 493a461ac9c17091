#include "tcp_store_case.hpp"

#include <doctest/doctest.h>

#include <sys/resource.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <support/forked_child.hpp>

using namespace std::chrono_literals;
using namespace tutti_test;
using tutti::bytes_of;
using tutti::text_of;

TEST_CASE("store_server: connections without the secret change nothing, are closed, and leak nothing") {
  running_host host;
  auto client = host.connect(1);
  client.set("k", bytes_of("v"));
  const auto before = open_descriptors();
  const std::string tls_hello = std::string{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11} + std::string(500, 'r');
  for (const std::string& said :
       {std::string{"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"}, tls_hello, std::string(5000, '\0'), std::string{"\n"},
        std::string{"tutti\r\n\0\1\0\0\0", 12} + std::string(300, 'x'), std::string{"SSH-2.0-OpenSSH_9.2\r\n"}}) {
    const auto other = raw_connection(host.endpoint());
    static_cast<void>(tutti::os::send_some(other.native(), bytes_of(said)));
    CHECK(is_closed_soon(other.native()));
  }
  for (std::size_t n = 0; n < 20; ++n) {  // a scanner: connects, says a little of the right thing, and goes
    const auto scanner = raw_connection(host.endpoint());
    static_cast<void>(
        tutti::os::send_some(scanner.native(), bytes_of(std::string{"tutti\r\n\0\1\0\0\0", 12}).first(n % 12)));
  }
  CHECK(text_of(client.get("k", after(30s))) == "v");
  auto& store = host.stop();
  CHECK(store.linger(after(20s), [&] { return store.server()->pending() == 0; }));
  CHECK(store.server()->clients() == 1);
  CHECK(open_descriptors() <= before);
}

TEST_CASE("store_server: thousands of connections that come and go do not disturb") {
  running_host host;
  auto client = host.connect(1);
  const auto before = open_descriptors();
  for (int i = 0; i < 2000; ++i) {
    static_cast<void>(tutti::os::start_connect(host.endpoint()));
    if (i % 100 == 0) CHECK(client.add("n", 1) == i / 100 + 1);
  }
  auto late = host.connect(2);
  CHECK(late.add("n", 1) == 21);
  auto& store = host.stop();
  CHECK(store.linger(after(20s), [&] { return store.server()->pending() == 0; }));
  CHECK(open_descriptors() <= before + 2);
}

TEST_CASE("store_server: of too many strangers the oldest goes, and a client still comes in") {
  auto o = options_of(0, 4);
  o.handshake_timeout = 10min;
  running_host host{o};
  const std::size_t places = tutti::wire::pending_places(4);
  std::vector<tutti::os::fd> strangers;
  for (std::size_t i = 0; i < places + 36; ++i) strangers.push_back(raw_connection(host.endpoint()));
  CHECK(is_closed_soon(strangers.front().native()));
  auto client = host.connect(1);
  client.set("k", {});
  auto& store = host.stop();
  CHECK(store.server()->pending() <= places);
  CHECK(store.server()->clients() == 1);
}

TEST_CASE("store_server: a flood from one address drives out its own, and nobody from elsewhere") {
  auto o = options_of(0, 4);
  o.handshake_timeout = 10min;
  running_host host{o};
  const std::size_t places = tutti::wire::pending_places(4);
  const auto slow = raw_connection(host.endpoint(), "127.0.0.3");  // a rank that has yet to answer
  std::vector<tutti::os::fd> flood;
  for (std::size_t i = 0; i < 2 * places; ++i) flood.push_back(raw_connection(host.endpoint(), "127.0.0.2"));
  CHECK(is_closed_soon(flood.front().native()));
  CHECK_FALSE(is_closed_soon(slow.native(), 0ms));
  auto client = host.connect(1);
  client.set("k", {});
  CHECK_FALSE(is_closed_soon(slow.native(), 0ms));
  CHECK(host.stop().server()->pending() <= places);
}

TEST_CASE("store_server: a flood from a client's own address drives out no client that has shown the secret") {
  const pretended_hmac_scope hmac;
  auto o = options_of(0, 4, "a");
  o.handshake_timeout = 10min;
  auto host = tcp_store::host(loopback(), o);
  const auto where = running_host::store_endpoint(host.address());
  const auto mine = options_of(1, 4, "a"), theirs = options_of(1, 4, "b");
  const auto slow = raw_connection(where);
  tutti::wire::client_handshake client{tutti::detail::handshake_terms_of(mine, tutti::wire::proof::hmac)};
  const auto say = [&] { client.sent(tutti::os::send_some(slow.native(), client.output()).bytes); };
  say();
  REQUIRE(host.linger(after(20s), [&] { return host.server()->pending() == 1; }));

  const std::size_t places = tutti::wire::pending_places(4);
  std::vector<tutti::os::fd> flood;
  for (std::size_t i = 0; i < places + 36; ++i) {
    flood.push_back(raw_connection(where));
    const tutti::wire::client_handshake words{tutti::detail::handshake_terms_of(theirs, tutti::wire::proof::hmac)};
    if (i % 2 == 0) static_cast<void>(tutti::os::send_some(flood.back().native(), words.output()));
    if (i % 32 == 0) host.poll();
  }
  CHECK(host.linger(after(20s), [&] { return is_closed_soon(flood[35].native(), 0ms); }));
  CHECK(host.server()->pending() == places);
  std::array<std::byte, 256> buffer;
  const auto got = tutti::os::receive_some(slow.native(), std::span{buffer}.first(client.wanted()));
  REQUIRE_FALSE(got.closed);
  client.receive(std::span{buffer}.first(got.bytes));
  say();
  CHECK(host.linger(after(20s), [&] { return host.server()->clients() == 1; }));
}

TEST_CASE("store_server: a stranger who says one byte at a time is not waited for and has a deadline") {
  auto o = options_of(0, 4);
  o.handshake_timeout = 60ms;
  running_host host{o};
  const auto trickler = raw_connection(host.endpoint());
  auto client = host.connect(1);
  const std::string right = std::string{"tutti\r\n\0\1\0\0\0", 12} + std::string(100, '\0');
  bool closed = false;
  for (std::size_t i = 0; i < 80 && !closed; ++i) {
    closed = tutti::os::send_some(trickler.native(), bytes_of(right).subspan(i, 1)).closed;
    CHECK(client.add("n", 1) == static_cast<std::int64_t>(i) + 1);
    std::this_thread::sleep_for(2ms);
  }
  CHECK((closed || is_closed_soon(trickler.native())));
}

TEST_CASE("store_server: a client whose proof had arrived is not thrown out because the host was busy") {
  const pretended_hmac_scope hmac;
  auto o = options_of(0, 2, "a");
  o.handshake_timeout = 30ms;
  auto host = tcp_store::host(loopback(), o);
  std::thread client{[&] {
    auto s = tcp_store::connect(host.address(), options_of(1, 2, "a"), after(30s));
    s.set("k", bytes_of("v"));
  }};
  // Its proof follows its claim; once in a while both are there already.
  REQUIRE(host.linger(after(30s), [&] { return host.server()->pending() + host.server()->clients() == 1; }));
  std::this_thread::sleep_for(100ms);
  host.poll();
  CHECK(host.server()->clients() == 1);
  CHECK(text_of(host.get("k", after(30s))) == "v");
  client.join();
}

namespace {

// A client by hand, to say what a right one never would.
class raw_client {
 public:
  explicit raw_client(const tutti::os::endpoint& where, int rank = 3) : socket_(raw_connection(where)) {
    const auto options = options_of(rank, 4);
    tutti::wire::client_handshake h{tutti::detail::handshake_terms_of(options, tutti::wire::proof::job_id)};
    std::array<std::byte, 256> buffer;
    const auto until = after(20s);
    while (h.state() == tutti::wire::handshake_state::running && tutti::clock::now() < until) {
      if (!h.output().empty()) h.sent(tutti::os::send_some(native(), h.output()).bytes);
      const auto r = tutti::os::receive_some(native(), std::span{buffer}.first(h.wanted()));
      h.receive(std::span{buffer}.first(r.bytes));
      if (r.would_block()) tutti::os::wait_ready(native(), tutti::os::interest::read, 100ms);
    }
    REQUIRE(h.state() == tutti::wire::handshake_state::accepted);
  }

  [[nodiscard]] int native() const { return socket_.native(); }

  void say(std::span<const std::byte> bytes) {
    const auto until = after(20s);
    while (!bytes.empty() && tutti::clock::now() < until) {
      const auto r = tutti::os::send_some(native(), bytes);
      if (r.closed) return;
      bytes = bytes.subspan(r.bytes);
      if (r.would_block()) tutti::os::wait_ready(native(), tutti::os::interest::write, 100ms);
    }
  }

  static std::vector<std::byte> request(tutti::wire::store_request q, const std::string& key,
                                        const std::string& value) {
    q.key_bytes = static_cast<std::uint16_t>(key.size());
    q.value_bytes = static_cast<std::uint32_t>(value.size());
    std::vector<std::byte> bytes(tutti::wire::store_request::head_bytes);
    tutti::wire::encode(q, std::span{bytes}.first<tutti::wire::store_request::head_bytes>());
    for (const char c : key + value) bytes.push_back(static_cast<std::byte>(c));
    return bytes;
  }

  // The heads of `count` responses; the values are passed over.
  std::vector<tutti::wire::store_response> responses(std::size_t count) {
    std::vector<tutti::wire::store_response> all;
    std::vector<std::byte> in;
    std::array<std::byte, 65536> chunk;
    const auto until = after(30s);
    while (all.size() < count && tutti::clock::now() < until) {
      const auto r = tutti::os::receive_some(native(), chunk);
      if (r.closed) break;
      if (r.would_block()) tutti::os::wait_ready(native(), tutti::os::interest::read, 100ms);
      in.insert(in.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(r.bytes));
      while (in.size() >= tutti::wire::store_response::head_bytes) {
        const auto p = tutti::wire::decode_response(
            std::span<const std::byte>{in}.first<tutti::wire::store_response::head_bytes>());
        REQUIRE(p.has_value());
        const auto total = tutti::wire::store_response::head_bytes + p->value_bytes;
        if (in.size() < total) break;
        all.push_back(*p);
        in.erase(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(total));
      }
    }
    return all;
  }

 private:
  tutti::os::fd socket_;
};

}  // namespace

TEST_CASE("store_server: frames cut at any byte are waited for, and the cut itself is nobody's harm") {
  running_host host;
  const auto frame = raw_client::request({tutti::wire::store_verb::set}, "torn", "value");
  for (std::size_t n = 1; n < frame.size(); ++n) {
    raw_client c{host.endpoint()};
    c.say(std::span{frame}.first(n));
  }
  auto client = host.connect(1);
  CHECK_FALSE(client.try_get("torn").has_value());
  raw_client slow{host.endpoint()};
  for (const std::byte b : frame) slow.say({&b, 1});
  REQUIRE(slow.responses(1).size() == 1);
  CHECK(text_of(client.get("torn", after(30s))) == "value");
}

TEST_CASE("store_server: absurd frames end their connection and no other") {
  running_host host;
  auto client = host.connect(1);
  for (const std::size_t at : {0U, 1U, 2U, 3U, 4U, 7U, 8U, 11U, 12U}) {
    raw_client c{host.endpoint()};
    auto frame = raw_client::request({tutti::wire::store_verb::set}, "k", "v");
    frame[at] = std::byte{0xff};
    c.say(frame);
    if (at == 2U || at == 4U || at == 8U) continue;  // a length within limits: waits for the rest
    CAPTURE(at);
    CHECK(is_closed_soon(c.native()));
  }
  raw_client waits_too_often{host.endpoint()};
  for (std::uint64_t i = 0; i < 20; ++i) {
    tutti::wire::store_request q{tutti::wire::store_verb::get};
    q.id = i;
    waits_too_often.say(raw_client::request(q, "never", ""));
  }
  CHECK(is_closed_soon(waits_too_often.native()));
  CHECK(client.add("n", 1) == 1);
}

TEST_CASE("store_server: a client that does not take its answers is not answered any further, and others are") {
  running_host host;
  auto client = host.connect(1);
  client.set("large", std::vector<std::byte>(1 << 20));
  raw_client greedy{host.endpoint()};
  std::vector<std::byte> many;
  for (std::uint64_t i = 0; i < 64; ++i) {
    tutti::wire::store_request q{tutti::wire::store_verb::try_get};
    q.id = i;
    const auto frame = raw_client::request(q, "large", "");
    many.insert(many.end(), frame.begin(), frame.end());
  }
  greedy.say(many);
  for (int i = 0; i < 100; ++i) CHECK(client.add("n", 1) == i + 1);
  const auto all = greedy.responses(64);
  REQUIRE(all.size() == 64);
  for (std::uint64_t i = 0; i < 64; ++i) {
    CHECK(all[i].id == i);
    CHECK(all[i].value_bytes == 1 << 20);
  }
}

TEST_CASE("store_server: the waits of a client that is gone are forgotten") {
  running_host host;
  auto client = host.connect(1);
  for (const bool goodbye : {false, true}) {
    raw_client c{host.endpoint()};
    for (const char* key : {"a", "b", "a"}) c.say(raw_client::request({tutti::wire::store_verb::get}, key, ""));
    c.say(raw_client::request({tutti::wire::store_verb::try_get}, "c", ""));
    REQUIRE(c.responses(1).size() == 1);
    if (goodbye) {
      c.say(raw_client::request({tutti::wire::store_verb::goodbye}, "", ""));
      CHECK(is_closed_soon(c.native()));
    }
  }
  client.set("a", bytes_of("1"));
  client.set("b", bytes_of("2"));
  CHECK(text_of(client.get("a", after(30s))) == "1");
}

TEST_CASE("store_server: waits that were cancelled are not answered, others of the same client are") {
  running_host host;
  auto client = host.connect(1);
  raw_client c{host.endpoint()};
  const auto say = [&](tutti::wire::store_verb verb, std::uint64_t id, const std::string& key) {
    tutti::wire::store_request q{verb};
    q.id = id;
    c.say(raw_client::request(q, key, ""));
  };
  say(tutti::wire::store_verb::get, 1, "a");
  say(tutti::wire::store_verb::get, 2, "a");
  say(tutti::wire::store_verb::get, 3, "b");
  say(tutti::wire::store_verb::cancel, 1, "");
  say(tutti::wire::store_verb::try_get, 4, "a");
  REQUIRE(c.responses(1).front().id == 4);
  client.set("a", {});
  client.set("b", {});
  const auto all = c.responses(2);
  REQUIRE(all.size() == 2);
  CHECK(all[0].id == 2);
  CHECK(all[1].id == 3);
}

TEST_CASE("store_server: without descriptors for newcomers the clients are still served") {
  auto listener = tutti::os::listen_on(loopback());
  const auto where = tutti::os::local_endpoint(listener.native());
  auto host = tcp_store::host(std::move(listener), options_of(0, 4));
  std::optional<tcp_store> client;
  std::thread connecting{[&] { client.emplace(tcp_store::connect(host.address(), options_of(1, 4), after(30s))); }};
  REQUIRE(host.linger(after(30s), [&] { return host.server()->clients() == 1; }));
  connecting.join();

  int ready[2] = {-1, -1};
  REQUIRE(::pipe(ready) == 0);
  forked_child flood{[&] {
    std::vector<tutti::os::fd> all;
    for (int i = 0; i < 50; ++i) all.push_back(tutti::os::start_connect(where).socket);
    static_cast<void>(::write(ready[1], "x", 1));
    for (;;) ::pause();
    return 0;
  }};
  char c = 0;
  REQUIRE(::read(ready[0], &c, 1) == 1);
  rlimit old{};
  ::getrlimit(RLIMIT_NOFILE, &old);
  const tutti::os::fd next{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  for (const rlim_t left : {1U, 4U}) {
    const rlimit tight{static_cast<rlim_t>(next.native()) + left, old.rlim_max};
    std::int64_t sum = 0;
    std::atomic<int> step{0};
    std::thread adding{[&] {  // started before the limit: UBSan needs descriptors for its checks
      step.store(1);
      while (step.load() == 1) std::this_thread::yield();
      sum = client->add("n", 1);
      step.store(3);
    }};
    while (step.load() == 0) std::this_thread::yield();
    ::setrlimit(RLIMIT_NOFILE, &tight);
    for (int i = 0; i < 30; ++i) host.poll();
    step.store(2);
    host.linger(after(30s), [&] {
      host.server()->step(1ms);
      return step.load() == 3;
    });
    adding.join();
    const bool idle = host.linger(after(30s), [&] { return !host.server()->step(tutti::duration{0}); });
    ::setrlimit(RLIMIT_NOFILE, &old);
    CHECK(sum > 0);
    CHECK(idle);  // does not spin over connections that it cannot take
  }
  ::close(ready[0]);
  ::close(ready[1]);
  // The listener, which may have paused, accepts again.
  std::thread newcomer{[&] { (void)tcp_store::connect(host.address(), options_of(2, 4), after(30s)); }};
  CHECK(host.linger(after(30s), [&] { return came(host, 2); }));
  newcomer.join();
}

TEST_CASE("store_server: a bounded table is a typed error at the client") {
  auto o = options_of(0, 4);
  o.limits = {.keys = 2, .bytes = 1000};
  running_host host{o};
  auto client = host.connect(1);
  client.set("a", {});
  client.set("b", {});
  CHECK(failure_of([&] { client.set("c", {}); }).kind == errc::out_of_resources);
  CHECK(failure_of([&] { client.set("a", std::vector<std::byte>(1000)); }).kind == errc::out_of_resources);
  CHECK(failure_of([&] { client.add("c", 1); }).kind == errc::out_of_resources);
  CHECK(client.erase("a"));
  client.set("c", {});
}
