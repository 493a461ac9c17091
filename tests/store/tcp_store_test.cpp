#include "tcp_store_case.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <support/forked_child.hpp>
#include <support/temporary_directory.hpp>

using namespace std::chrono_literals;
using namespace tutti_test;
using tutti::bytes_of;
using tutti::text_of;

TEST_CASE("tcp_store over TCP is a store") { check_store_conformance<tcp_family<over_tcp>>(); }

TEST_CASE("tcp_store over TCP with a secret is a store") {
  const pretended_hmac_scope hmac;
  check_store_conformance<tcp_family<over_tcp_with_secret>>();
}

TEST_CASE("tcp_store over a Unix socket is a store") { check_store_conformance<tcp_family<over_unix>>(); }

TEST_CASE("the host of a tcp_store alone is a store") { check_store_conformance<host_alone_family>(); }

TEST_CASE("tcp_store: processes meet over TCP and over Unix sockets") {
  const temporary_directory dir;
  for (const auto& where : {loopback(), fresh_unix_name(), tutti::os::endpoint::unix_socket(dir.file("socket"))}) {
    CAPTURE(where.to_string());
    auto host = tcp_store::host(where, options_of(0, 4));
    std::vector<forked_child> children;
    for (int rank = 1; rank < 4; ++rank) {
      children.emplace_back([&, rank, address = host.address()] {
        auto s = tcp_store::connect(address, options_of(rank, 4), after(30s));
        s.set("rank" + std::to_string(rank), bytes_of(std::to_string(::getpid())));
        for (int other = 0; other < 4; ++other) (void)s.get("rank" + std::to_string(other), after(30s));
        return 0;
      });
    }
    host.set("rank0", bytes_of("host"));
    for (int rank = 1; rank < 4; ++rank) {
      CHECK(text_of(host.get("rank" + std::to_string(rank), after(30s))) ==
            std::to_string(children[static_cast<std::size_t>(rank) - 1].pid()));
    }
    CHECK(host.linger(after(30s)));
    for (auto& c : children) CHECK(c.wait() == 0);
  }
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("tcp_store: clients may come before the host") {
  const auto where = fresh_unix_name();
  std::string got;
  std::thread client{[&] {
    auto s = tcp_store::connect(where.to_string(), options_of(1, 2), after(30s));
    got = text_of(s.get("k", after(30s)));
  }};
  std::this_thread::sleep_for(20ms);
  auto host = tcp_store::host(where, options_of(0, 2));
  host.set("k", bytes_of("v"));
  CHECK(host.linger(after(30s)));
  client.join();
  CHECK(got == "v");
}

TEST_CASE("tcp_store: a host that never comes is a timeout that says where and what to check") {
  std::string nobody;
  {
    const auto listener = tutti::os::listen_on(loopback());
    nobody = tutti::os::local_endpoint(listener.native()).to_string();
  }
  for (const std::string& address : {nobody, std::string{"unix:@tutti-test-nobody"}, std::string{"no such host:1"}}) {
    const auto f = failure_of([&] { (void)tcp_store::connect(address, options_of(1, 2), after(30ms)); });
    CHECK(f.kind == errc::timed_out);
    CHECK(f.mentions(address));
    CHECK(f.mentions("is rank 0 running"));
  }
  CHECK_THROWS_AS((void)tcp_store::connect("host:port", options_of(1, 2), after(1ms)), tutti::usage_error);
}

TEST_CASE("tcp_store: a host that is connected but never serves is a timeout, too") {
  const auto listener = tutti::os::listen_on(loopback());
  const auto address = tutti::os::local_endpoint(listener.native()).to_string();
  const auto f = failure_of([&] { (void)tcp_store::connect(address, options_of(1, 2), after(30ms)); });
  CHECK(f.kind == errc::timed_out);
  CHECK(f.mentions("nobody answers"));
}

TEST_CASE("tcp_store: a call lasts hardly longer than what it is part of") {
  auto host = tcp_store::host(loopback(), options_of(0, 2));
  std::atomic<bool> connected{false};
  std::thread serving{[&] {
    while (!connected) host.poll();
  }};
  auto o = options_of(1, 2);
  o.until = after(10ms);
  auto client = tcp_store::connect(host.address(), o, after(30s));
  connected = true;
  serving.join();  // nobody answers any more
  const auto f = failure_of([&] { (void)client.add("ranks", 1); });
  CHECK(f.kind == errc::timed_out);
  CHECK(f.mentions("did not answer within"));
  CHECK(!f.mentions("60 s"));
}

TEST_CASE("tcp_store: another program at the address is recognised at once") {
  const auto listener = tutti::os::listen_on(loopback());
  const auto address = tutti::os::local_endpoint(listener.native()).to_string();
  std::thread web_server{[&] {
    tutti::os::wait_ready(listener.native(), tutti::os::interest::read, 20s);
    const auto c = tutti::os::accept_connection(listener.native());
    static_cast<void>(tutti::os::send_some(c.socket.native(), bytes_of("HTTP/1.1 400 Bad Request\r\n\r\n")));
  }};
  const auto f = failure_of([&] { (void)tcp_store::connect(address, options_of(1, 2), after(60s)); });
  web_server.join();
  CHECK(f.kind == errc::protocol);
  CHECK(f.mentions("another program"));
}

TEST_CASE("tcp_store: whoever does not fit learns at once what differs, and the host can tell, too") {
  running_host host{options_of(0, 4)};
  const auto refused = [&](const tcp_store_options& o) {
    return failure_of([&] { (void)tcp_store::connect(host.address(), o, after(60s)); });
  };
  auto o = options_of(1, 8);
  CHECK(refused(o).kind == errc::rendezvous);
  CHECK(refused(o).mentions("8 here, 4 there"));
  o = options_of(1, 4);
  o.job = tutti::wire::job_id::of("other");
  CHECK(refused(o).kind == errc::rendezvous);
  CHECK(refused(o).mentions("another job"));
  o = options_of(1, 4);
  o.generation = 3;
  CHECK(refused(o).mentions("3 here, 0 there"));
  o = options_of(4, 4);
  CHECK(refused(o).mentions("rank 4"));

  const auto client = host.connect(2);
  auto& store = host.stop();
  const auto f = failure_of([&] { (void)store.get("k", after(1ms)); });
  CHECK(f.mentions("so far: rank 2"));
  CHECK(f.mentions("connections were refused"));
  CHECK(f.mentions("rank 4 is not in a world of 4"));
}

TEST_CASE("tcp_store: secrets that differ, are missing or are not asked for") {
  const pretended_hmac_scope hmac;
  const auto outcome = [](const char* host_digit, const char* client_digit) {
    const running_host host{options_of(0, 2, host_digit)};
    return failure_of([&] { (void)tcp_store::connect(host.address(), options_of(1, 2, client_digit), after(60s)); });
  };
  CHECK(outcome("a", "a").kind == errc::ok);
  CHECK(outcome("a", "b").kind == errc::auth_failed);
  CHECK(outcome("a", "b").mentions("same secret"));
  CHECK(outcome("a", nullptr).kind == errc::auth_failed);
  CHECK(outcome("a", nullptr).mentions("TUTTI_SECRET_FILE"));
  CHECK(outcome(nullptr, "b").kind == errc::auth_failed);
  CHECK_FALSE(outcome("a", "b").mentions("bbbb"));
}

TEST_CASE("tcp_store: a secret that nobody can compute with is an error that names the component") {
  const auto before = tutti::wire::hmac_provider.exchange(nullptr);
  const auto at_host = failure_of([&] { (void)tcp_store::host(loopback(), options_of(0, 2, "a")); });
  const auto at_client =
      failure_of([&] { (void)tcp_store::connect("127.0.0.1:1", options_of(1, 2, "a"), after(60s)); });
  const auto over_unix_socket = failure_of([&] { (void)tcp_store::host(fresh_unix_name(), options_of(0, 2, "a")); });
  tutti::wire::hmac_provider.store(before);
  CHECK(at_host.kind == errc::unsupported);
  CHECK(at_host.mentions("tutti::openssl"));
  CHECK(at_client.kind == errc::unsupported);
  CHECK(over_unix_socket.kind == errc::ok);
}

TEST_CASE("tcp_store: listening on a network needs a secret, or an explicit choice") {
  const pretended_hmac_scope hmac;
  const auto anywhere = tutti::os::resolve("0.0.0.0", 0).front();
  const auto f = failure_of([&] { (void)tcp_store::host(anywhere, options_of(0, 2)); });
  CHECK(f.kind == errc::auth_failed);
  CHECK(f.mentions("0.0.0.0"));
  const auto inherited = failure_of([&] { (void)tcp_store::host(tutti::os::listen_on(anywhere), options_of(0, 2)); });
  CHECK(inherited.kind == errc::auth_failed);
  CHECK(failure_of([&] { (void)tcp_store::host(anywhere, options_of(0, 2, "a")); }).kind == errc::ok);
  auto o = options_of(0, 2);
  o.network = tutti::exposure::insecure;
  CHECK(failure_of([&] { (void)tcp_store::host(anywhere, o); }).kind == errc::ok);
}

TEST_CASE("tcp_store: an inherited descriptor must be a listening socket") {
  CHECK(failure_of([&] {
          (void)tcp_store::host(tutti::os::fd{::open("/dev/null", O_RDWR | O_CLOEXEC)}, options_of(0, 2));
        }).kind == errc::rendezvous);
  CHECK(failure_of([&] {
          (void)tcp_store::host(tutti::os::fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)}, options_of(0, 2));
        }).kind == errc::rendezvous);
  // As a launcher leaves it: blocking, and to be inherited further.
  auto listener = tutti::os::listen_on(loopback());
  ::fcntl(listener.native(), F_SETFL, 0);
  ::fcntl(listener.native(), F_SETFD, 0);
  const int number = listener.native();
  auto host = tcp_store::host(std::move(listener), options_of(0, 2));
  CHECK((::fcntl(number, F_GETFL) & O_NONBLOCK) != 0);
  CHECK((::fcntl(number, F_GETFD) & FD_CLOEXEC) != 0);
  host.poll();
}

