#include <doctest/doctest.h>

#include <random>
#include <string>
#include <string_view>
#include <tutti/bootstrap/launch/hostlist.hpp>
#include <vector>

namespace {
using hosts = std::vector<std::string>;

std::string refusal(std::string_view text) {
  try {
    return "accepted, first " + tutti::expand_hostlist(text).front();
  } catch (const tutti::usage_error& e) {
    return e.what();
  }
}
}  // namespace

TEST_CASE("hostlist: names come out in the order written") {
  using tutti::expand_hostlist;
  CHECK(expand_hostlist("node07") == hosts{"node07"});
  CHECK(expand_hostlist("a,b-2,c.x.org,d_1") == hosts{"a", "b-2", "c.x.org", "d_1"});
  CHECK(expand_hostlist("node[07-08]") == hosts{"node07", "node08"});
  CHECK(expand_hostlist("a[1-3,07-09],b,c[1-2]x[0-1]") ==
        hosts{"a1", "a2", "a3", "a07", "a08", "a09", "b", "c1x0", "c1x1", "c2x0", "c2x1"});
  CHECK(expand_hostlist("a[9-11]") == hosts{"a9", "a10", "a11"});
  CHECK(expand_hostlist("a[09-11]") == hosts{"a09", "a10", "a11"});
  CHECK(expand_hostlist("a[098-101]b") == hosts{"a098b", "a099b", "a100b", "a101b"});
  CHECK(expand_hostlist("a[3,1,2]") == hosts{"a3", "a1", "a2"});
  CHECK(expand_hostlist("a[5-5],a[0]") == hosts{"a5", "a0"});
  CHECK(expand_hostlist("[1-2]") == hosts{"1", "2"});
  CHECK(expand_hostlist("r[1-2][3-4]") == hosts{"r13", "r14", "r23", "r24"});
  CHECK(expand_hostlist("a[4294967294-4294967295]") == hosts{"a4294967294", "a4294967295"});
  CHECK(expand_hostlist("n[0-65535]").back() == "n65535");
}

TEST_CASE("hostlist: anything else is refused with the list quoted") {
  const struct {
    const char* text;
    const char* says;
  } table[] = {
      {"", "empty"},
      {",", "empty"},
      {"a,", "empty"},
      {"a,,b", "empty"},
      {"a[", "brackets"},
      {"a[1", "brackets"},
      {"a]", "brackets"},
      {"a[1-2]]", "brackets"},
      {"a[]", "numbers"},
      {"a[1,]", "numbers"},
      {"a[-1]", "numbers"},
      {"a[1-]", "numbers"},
      {"a[1-2-3]", "numbers"},
      {"a[x]", "numbers"},
      {"a[[1]]", "numbers"},
      {"a[3-1]", "backwards"},
      {"a b", "letters"},
      {"a;reboot", "letters"},
      {"(null)", "letters"},
      {"a[0-65536]", "65536"},
      {"a[1-9999999999]", "numbers"},
      {"a[1-300]b[1-300]", "65536"},
      {"a[0-65535],b", "65536"},
      {"a[0-4294967295]", "65536"},
  };
  for (const auto& bad : table) {
    CAPTURE(bad.text);
    const std::string why = refusal(bad.text);
    CHECK_MESSAGE(why.find(bad.says) != std::string::npos, why);
    CHECK_MESSAGE(why.find("host list \"") != std::string::npos, why);
  }
  std::string product = "a";
  for (int i = 0; i < 40; ++i) product += "[0-9]";
  CHECK(refusal(product).find("65536") != std::string::npos);
  CHECK(refusal("a[" + std::string(100, '0') + "1-2]").find("64 digits") != std::string::npos);
}

TEST_CASE("hostlist: random lists are refused or stay within the limit") {
  std::mt19937 random(11);
  const std::string letters = "ab[]-,0123456789.";
  int accepted = 0;
  for (int i = 0; i < 50000; ++i) {
    std::string text = "n";
    for (auto n = random() % 12; n > 0; --n) text += letters[random() % letters.size()];
    try {
      const auto names = tutti::expand_hostlist(text);
      ++accepted;
      REQUIRE(!names.empty());
      REQUIRE(names.size() <= 65536);
      for (const auto& name : names) REQUIRE(name.find_first_of("[],") == std::string::npos);
    } catch (const tutti::usage_error&) {
    }
  }
  CHECK(accepted > 1000);
}
