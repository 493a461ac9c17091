#include <doctest/doctest.h>
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/bootstrap/launch/launcher_report.hpp>
#include <tutti/os/fd.hpp>

namespace {
using tutti::errc;
using tutti::status;

struct ends {
  explicit ends(int kind) {
    std::array<int, 2> both{-1, -1};
    REQUIRE(::socketpair(AF_UNIX, kind | SOCK_CLOEXEC, 0, both.data()) == 0);
    launcher = tutti::os::fd{both[0]};
    rank = tutti::os::fd{both[1]};
  }
  tutti::os::fd launcher, rank;
};

tutti::failure_listener listener(const std::string& descriptor, const char* rank = "2", const char* size = "4") {
  const auto get = [&](std::string_view name) -> std::optional<std::string_view> {
    if (name == "RANK") return rank;
    if (name == "WORLD_SIZE") return size;
    if (name == "TUTTI_REPORT_FD" && !descriptor.empty()) return descriptor;
    return std::nullopt;
  };
  return tutti::detail::launcher_listener(get, 2, 4);
}
}  // namespace

TEST_CASE("launcher_report: others are blamed for what they were told to have done, and for nothing else") {
  using tutti::detail::cause_of;
  for (const errc told : {errc::aborted, errc::peer_lost, errc::peer_left}) {
    CHECK(cause_of(2, {told, 0, 3, 0}) == 3);
    CHECK(cause_of(2, {told, 0, 2, 0}) == -1);
    CHECK(cause_of(2, {told, 0, -1, 0}) == -1);
  }
  for (const errc met : {errc::timed_out, errc::mismatch, errc::system}) CHECK(cause_of(2, {met, 0, 3, 0}) == -1);
}

TEST_CASE("launcher_report: a launcher that listens hears of it, and nobody waits for one that does not read") {
  const ends both{SOCK_SEQPACKET};
  const auto who = listener(std::to_string(both.rank.native()));
  REQUIRE((who.tell == &tutti::detail::report_failure));
  CHECK((who.rank == 2 && who.descriptor == both.rank.native()));
  std::int32_t told[2] = {};
  for (const status why : {status{errc::peer_lost, 0, 3, 0}, status{errc::timed_out, 0, 3, 0}}) {
    who.tell(who.rank, who.descriptor, why);
    REQUIRE(::recv(both.launcher.native(), told, sizeof told, MSG_DONTWAIT) == sizeof told[0]);
    CHECK(told[0] == (why.code == errc::peer_lost ? 3 : -1));
  }
  for (int i = 0; i < 10000; ++i) who.tell(who.rank, who.descriptor, {errc::peer_lost, 0, 3, 0});
}

TEST_CASE("launcher_report: nothing is written where the descriptor or the world is another's") {
  const ends both{SOCK_SEQPACKET}, stream{SOCK_STREAM};
  const std::string good = std::to_string(both.rank.native());
  for (const auto& who :
       {listener(""), listener("x"), listener("-1"), listener("999999"), listener(good, "1"), listener(good, "2", "5"),
        listener(good, "two"), listener(std::to_string(stream.rank.native()))})
    CHECK((who.tell == nullptr));
}
