#include <tutti/bootstrap/spawn/report.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <vector>

using tutti::detail::spawn_report;

namespace {

spawn_report through_bytes(const spawn_report& r) {
  std::vector<std::byte> bytes(spawn_report::longest);
  tutti::wire::byte_reader in{encode(r, bytes)};
  const auto back = tutti::detail::decode_report(in);
  REQUIRE(back);
  CHECK(in.rest().empty());
  return *back;
}

template <class Exception>
spawn_report of(const Exception& thrown, int rank) {
  try {
    throw thrown;
  } catch (...) {
    return tutti::detail::report_of_exception(rank);
  }
}

}  // namespace

TEST_CASE("spawn report: an exception arrives with its kind and its text, which is cut at its limit") {
  const tutti::status why{tutti::errc::timed_out, 3, 7, 42};
  const auto own = through_bytes(of(tutti::error{why, "it took too long", {2, 99}}, 2));
  CHECK(own.kind == spawn_report::what::failed);
  CHECK(own.rank == 2);
  CHECK(own.why == why);
  CHECK(own.sequence == 99);
  CHECK(own.text == "it took too long");

  CHECK(through_bytes(of(tutti::usage_error{"no such root"}, 1)).kind == spawn_report::what::misused);
  CHECK(through_bytes(of(std::runtime_error{"no file"}, 1)).text == "std::runtime_error: no file");
  CHECK(through_bytes(of(5, 1)).text == "int");
  CHECK(through_bytes(of(std::runtime_error{std::string(100000, 'x')}, 1)).text.size() == spawn_report::longest_text);
}

TEST_CASE("spawn report: bytes that are none are refused") {
  std::vector<std::byte> bytes(spawn_report::longest);
  auto whole = encode(of(std::runtime_error{"no file"}, 1), bytes);
  for (std::size_t n = 0; n < whole.size(); ++n) {
    tutti::wire::byte_reader in{whole.first(n)};
    CHECK(!tutti::detail::decode_report(in));
  }
  bytes[0] = std::byte{200};
  tutti::wire::byte_reader in{whole};
  CHECK(!tutti::detail::decode_report(in));
}

TEST_CASE("spawn report: a failure that another rank has caused, or found, is a consequence") {
  using enum tutti::errc;
  const auto consequence = [](const tutti::status& why) { return of(tutti::error{why, ""}, 2).is_consequence(); };
  CHECK(consequence({aborted, 0, 1, 0}));
  CHECK(consequence(tutti::status::lost(0, tutti::loss::died)));
  CHECK(consequence({peer_left, 0, 3, 0}));
  CHECK(consequence({timed_out, 1 + 1, 0, 0}));  // rank 1 has waited for rank 0 in vain
  CHECK(!consequence({timed_out, 1 + 2, 0, 0}));
  CHECK(!consequence({timed_out, 0, 0, 0}));
  CHECK(!consequence({aborted, 0, 2, 0}));
  CHECK(!of(std::runtime_error{"no file"}, 2).is_consequence());
}
