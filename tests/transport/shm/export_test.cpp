#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <tutti/transport/shm/export.hpp>
#include <vector>

#include "support/failure_of.hpp"
#include "transport/shm_world.hpp"

namespace {

using drive::shm_world;
using tutti::errc;
using tutti::shm_export;
using tutti::shm_options;
using tutti::detail::shm_handshake;
using namespace std::chrono_literals;
using tutti_test::forked_child;

constexpr shm_options small{.heap_bytes = 1 << 20};

tutti::rank_info peer_of(const forked_child& child, int rank) {
  tutti::rank_info p = drive::myself(rank);
  p.pid = child.pid();
  p.start_time = tutti::os::process_start_time(p.pid).value_or(0);
  return p;
}

/// Everything that the other side of a socket sends until it closes.
std::string read_all(int socket) {
  std::string text;
  char buffer[256];
  tutti::os::poller p;
  p.add(socket, tutti::os::interest::read, 0);
  for (;;) {
    (void)p.wait(10s);
    const auto n = ::recv(socket, buffer, sizeof buffer, 0);
    if (n <= 0) return text;
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

tutti::os::fd connect_to(const std::string& name) {
  auto s = tutti::os::start_connect(tutti::os::endpoint::unix_socket(name));
  return std::move(s.socket);
}

tutti_test::failure failure_of(shm_export& offer, const tutti::roster& all, tutti::duration limit) {
  return tutti_test::failure_of([&] { (void)offer.hand_out(all, 0, tutti::after(limit)); });
}

}  // namespace

TEST_CASE("an offer has a name that nobody can guess, and that ends with it") {
  std::string name;
  {
    const shm_export a{2, small}, b{2, small};
    name = a.name();
    CHECK(a.name() != b.name());
    CHECK(name.size() == 7 + 32);
    CHECK(name.front() == '@');
    CHECK(drive::name_exists(name.substr(1)));
  }
  CHECK_FALSE(drive::name_exists(name.substr(1)));
}

TEST_CASE("a world of one has its memory at once") {
  const tutti::roster all{drive::myself(0)};
  shm_export offer{1, small};
  const auto place = offer.hand_out(all, 0, tutti::after(10s));
  CHECK(place.local_size() == 1);
  CHECK(place.local_rank() == 0);
  CHECK_FALSE(drive::name_exists(offer.name().substr(1)));
}

TEST_CASE("an offer is refused to who must not hand it out") {
  tutti::roster all{drive::myself(0), drive::myself(1)};
  shm_export offer{2, small};
  CHECK_THROWS_AS((void)offer.hand_out(all, 1, tutti::after(1s)), tutti::usage_error);  // not the lowest
  CHECK_THROWS_AS((void)offer.hand_out(all, 2, tutti::after(1s)), tutti::usage_error);  // not in the roster
  all.pop_back();
  CHECK_THROWS_AS((void)offer.hand_out(all, 0, tutti::after(1s)), tutti::usage_error);  // for another number of ranks
  shm_export once{1, small};
  (void)once.hand_out(all, 0, tutti::after(1s));
  CHECK_THROWS_AS((void)once.hand_out(all, 0, tutti::after(1s)), tutti::usage_error);
  CHECK_THROWS_AS((shm_export{0, small}), tutti::usage_error);
}

TEST_CASE("whoever does not come is named at the deadline") {
  forked_child one{[] { return ::pause(); }}, two{[] { return ::pause(); }};
  const tutti::roster all{drive::myself(0), peer_of(one, 1), peer_of(two, 2)};
  shm_export offer{3, small};
  const auto e = failure_of(offer, all, 50ms);
  CHECK(e.kind == errc::rendezvous);
  CHECK(e.peer == 1);
  CHECK(e.text.find(tutti::describe(all[1]) + " and " + tutti::describe(all[2])) == 0);
  CHECK_FALSE(drive::name_exists(offer.name().substr(1)));
}

TEST_CASE("a member that dies before it comes ends the wait") {
  auto one = std::make_unique<forked_child>([] { return ::pause(); });
  const tutti::roster all{drive::myself(0), peer_of(*one, 1)};
  one.reset();  // killed and reaped
  shm_export offer{2, small};
  const auto e = failure_of(offer, all, 1h);
  CHECK(e.kind == errc::peer_lost);
  CHECK(e.peer == 1);
}

TEST_CASE("a pid that was used again is not the member") {
  shm_export offer{2, small};
  const std::string name = offer.name();
  forked_child impostor{[&] {
    const tutti::os::fd s = connect_to(name);
    return read_all(s.native()).empty() ? 0 : 1;
  }};
  REQUIRE(shm_world::eventually([&] { return drive::lines_with("/proc/net/unix", name.substr(1)) == 2; }));
  tutti::roster all{drive::myself(0), peer_of(impostor, 1)};
  all[1].start_time -= 1;
  const auto e = failure_of(offer, all, 1h);
  CHECK(e.kind == errc::peer_lost);
  CHECK(e.peer == 1);
  CHECK(impostor.wait() == 0);
}

TEST_CASE("strangers get nothing, delay nobody and change nothing") {
  shm_world world{3, [](int rank, shm_world& w) {
                    if (rank != 0) std::this_thread::sleep_for(30ms);
                    (void)w.take_place(rank);
                  }};
  REQUIRE(world.eventually([&] { return !world.name().empty() && drive::name_exists(world.name().substr(1)); }));
  std::vector<tutti::os::fd> strangers;
  std::mt19937 random{1};
  for (int i = 0; i < 40; ++i) {
    tutti::os::fd s = connect_to(world.name());
    if (!s) break;  // it is over already
    std::vector<char> garbage(random() % 3000);
    for (char& c : garbage) c = static_cast<char>(random());
    (void)::send(s.native(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
    const tutti::os::fd own{::dup(0)};
    const int number = own.native();
    const std::byte one{};
    (void)tutti::os::send_descriptors(s.native(), {&one, 1}, {&number, 1});
    strangers.push_back(std::move(s));
  }
  CHECK(!strangers.empty());
  CHECK(world.trouble() == "");
  for (const auto& s : strangers) CHECK(read_all(s.native()) == "");
}

TEST_CASE("a process of another user is refused, even with a pid of the roster") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root can become another user");
    return;
  }
  shm_export offer{2, small};
  const std::string name = offer.name();
  forked_child member{[&] {
    if (::setresuid(65534, 65534, 65534) != 0) return 2;
    const tutti::os::fd s = connect_to(name);
    return s && read_all(s.native()).empty() ? 0 : 1;
  }};
  const tutti::roster all{drive::myself(0), peer_of(member, 1)};
  const auto e = failure_of(offer, all, 300ms);
  CHECK((e.kind == errc::rendezvous || e.kind == errc::peer_lost));  // absent, or gone after it was turned away
  CHECK(e.peer == 1);
  CHECK(member.wait() == 0);
}

TEST_CASE("a member that waits when the set-up fails learns the cause") {
  shm_export offer{3, small};
  const std::string name = offer.name();
  // The first visitor is a stranger. Before the second is let in, the leader finds that somebody else is dead.
  const tutti::os::fd stranger = connect_to(name);
  forked_child waiting{[&] {
    const tutti::os::fd s = connect_to(name);
    std::this_thread::sleep_for(50ms);
    const std::string told = read_all(s.native());
    if (told.size() != shm_handshake::encoded_bytes) return 1;
    shm_handshake::encoded raw{};
    std::transform(told.begin(), told.end(), raw.begin(), [](char c) { return static_cast<std::byte>(c); });
    const auto hello = shm_handshake::decode(raw);
    return hello && hello->refusal == tutti::status{errc::peer_lost, 0, 2, 0} ? 0 : 2;
  }};
  auto dead = std::make_unique<forked_child>([] { return ::pause(); });
  tutti::roster all{drive::myself(0), peer_of(waiting, 1), peer_of(*dead, 2)};
  dead.reset();
  REQUIRE(shm_world::eventually([&] { return drive::lines_with("/proc/net/unix", name.substr(1)) == 3; }));
  const auto e = failure_of(offer, all, 1h);
  CHECK(e.kind == errc::peer_lost);
  CHECK(e.peer == 2);
  CHECK(waiting.wait() == 0);
}

TEST_CASE("a member that comes twice is served once") {
  shm_export offer{3, small};
  const std::string name = offer.name();
  forked_child twice{[&] {
    const tutti::os::fd first = connect_to(name), second = connect_to(name);
    const std::size_t a = read_all(first.native()).size(), b = read_all(second.native()).size();
    return a == shm_handshake::encoded_bytes && b == 0 ? 0 : 1;
  }};
  forked_child never{[] { return ::pause(); }};
  const tutti::roster all{drive::myself(0), peer_of(twice, 1), peer_of(never, 2)};
  const auto e = failure_of(offer, all, 500ms);
  CHECK(e.kind != errc::ok);
  CHECK(twice.wait() == 0);
}

TEST_CASE("a rank that is killed during set-up is an error for the others, whenever it happens") {
  std::mt19937 random{77};
  int during = 0, after = 0;
  for (int trial = 0; trial < 40; ++trial) {
    constexpr int n = 4;
    const int victim = static_cast<int>(random() % n);
    const bool late = trial % 4 == 0;  // the others have nothing to do but wait for it
    shm_world world{n, [victim, late](int rank, shm_world& w) {
                      if (late && rank == victim) {
                        std::optional<shm_export> offer;
                        if (rank == 0) w.publish(offer.emplace(w.size(), small).name());
                        w.meet(rank);
                        ::pause();
                      }
                      const auto place = w.take_place(rank, 1h);
                      // Set up: from here on the transport watches.
                      while (!w.word(0)) std::this_thread::sleep_for(1ms);
                    }};
    std::this_thread::sleep_for(std::chrono::microseconds{random() % 12000});
    if (late) REQUIRE(world.eventually([&] { return world.of(victim).stage == shm_world::registered; }));
    world.signal(victim, SIGKILL);
    REQUIRE(world.ends(victim));
    if (world.of(victim).stage == shm_world::nowhere || !world.eventually([&] { return !world.name().empty(); }, 1s))
      world.stop();  // it is missing at the roll call already
    world.word(0) = 1;
    for (int r = 0; r < n; ++r) {
      CAPTURE(trial);
      CAPTURE(victim);
      CAPTURE(world.of(r).message);
      REQUIRE(world.ends(r));
      if (r == victim) continue;
      const int code = world.of(r).code;
      const bool lost = code == static_cast<int>(errc::peer_lost) && world.of(r).peer == victim;
      // Whoever comes when the leader has given up already can only tell that it is gone.
      const bool turned_away =
          r != 0 && world.of(r).peer == 0 &&
          (code == static_cast<int>(errc::peer_lost) || code == static_cast<int>(errc::rendezvous));
      CHECK((lost || turned_away || code == shm_world::fine || code == shm_world::stopped));
      during += lost;
      after += code == shm_world::fine;
    }
  }
  MESSAGE(during << " ranks learned of it during set-up, " << after << " had finished");
  CHECK(during >= 10);
}

TEST_CASE("too little memory for the fixed part is an error before anything is mapped") {
  // The kernel's own limit on files stands for a small machine: it makes the leader say so instead of being killed.
  forked_child child{[] {
    const rlimit limit{1 << 20, 1 << 20};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    try {
      const shm_export offer{4};
    } catch (const tutti::error& e) {
      return e.kind() == errc::out_of_resources && std::string{e.what()}.find("ulimit -f") != std::string::npos ? 0 : 1;
    }
    return 3;
  }};
  CHECK(child.wait() == 0);
}

TEST_CASE("little address space makes smaller heaps") {
  forked_child child{[] {
    std::ifstream in{"/proc/self/statm"};  // sanitizers use much of it already
    std::uint64_t used = 0;
    in >> used;
    const std::uint64_t left = std::uint64_t{3} << 30;
    const rlimit limit{used * tutti::os::page_bytes() + left, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_AS, &limit) != 0) return 2;
    shm_export offer{1};
    const auto place = offer.hand_out({drive::myself(0)}, 0, tutti::after(10s));
    return place.layout().heap_bytes < left ? 0 : 1;
  }};
  CHECK(child.wait() == 0);
}

TEST_CASE("a world that sleeps on descriptors gets one for each rank") {
  shm_world world{3,
                  [](int rank, shm_world& w) {
                    tutti::shm_attachment place = w.take_place(rank);
                    auto bells = place.take_bells();
                    if (bells.size() != 3) throw std::runtime_error("not one bell per rank");
                    if (!place.take_bells().empty()) throw std::runtime_error("bells twice");
                    bells[static_cast<std::size_t>((rank + 1) % 3)].notify();
                    tutti::os::poller p;
                    p.add(bells[static_cast<std::size_t>(rank)].native(), tutti::os::interest::read, 0);
                    if (p.wait(10s).empty()) throw std::runtime_error("nobody rang");
                    w.word(0).fetch_add(1);
                    while (w.word(0) < 3) std::this_thread::sleep_for(1ms);
                  },
                  {.heap_bytes = 1 << 20, .sleep_on = tutti::shm_control_block::sleep::on_descriptor}};
  CHECK(world.trouble() == "");
}
