#include <doctest/doctest.h>

#include <string>
#include <tutti/bootstrap/openssl.hpp>
#include <tutti/wire/hex.hpp>
#include <vector>

namespace {

std::vector<std::byte> from_hex(const std::string& text) {
  std::vector<std::byte> b(text.size() / 2);
  REQUIRE(tutti::wire::parse_hex(text, b));
  return b;
}

std::string hmac(const std::vector<std::byte>& key, const std::vector<std::byte>& data) {
  tutti::wire::mac out{};
  const auto compute = tutti::wire::hmac_provider.load();
  const bool done = compute != nullptr && compute(key, data, out);
  REQUIRE(done);
  return tutti::wire::to_hex(out);
}

}  // namespace

TEST_CASE("including the header registers OpenSSL as the provider") {
  const bool registered = tutti::wire::hmac_provider.load() == &tutti::openssl_hmac;
  CHECK(registered);
  CHECK_NOTHROW(tutti::wire::require_hmac_provider());
}

TEST_CASE("HMAC-SHA256 of RFC 4231") {
  CHECK(hmac(std::vector<std::byte>(20, std::byte{0x0b}), from_hex("4869205468657265")) ==
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  CHECK(hmac(from_hex("4a656665"), from_hex("7768617420646f2079612077616e7420666f72206e6f7468696e673f")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  CHECK(hmac(std::vector<std::byte>(20, std::byte{0xaa}), std::vector<std::byte>(50, std::byte{0xdd})) ==
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
  CHECK(hmac(from_hex("0102030405060708090a0b0c0d0e0f10111213141516171819"),
             std::vector<std::byte>(50, std::byte{0xcd})) ==
        "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b");
  CHECK(hmac(std::vector<std::byte>(131, std::byte{0xaa}),
             from_hex("54657374205573696e67204c6172676572205468616e20426c6f636b2d53697a65204b6579202d20486173"
                      "68204b6579204669727374")) == "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}