TEST_CASE("tcp_store: when the host is killed, its clients get peer_lost, now and from then on") {
  auto listener = tutti::os::listen_on(loopback());
  const auto address = tutti::os::local_endpoint(listener.native()).to_string();
  forked_child host_process{[&] {
    auto host = tcp_store::host(std::move(listener), options_of(0, 2));
    (void)host.get("never", after(60s));
    return 0;
  }};
  listener.reset();
  auto client = tcp_store::connect(address, options_of(1, 2), after(30s));
  client.set("k", bytes_of("v"));
  host_process.signal(SIGKILL);
  const auto f = failure_of([&] { (void)client.get("never", after(30s)); });
  CHECK(f.kind == errc::peer_lost);
  CHECK(f.mentions(address));
  const auto again = failure_of([&] { client.set("k", {}); });
  CHECK(again.kind == errc::peer_lost);
  CHECK(again.text == f.text);
}

TEST_CASE("tcp_store: when a client is killed, even in a wait, nobody else is concerned") {
  auto host = tcp_store::host(loopback(), options_of(0, 4));
  const auto address = host.address();
  forked_child waiting{[&] {
    auto s = tcp_store::connect(address, options_of(1, 4), after(30s));
    s.set("waiting", {});
    (void)s.get("never", after(60s));
    return 0;
  }};
  (void)host.get("waiting", after(30s));
  waiting.signal(SIGKILL);
  waiting.wait();
  host.set("never", bytes_of("but now"));
  forked_child other{[&] {
    auto s = tcp_store::connect(address, options_of(2, 4), after(30s));
    return text_of(s.get("never", after(30s))) == "but now" ? 0 : 1;
  }};
  const bool gone = host.linger(after(30s), [&] { return came(host, 2) && host.server()->clients() == 0; });
  CHECK(gone);
  CHECK(other.wait() == 0);
}

