#include <dirent.h>
#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/pretended_hmac.hpp"
#include "transport/raw_tcp.hpp"
#include "transport/tcp_world.hpp"

namespace {

using namespace tcp_world;

static_assert(tutti::transport<tutti::tcp_transport>);
static_assert(!tutti::mapped_transport<tutti::tcp_transport>);

int open_descriptors() {
  int n = 0;
  DIR* d = ::opendir("/proc/self/fd");
  while (::readdir(d) != nullptr) ++n;
  ::closedir(d);
  return n;
}

tutti::wire::secret secret_of(int byte) {
  tutti::wire::secret s;
  s.bytes.fill(static_cast<std::byte>(byte));
  return s;
}

TEST_CASE("messages of all sizes, in threads") {
  const int before = open_descriptors();
  for (const int ranks : {2, 3, 6}) {
    plan p{ranks};
    p.options.connections = 6 / ranks;
    const auto said =
        in_threads(p, [](driver& d) { return drive::all_to_all(d, drive::sizes_around_the_eager_limit()); });
    for (const std::string& s : said) CHECK(s == "");
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("long messages of all kinds between ranks of a machine, in threads") {
  for (const int ranks : {2, 3}) {
    auto p = plan::on_one_machine(ranks);
    p.options.connections = ranks - 1;
    const auto said = in_threads(p, [](driver& d) {
      for (int round = 0; round < 3; ++round)
        if (std::string s = drive::all_to_all(d, {400'000, 2 << 20, 100, (256 << 10) + 1, 5 << 20}); !s.empty())
          return s;
      return std::string{};
    });
    for (const std::string& s : said) CHECK(s == "");
  }
}

TEST_CASE("who computes for longer than silence, and reads nothing of what answers it, is not taken for dead") {
  plan p{2};
  p.options.silence = 200ms;
  auto ranks = in_processes(p, [](driver& d) {
    constexpr int tasks = 2000;
    std::vector<std::byte> task(16), answer(2000);
    status s{};
    const auto send = [&](std::uint64_t tag, std::span<const std::byte> m) {
      if (s.ok()) s = d.wait(*d.send(1 - d.transport().rank(), tag, m));
    };
    const auto recv = [&](std::uint64_t tag, std::span<std::byte> m) {
      if (s.ok()) s = d.wait(*d.recv(1 - d.transport().rank(), tag, m));
    };
    const bool asks = d.transport().rank() == 0;
    for (int i = 0; i < 20; ++i) {
      if (asks) send(1, task);
      recv(1, task);
      if (!asks) send(1, task);
    }
    for (int i = 0; i < tasks && asks; ++i) send(2, task);
    if (asks) std::this_thread::sleep_for(1s);
    for (int i = 0; i < tasks; ++i) {
      if (!asks) recv(2, task);
      asks ? recv(3, answer) : send(3, answer);
    }
    return code_of(s);
  });
  for (auto& r : ranks) CHECK(to_string(r.wait()) == "exit code 0");
}

TEST_CASE("messages of all sizes, between processes on two hosts, with a secret") {
  const tutti_test::pretended_hmac_scope hmac;
  plan p{4};
  for (auto& j : p.jobs) j.secret = secret_of(1);
  p.options.connections = 4;
  auto ranks = in_processes(p, [](driver& d) {
    return drive::all_to_all(d, drive::sizes_around_the_eager_limit()).empty() ? code_of(work(d, 50)) : 99;
  });
  for (auto& r : ranks) CHECK(to_string(r.wait()) == "exit code 0");
}

TEST_CASE("two ranks that call each other at once") {
  for (int i = 0; i < 100; ++i) {
    plan p{2};
    std::atomic<int> here{0};
    const auto said = in_threads(p, [&](driver& d) {
      const auto out = drive::pattern(100, static_cast<std::uint64_t>(i));
      std::vector<std::byte> in(out.size());
      for (++here; here != 2;) {
      }
      const auto a = d.send(1 - d.transport().rank(), 1, out), b = d.recv(1 - d.transport().rank(), 1, in);
      const bool ok = d.wait(*a).ok() && d.wait(*b).ok() && in == out;
      return std::string(ok ? "" : "no");
    });
    for (const std::string& s : said) CHECK(s == "");
  }
}

TEST_CASE("one thread drives while another issues") {
  plan p{2};
  const auto said = in_threads(p, [](driver& d) {
    std::atomic<bool> stop{false};
    std::thread driving{[&] { d.until([&] { return stop.load(); }); }};
    const status s = work(d, 60);
    stop = true;
    driving.join();
    return std::string(s.ok() ? "" : "failed");
  });
  for (const std::string& s : said) CHECK(s == "");
}

TEST_CASE("all leave when they are done, and nobody takes offence") {
  for (int run = 0; run < 20; ++run) {
    plan p{4};
    auto ranks = in_processes(p, [run](driver& d) {
      const status s = work(d, run);
      if (d.transport().rank() == run % 4) std::this_thread::sleep_for(20ms);
      return code_of(s);
    });
    for (auto& r : ranks) CHECK(r.wait() == 0);
  }
}

TEST_CASE("what was sent arrives although the sender has left") {
  plan p{2};
  auto ranks = in_processes(p, [](driver& d) {
    const auto out = drive::pattern(60000, 1);
    if (d.transport().rank() == 0) {
      std::vector<std::unique_ptr<drive::flight>> all;
      for (std::uint64_t i = 0; i < 20; ++i) all.push_back(d.send(1, i, out));
      for (const auto& f : all)
        if (const status s = d.wait(*f); !s.ok()) return code_of(s);
      return 0;
    }
    std::vector<std::byte> in(out.size());
    for (std::uint64_t i = 0; i < 20; ++i) {
      if (i < 2) std::this_thread::sleep_for(200ms);
      if (const status s = d.run(drive::recv(d.transport(), 0, i, in)); !s.ok()) return code_of(s);
      if (in != out) return 99;
    }
    return 0;
  });
  for (auto& r : ranks) CHECK(to_string(r.wait()) == "exit code 0");
}

/// What each of two ranks that must not meet says; none leaves before both have found out.
std::vector<std::string> refusals(plan& p, errc expected, const std::string& because) {
  std::atomic<int> know{0};
  return in_threads(p, [&](driver& d) {
    auto& t = d.transport();
    const int other = 1 - t.rank();
    std::byte in{};
    const status s = d.wait(*d.recv(other, 1, {&in, 1}));
    ++know;
    d.until([&] { return know == 2; });
    const std::string said = t.describe(other);
    return s == status{expected, 0, other, 0} && said.find(because) != std::string::npos ? "" : said;
  });
}

TEST_CASE("a rank with another secret, or none, is refused and knows why, and so do the others") {
  const tutti_test::pretended_hmac_scope hmac;
  plan p{2};
  SUBCASE("another") {
    p.jobs[0].secret = secret_of(1);
    p.jobs[1].secret = secret_of(2);
  }
  SUBCASE("none there") { p.jobs[0].secret = secret_of(1); }
  SUBCASE("none here") { p.jobs[1].secret = secret_of(1); }
  for (const std::string& s : refusals(p, errc::auth_failed, "secret")) CHECK(s == "");
}

TEST_CASE("ranks of two jobs, or of two starts of one, do not meet") {
  plan p{2};
  SUBCASE("jobs") {
    p.jobs[1].id = tutti::wire::job_id::of("another");
    for (const std::string& s : refusals(p, errc::rendezvous, "another job")) CHECK(s == "");
  }
  SUBCASE("starts") {
    p.jobs[1].generation = 2;
    for (const std::string& s : refusals(p, errc::rendezvous, "generation")) CHECK(s == "");
  }
}

TEST_CASE("ranks that open different numbers of connections are refused, and both numbers are named") {
  plan p{2};
  p.connections = {2, 4};
  const auto said = refusals(p, errc::rendezvous, "other words");
  CHECK(said[0].find("connections that two ranks open to each other differs: 2 here, 4 there") != std::string::npos);
  CHECK(said[1].find("connections that two ranks open to each other differs: 4 here, 2 there") != std::string::npos);
}

TEST_CASE("strangers at every door change nothing") {
  const tutti_test::pretended_hmac_scope hmac;
  plan p{3};
  for (auto& j : p.jobs) j.secret = secret_of(1);
  const auto doors = p.peers;
  const shared_page<std::atomic<bool>> enough;
  auto ranks = in_processes(p, [&](driver& d) {
    const auto& stop = *enough;
    for (int i = 0;; ++i) {
      if (const status s = work(d, 10); !s.ok()) return code_of(s);
      // The ranks must stop together.
      std::byte in{}, out{stop ? std::byte{1} : std::byte{0}};
      auto& t = d.transport();
      const auto tag = std::uint64_t{1} << 60 | static_cast<std::uint64_t>(i);
      if (t.rank() == 0) {
        const auto a = d.send(1, tag, {&out, 1}), b = d.send(2, tag, {&out, 1});
        if (!d.wait(*a).ok() || !d.wait(*b).ok()) return 98;
        in = out;
      } else if (const status s = d.run(drive::recv(t, 0, tag, {&in, 1})); !s.ok()) {
        return code_of(s);
      }
      if (in == std::byte{1}) return 0;
    }
  });
  std::vector<tutti::os::fd> idle, slow;
  for (int i = 0; i < 200; ++i)
    for (const auto& door : doors) idle.push_back(raw_tcp::connect(door.endpoint));
  for (const auto& door : doors) slow.push_back(raw_tcp::connect(door.endpoint));
  for (int round = 0; round < 10; ++round) {
    for (const auto& door : doors) {
      (void)raw_tcp::connect(door.endpoint);
      for (const std::string& words :
           {std::string{"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"},
            std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11), std::string(5000, 'x')}) {
        const auto s = raw_tcp::connect(door.endpoint);
        if (s) (void)tutti::os::send_some(s.native(), drive::bytes_of(words));
      }
    }
    for (const auto& s : slow)
      if (s) (void)tutti::os::send_some(s.native(), drive::bytes_of("t"));
    std::this_thread::sleep_for(100ms);
  }
  *enough = true;
  for (auto& r : ranks) CHECK(to_string(r.wait()) == "exit code 0");
}

}  // namespace
