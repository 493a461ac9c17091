#include <doctest/doctest.h>
#include <sys/mman.h>

#include <array>
#include <fstream>
#include <string>
#include <support/temporary_directory.hpp>
#include <tutti/wire/listen_policy.hpp>
#include <tutti/wire/load_secret.hpp>
#include <tutti/wire/secret.hpp>

using namespace tutti::wire;

namespace {

const std::string digits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

std::string write_file(const tutti_test::temporary_directory& dir, const std::string& content, ::mode_t mode = 0600) {
  static int number = 0;
  const std::string path = dir.file("secret" + std::to_string(++number));
  std::ofstream{path, std::ios::binary} << content;
  ::chmod(path.c_str(), mode);
  return path;
}

std::string why_not_file(const std::string& path) {
  try {
    (void)load_secret_file(path);
    return "loaded";
  } catch (const tutti::error& e) {
    CHECK(e.kind() == tutti::errc::auth_failed);
    const std::string text = e.what();
    CHECK(text.find(path) != std::string::npos);
    CHECK(text.find("0001020304") == std::string::npos);
    return text;
  }
}

bool contains(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("secrets are random, comparable, and exact in hexadecimal") {
  CHECK_FALSE(secret::random() == secret::random());
  const auto s = secret::from_hex(digits);
  REQUIRE(s.has_value());
  CHECK(s->bytes[31] == std::byte{31});
  CHECK(*s == *secret::from_hex(digits));
  CHECK_FALSE(secret::from_hex(digits.substr(1)).has_value());
  CHECK_FALSE(secret::from_hex(digits + "00").has_value());
  CHECK_FALSE(secret::from_hex("").has_value());
}

TEST_CASE("a secret is wiped when it is destroyed") {
  alignas(secret) std::array<std::byte, sizeof(secret)> place{};
  auto* s = new (place.data()) secret(*secret::from_hex(digits));
  REQUIRE(place[31] == std::byte{31});
  s->~secret();
  // Read through volatile: the compiler may assume that nobody looks at a destroyed object.
  const volatile std::byte* look = place.data();
  int left = 0;
  for (std::size_t i = 0; i < place.size(); ++i) left += std::to_integer<int>(look[i]);
  CHECK(left == 0);
}

TEST_CASE("a secret comes from a file of 32 bytes or 64 digits that only its user can read") {
  const tutti_test::temporary_directory dir;
  const auto expected = *secret::from_hex(digits);
  std::string raw;
  for (const std::byte b : expected.bytes) raw += static_cast<char>(b);
  CHECK(load_secret_file(write_file(dir, raw)) == expected);
  CHECK(load_secret_file(write_file(dir, digits)) == expected);
  CHECK(load_secret_file(write_file(dir, digits + "\n")) == expected);
  CHECK(load_secret_file(write_file(dir, digits, 0400)) == expected);

  CHECK(contains(why_not_file(write_file(dir, digits, 0640)), "chmod 600"));
  CHECK(contains(why_not_file(write_file(dir, digits, 0604)), "chmod 600"));
  CHECK(contains(why_not_file(write_file(dir, "")), "32 bytes"));
  CHECK(contains(why_not_file(write_file(dir, raw.substr(1))), "32 bytes"));
  CHECK(contains(why_not_file(write_file(dir, digits + "00")), "32 bytes"));
  CHECK(contains(why_not_file(write_file(dir, std::string(100000, '0'))), "32 bytes"));
  CHECK(contains(why_not_file(dir.path().string()), "not a regular file"));
  CHECK(contains(why_not_file(dir.file("missing")), "No such file"));
  REQUIRE(::mkfifo(dir.file("fifo").c_str(), 0600) == 0);
  CHECK(contains(why_not_file(dir.file("fifo")), "not a regular file"));
}

TEST_CASE("symbolic links count only if they are one's own") {
  const tutti_test::temporary_directory dir;
  const std::string target = write_file(dir, digits), link = dir.file("link");
  REQUIRE(::symlink(target.c_str(), link.c_str()) == 0);
  CHECK(load_secret_file(link) == *secret::from_hex(digits));
  if (::geteuid() != 0) {
    MESSAGE("left out: only root can make a link of another user");
    return;
  }
  REQUIRE(::lchown(link.c_str(), 65534, 65534) == 0);
  CHECK(contains(why_not_file(link), "symbolic link of another user"));
  REQUIRE(::chown(target.c_str(), 65534, 65534) == 0);
  CHECK(contains(why_not_file(target), "another user"));
}

TEST_CASE("a secret comes from an inherited descriptor, however often it is read") {
  const detail::scoped_descriptor memory{::memfd_create("secret", MFD_CLOEXEC)};
  REQUIRE(::write(memory.value, digits.data(), digits.size()) == 64);
  CHECK(load_secret(memory.value) == *secret::from_hex(digits));
  CHECK(load_secret(memory.value) == *secret::from_hex(digits));

  int ends[2] = {-1, -1};
  REQUIRE(::pipe(ends) == 0);
  const detail::scoped_descriptor in{ends[0]};
  {
    const detail::scoped_descriptor out{ends[1]};
    REQUIRE(::write(out.value, digits.data(), digits.size()) == 64);
  }
  CHECK(load_secret(in.value) == *secret::from_hex(digits));
  CHECK_THROWS_AS((void)load_secret(in.value), tutti::error);
  CHECK_THROWS_AS((void)load_secret(-1), tutti::error);
}

TEST_CASE("listening for strangers without a secret has to be spelled out") {
  CHECK(why_not_listen("10.0.0.1:1", reach::network, protection::secret).empty());
  CHECK(why_not_listen("10.0.0.1:1", reach::network, protection::insecure).empty());
  CHECK(why_not_listen("127.0.0.1:1", reach::this_machine, protection::none).empty());
  const std::string text = why_not_listen("10.0.0.1:1", reach::network, protection::none);
  CHECK(contains(text, "10.0.0.1:1"));
  CHECK(contains(text, "insecure"));
}