TEST_CASE("tcp_store: linger waits for those who have not come yet, and gives up at its deadline") {
  auto host = tcp_store::host(loopback(), options_of(0, 3));
  const auto come_and_go = [&](int rank) {
    return std::thread{[&, rank, address = host.address()] {
      auto s = tcp_store::connect(address, options_of(rank, 3), after(30s));
      s.linger(after(30s));
      CHECK_THROWS_AS(s.set("k", {}), tutti::usage_error);
    }};
  };
  auto one = come_and_go(1);
  CHECK_FALSE(host.linger(after(50ms)));
  one.join();
  auto two = come_and_go(2);
  CHECK(host.linger(after(30s)));
  two.join();
}

TEST_CASE("tcp_store: an answer that comes after its get gave up does not answer something else") {
  running_host host;
  auto client = host.connect(1);
  auto other = host.connect(2);
  for (int i = 0; i < 200; ++i) {
    const std::string key = std::to_string(i);
    std::thread setter{[&] { other.set(key, bytes_of("late " + key)); }};
    const auto f = failure_of([&] { (void)client.get(key, after(std::chrono::microseconds{i * 3})); });
    CHECK((f.kind == errc::ok || f.kind == errc::timed_out));
    CHECK(client.add("n", 1) == i + 1);
    setter.join();
    CHECK(text_of(client.get(key, after(30s))) == "late " + key);
  }
}

