#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <tutti/transport/shm/import.hpp>
#include <vector>

#include "transport/shm_world.hpp"

namespace {

using drive::shm_world;
using tutti::errc;
using tutti::shm_layout;
using tutti::detail::shm_handshake;
using namespace std::chrono_literals;

/// A leader that this test plays by hand; rank 1 is the child.
class false_leader {
 public:
  struct result {
    int kind;
    std::string message;
  };
  using act = std::function<void(int visitor)>;

  /// The error that shm_import() ends with while the leader behaves as `with` says.
  result meet(
      const act& with, tutti::duration limit = 20s,
      const std::function<void(tutti::roster&)>& change = [](tutti::roster&) {}) {
    const std::string name = "@tutti-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count_);
    tutti::os::fd listener = tutti::os::listen_on(tutti::os::endpoint::unix_socket(name));
    tutti::rank_info leader = drive::myself(0);
    shm_world world{1, [&](int, shm_world& w) {
                      listener.reset();
                      tutti::roster all{leader, drive::myself(1)};
                      change(all);
                      (void)tutti::shm_import(name, all, 1, tutti::after(limit));
                      w.report(0, {}, "accepted");
                    }};
    if (with) {
      tutti::os::poller p;
      p.add(listener.native(), tutti::os::interest::read, 0);
      (void)p.wait(10s);
      const auto visitor = tutti::os::accept_connection(listener.native());
      if (visitor.socket) with(visitor.socket.native());
      if (keep_open) world.ends(0);
    } else {
      world.ends(0);
    }
    if (!world.ends(0)) return {-99, "hangs"};
    return {world.of(0).code, world.of(0).message};
  }

  bool keep_open = false;

 private:
  static inline int count_ = 0;
};

const shm_layout layout = shm_layout::of(2, 1 << 20);

shm_handshake good_hello() {
  shm_handshake h;
  h.ranks = 2;
  h.local_rank = 1;
  h.area_bytes = layout.area_bytes;
  h.heap_bytes = layout.heap_bytes;
  return h;
}

false_leader::act sends(const shm_handshake& h, int descriptor) {
  return [raw = h.encode(), descriptor](int visitor) {
    const std::span<const int> one{&descriptor, 1};
    CHECK(tutti::os::send_descriptors(visitor, raw, one.first(descriptor < 0 ? 0 : 1)).bytes == raw.size());
  };
}

bool says(const false_leader::result& r, errc kind, const std::string& part) {
  return r.kind == static_cast<int>(kind) && r.message.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a leader of another version is a violation of the protocol") {
  auto segment = tutti::os::shm_segment::create(layout.bytes());
  shm_handshake h = good_hello();
  constexpr auto ours = tutti::shm_layout::version;
  h.version = ours + 1;
  const auto r = false_leader{}.meet(sends(h, segment.native()));
  const auto said = "version " + std::to_string(ours + 1) + ", this rank by version " + std::to_string(ours);
  CHECK_MESSAGE(says(r, errc::protocol, said), r.message);
}

TEST_CASE("a leader that counts differently is a violation of the protocol") {
  auto segment = tutti::os::shm_segment::create(layout.bytes());
  const std::vector<std::function<void(shm_handshake&)>> lies{
      [](shm_handshake& h) { h.ranks = 3; },       [](shm_handshake& h) { h.local_rank = 0; },
      [](shm_handshake& h) { h.bells = 1; },       [](shm_handshake& h) { h.area_bytes += 4096; },
      [](shm_handshake& h) { h.heap_bytes += 1; }, [](shm_handshake& h) { h.heap_bytes = ~std::uint64_t{0}; },
      [](shm_handshake& h) { h.ranks = 0; },
  };
  for (const auto& lie : lies) {
    shm_handshake h = good_hello();
    lie(h);
    const auto r = false_leader{}.meet(sends(h, segment.native()));
    CHECK_MESSAGE(r.kind == static_cast<int>(errc::protocol), r.message);
  }
}

TEST_CASE("a leader that sends something else is a violation of the protocol") {
  const auto r = false_leader{}.meet([](int visitor) {
    const std::string text(64, 'x');
    CHECK(::send(visitor, text.data(), text.size(), 0) == 64);
  });
  CHECK_MESSAGE(says(r, errc::protocol, "something else"), r.message);
}

TEST_CASE("memory that could shrink or has another size is refused") {
  const int unsealed = ::memfd_create("unsealed", MFD_CLOEXEC);
  REQUIRE(unsealed >= 0);
  const tutti::os::fd owner{unsealed};
  CHECK(::ftruncate(unsealed, static_cast<off_t>(layout.bytes())) == 0);
  auto r = false_leader{}.meet(sends(good_hello(), unsealed));
  CHECK_MESSAGE(says(r, errc::protocol, "sealed"), r.message);

  auto smaller = tutti::os::shm_segment::create(layout.bytes() - 4096);
  r = false_leader{}.meet(sends(good_hello(), smaller.native()));
  CHECK_MESSAGE(r.kind == static_cast<int>(errc::protocol), r.message);
}

TEST_CASE("a hello without its memory, or with too much, is refused") {
  auto r = false_leader{}.meet(sends(good_hello(), -1));
  CHECK_MESSAGE(r.kind == static_cast<int>(errc::rendezvous), r.message);
  r = false_leader{}.meet([](int visitor) {
    const std::array<int, 2> two{0, 0};
    CHECK(tutti::os::send_descriptors(visitor, good_hello().encode(), two).bytes == shm_handshake::encoded_bytes);
  });
  CHECK_MESSAGE(says(r, errc::protocol, "more descriptors"), r.message);
}

TEST_CASE("a leader that closes the door is reported at once") {
  const auto r = false_leader{}.meet([](int) {}, 1h);
  CHECK_MESSAGE(says(r, errc::rendezvous, "closed the connection"), r.message);
}

TEST_CASE("a hello that stops in the middle is reported at once") {
  const auto r = false_leader{}.meet([](int visitor) { CHECK(::send(visitor, "utti", 4, 0) == 4); }, 1h);
  CHECK_MESSAGE(says(r, errc::rendezvous, "closed the connection"), r.message);
}

TEST_CASE("a hello in pieces is put together") {
  auto segment = tutti::os::shm_segment::create(layout.bytes());
  segment.reserve(0, layout.area_bytes);
  const auto memory = segment.map();
  false_leader leader;
  leader.keep_open = true;
  const auto r = leader.meet(
      [&](int visitor) {
        const auto raw = good_hello().encode();
        const int number = segment.native();
        CHECK(tutti::os::send_descriptors(visitor, std::span{raw}.first(10), {&number, 1}).bytes == 10);
        std::this_thread::sleep_for(20ms);
        CHECK(::send(visitor, raw.data() + 10, raw.size() - 10, 0) == static_cast<ssize_t>(raw.size() - 10));
      },
      300ms);
  // The leader never signs in, which the member finds out after it has mapped the memory.
  CHECK_MESSAGE(says(r, errc::rendezvous, "rank 0 (host "), r.message);
  CHECK_MESSAGE(says(r, errc::rendezvous, "did not sign in"), r.message);
  const tutti::shm_control_block area{memory.data(), 2};
  CHECK(area.failure().code == errc::rendezvous);  // the leader will hear of it
  CHECK(area.block(1).pid != 0);
}

TEST_CASE("a leader that says nothing is named at the deadline") {
  false_leader leader;
  leader.keep_open = true;
  auto r = leader.meet([](int) {}, 50ms);
  CHECK_MESSAGE(says(r, errc::rendezvous, "rank 0 (host "), r.message);
  CHECK_MESSAGE(says(r, errc::rendezvous, "did not hand out"), r.message);
  r = false_leader{}.meet(nullptr, 50ms);  // does not even accept
  CHECK_MESSAGE(says(r, errc::rendezvous, "did not hand out"), r.message);
}

TEST_CASE("a name that belongs to somebody else is an impostor's") {
  const auto r = false_leader{}.meet(nullptr, 20s, [](tutti::roster& all) { all[0].pid += 1; });
  CHECK_MESSAGE(says(r, errc::auth_failed, "pid " + std::to_string(::getpid())), r.message);
}

TEST_CASE("a name of another user is an impostor's") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: only root can become another user");
    return;
  }
  const auto r = false_leader{}.meet(nullptr, 20s, [](tutti::roster&) {
    if (::setresuid(65534, 65534, 65534) != 0) throw std::runtime_error("cannot become another user");
  });
  CHECK_MESSAGE(says(r, errc::auth_failed, "of user 0"), r.message);
}