TEST_CASE("tcp_store: a client that gives up keys, one after the other, leaves no wait behind") {
  running_host host;
  auto client = host.connect(1);
  for (int i = 0; i < 40; ++i)  // more than a client may wait for at a time
    CHECK(failure_of([&] { (void)client.get("never" + std::to_string(i), after(1ms)); }).kind == errc::timed_out);
  client.set("k", bytes_of("v"));
  CHECK(text_of(client.get("k", after(30s))) == "v");
}

TEST_CASE("tcp_store: a host that forks keeps its socket") {
  const temporary_directory dir;
  const auto where = tutti::os::endpoint::unix_socket(dir.file("socket"));
  auto host = std::make_unique<tcp_store>(tcp_store::host(where, options_of(0, 2)));
  forked_child child{[&] {
    host.reset();
    return 0;
  }};
  CHECK(child.wait() == 0);
  CHECK(std::filesystem::exists(dir.file("socket")));
  host.reset();
  CHECK_FALSE(std::filesystem::exists(dir.file("socket")));
}

TEST_CASE("tcp_store: a client that forks does not say goodbye twice") {
  auto host = tcp_store::host(loopback(), options_of(0, 2));
  std::optional<tcp_store> client;
  std::thread connecting{[&] { client.emplace(tcp_store::connect(host.address(), options_of(1, 2), after(30s))); }};
  REQUIRE(host.linger(after(30s), [&] { return host.server()->clients() == 1; }));
  connecting.join();
  forked_child child{[&] {
    client.reset();
    return 0;
  }};
  CHECK(child.wait() == 0);
  for (int i = 0; i < 10; ++i) host.poll();
  CHECK(host.server()->clients() == 1);
}

TEST_CASE("tcp_store: clients of other users are refused over Unix sockets, by both sides") {
  if (::geteuid() != 0) {
    MESSAGE("left out: only root can become another user");
    return;
  }
  auto o = options_of(0, 2);
  o.handshake_timeout = 10min;
  running_host host{o, fresh_unix_name()};
  forked_child other_user{[&] {
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) return 77;
    const auto f = failure_of([&] { (void)tcp_store::connect(host.address(), options_of(1, 2), after(60s)); });
    if (f.kind != errc::auth_failed || !f.mentions("another user")) return 1;
    auto r = tutti::os::start_connect(host.endpoint());
    return r.socket && is_closed_soon(r.socket.native()) ? 0 : 2;
  }};
  CHECK(other_user.wait() == 0);
  auto mine = tcp_store::connect(host.address(), options_of(1, 2), after(30s));
  mine.set("k", {});
}

namespace {

// The ports from which a connection to `port` of 127.0.0.1 is asked for now.
std::set<std::string> ports_that_ask(std::uint16_t port) {
  char number[8];
  std::snprintf(number, sizeof number, ":%04X", port);
  std::set<std::string> found;
  std::ifstream table{"/proc/net/tcp"};
  std::string line, slot, local, remote, state;
  while (std::getline(table, line)) {
    std::istringstream words{line};
    words >> slot >> local >> remote >> state;
    if (state == "02" && remote.size() > 5 && remote.substr(remote.size() - 5) == number) found.insert(local);
  }
  return found;
}

}  // namespace

TEST_CASE("tcp_store: a request for a connection that a full queue has dropped is made again before the kernel does") {
  const auto listener = tutti::os::listen_on(loopback(), 0);
  const auto where = tutti::os::local_endpoint(listener.native());
  std::vector<tutti::os::fd> queue;
  do {
    queue.push_back(tutti::os::start_connect(where).socket);
    REQUIRE(queue.size() < 100);
    tutti::os::wait_ready(queue.back().native(), tutti::os::interest::write, 100ms);
  } while (tutti::os::connect_result(queue.back().native()) == 0);
  queue.pop_back();

  std::atomic<bool> over{false};
  std::set<std::string> asked;
  std::thread watch{[&] {
    while (!over) {
      asked.merge(ports_that_ask(where.port()));
      std::this_thread::sleep_for(2ms);
    }
  }};
  CHECK_THROWS_AS((void)tcp_store::connect(where.to_string(), options_of(1, 2), after(4s)), tutti::error);
  over = true;
  watch.join();
  CHECK(asked.size() >= 2);
}