TEST_CASE("a leader that is dead is lost") {
  auto dead = std::make_unique<tutti_test::forked_child>([] { return ::pause(); });
  tutti::roster all{drive::myself(0), drive::myself(1)};
  all[0].pid = dead->pid();
  all[0].start_time = tutti::os::process_start_time(dead->pid()).value_or(0);
  dead.reset();
  try {
    (void)tutti::shm_import("@tutti-test-nobody", all, 1, tutti::after(1h));
    FAIL("there was nobody");
  } catch (const tutti::error& e) {
    CHECK(e.kind() == errc::peer_lost);
    CHECK(e.peer() == 0);
  }
}

TEST_CASE("a name that nobody listens at means that the leader gave up") {
  tutti_test::forked_child leader{[] { return ::pause(); }};
  tutti::roster all{drive::myself(0), drive::myself(1)};
  all[0].pid = leader.pid();
  all[0].start_time = tutti::os::process_start_time(leader.pid()).value_or(0);
  try {
    (void)tutti::shm_import("@tutti-test-nobody", all, 1, tutti::after(1h));
    FAIL("there was nobody");
  } catch (const tutti::error& e) {
    CHECK(e.kind() == errc::rendezvous);
    CHECK(std::string{e.what()}.find("nobody listens") != std::string::npos);
  }
}

TEST_CASE("a member that cannot map the memory says so to all, also to whoever comes when the leader knows") {
  shm_world world{3,
                  [](int rank, shm_world& w) {
                    if (rank == 1) {
                      std::ifstream in{"/proc/self/statm"};
                      std::uint64_t used = 0;
                      in >> used;
                      const rlimit limit{used * tutti::os::page_bytes() + (rlim_t{3} << 30), RLIM_INFINITY};
                      if (::setrlimit(RLIMIT_AS, &limit) != 0) throw std::runtime_error("setrlimit");
                    }
                    if (rank != 2) return (void)w.take_place(rank, 1h);
                    const tutti::roster all = w.meet(rank);
                    while (w.of(1).code == shm_world::no_outcome) std::this_thread::sleep_for(1ms);
                    std::this_thread::sleep_for(50ms);
                    (void)tutti::shm_import(w.name(), all, rank, tutti::after(1h));
                  },
                  {.heap_bytes = std::uint64_t{4} << 30}};
  for (int r = 0; r < 3; ++r) {
    REQUIRE(world.ends(r));
    CHECK_MESSAGE(world.of(r).code == static_cast<int>(errc::out_of_resources), world.of(r).message);
    CHECK(std::string{world.of(r).message}.find(r == 1 ? "ulimit -v" : "rank 1 (host ") != std::string::npos);
  }
}

TEST_CASE("the leader itself does not visit") {
  const tutti::roster all{drive::myself(0)};
  CHECK_THROWS_AS((void)tutti::shm_import("@x", all, 0, tutti::after(1s)), tutti::usage_error);
}
