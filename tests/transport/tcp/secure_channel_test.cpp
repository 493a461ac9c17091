#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <tutti/bootstrap/tls.hpp>
#include <tutti/transport/tcp/transport.hpp>

#include <support/words.hpp>

#include "transport/tcp_proxy.hpp"
#include "transport/tcp_world.hpp"

// Worlds whose connections are encrypted, beside the same ones in the clear.
namespace {

using namespace tcp_world;
using tutti_test::contains;

tutti::wire::secret secret_of(int n) {
  tutti::wire::secret s;
  s.bytes.fill(static_cast<std::byte>(n));
  return s;
}

/// `ranks` ranks that have a secret, encrypted or not.
plan with_secret(int ranks, bool encrypted) {
  plan p{ranks, tutti::wire::protection::secret};
  for (auto& job : p.jobs) {
    job.secret = secret_of(7);
    job.encrypted = encrypted;
  }
  return p;
}

std::string words(const status& s) {
  return s.ok() ? "well" : tutti::category().message(static_cast<int>(s.code)) + ", rank " + std::to_string(s.peer);
}

/// Two ranks of which rank 0 sends a message of 1 MB to rank 1 through `m`, which sees and may change what goes there.
struct outcome {
  std::vector<std::string> said;
  bool right = false;  ///< what rank 1 has got
  std::optional<std::string> who;
};
outcome through(proxy::meddler m, bool encrypted) {
  plan p = with_secret(2, encrypted);
  const proxy middle{p.peers[1].endpoint, std::move(m)};
  p.peers[1].endpoint = middle.endpoint();
  p.peers[0].memory_domain = "a";  // two machines
  p.peers[1].memory_domain = "b";
  outcome out;
  const auto message = drive::pattern(1000000, 1);
  out.said = in_threads(p, [&](driver& d) {
    if (d.transport().rank() == 0) {
      const auto f = d.send(1, 1 << 24, message);
      status s = d.wait(*f);
      std::byte ok{};
      if (s.ok()) {
        const auto answer = d.recv(1, 2 << 24, std::span{&ok, 1});
        s = d.wait(*answer);
      }
      if (!s.ok()) out.who = d.transport().describe(1);
      return words(s);
    }
    std::vector<std::byte> in(message.size());
    const auto f = d.recv(0, 1 << 24, in);
    const status s = d.wait(*f);
    out.right = in == message;
    if (!s.ok()) return words(s);
    const std::byte ok{1};
    const auto answer = d.send(0, 2 << 24, std::span{&ok, 1});
    return words(d.wait(*answer));
  });
  return out;
}

proxy::meddler flip_at(std::uint64_t where) {
  return [where](std::uint64_t offset, std::span<std::byte> bytes) {
    if (where >= offset && where < offset + bytes.size()) bytes[where - offset] ^= std::byte{1};
    return true;
  };
}

}  // namespace

TEST_CASE("secure channel: messages of all sizes go round a ring, on one connection each way and on several") {
  for (const int connections : {1, 3}) {
    plan p = with_secret(3, true);
    p.options.connections = connections;
    for (const std::string& text : in_threads(p, [](driver& d) { return words(work(d, 12)); })) CHECK(text == "well");
  }
}

TEST_CASE("secure channel: small buffers of the kernel, which records do not fit into") {
  plan p = with_secret(3, true);
  p.options.buffer_bytes = 40000;
  for (const std::string& text : in_threads(p, [](driver& d) { return words(work(d, 6)); })) CHECK(text == "well");
}

TEST_CASE("secure channel: who is in the middle sees messages of a world in the clear, and none of an encrypted one") {
  const auto message = drive::pattern(1000000, 1);
  const auto part = std::span{message}.subspan(500000, 16);
  for (const bool encrypted : {false, true}) {
    std::vector<std::byte> seen;
    const outcome out = through(
        [&](std::uint64_t, std::span<std::byte> bytes) {
          seen.insert(seen.end(), bytes.begin(), bytes.end());
          return true;
        },
        encrypted);
    CHECK(out.said == std::vector<std::string>{"well", "well"});
    CHECK(out.right);
    CHECK(seen.size() > message.size());
    const bool found = std::search(seen.begin(), seen.end(), part.begin(), part.end()) != seen.end();
    CHECK(found == !encrypted);
  }
}

TEST_CASE("secure channel: a byte that is changed on the way is wrong data in the clear, and an error if encrypted") {
  const outcome clear = through(flip_at(500000), false);
  CHECK(clear.said == std::vector<std::string>{"well", "well"});
  CHECK_FALSE(clear.right);
  const outcome encrypted = through(flip_at(500000), true);
  CHECK_FALSE(encrypted.right);
  // The finder tells its peer, which maybe hears first, by an alert, that its connection is broken.
  CHECK(encrypted.said[1] == "authentication failed, rank 0");
  CHECK(encrypted.said[0] != "well");
}

TEST_CASE(
    "secure channel: a byte that is changed anywhere, once, gives an error or another connection, never wrong data") {
  for (std::uint64_t where = 0; where < 1200; where += where < 160 ? 40 : where % 3 == 0 ? 17 : 31) {
    CAPTURE(where);
    bool done = false;
    const outcome out = through(
        [&](std::uint64_t offset, std::span<std::byte> bytes) {
          if (!done && where >= offset && where < offset + bytes.size()) {
            bytes[where - offset] ^= std::byte{1};
            done = true;
          }
          return true;
        },
        true);
    CHECK(done);
    CHECK(out.right == (out.said[1] == "well"));
  }
}

TEST_CASE("secure channel: a connection that is cut within a record is a loss of the peer") {
  const outcome out =
      through([](std::uint64_t offset, std::span<std::byte> bytes) { return offset + bytes.size() < 300000; }, true);
  CHECK_FALSE(out.right);
  for (const std::string& text : out.said) CHECK(contains(text, "lost"));
}

TEST_CASE("secure channel: a record that comes twice is refused") {
  // What goes there at some time comes again: the bytes are right, their place is not.
  std::vector<std::byte> kept;
  const outcome out = through(
      [&](std::uint64_t offset, std::span<std::byte> bytes) {
        if (offset > 100000 && kept.empty()) kept.assign(bytes.begin(), bytes.end());
        if (offset > 400000) std::copy_n(kept.begin(), (std::min)(kept.size(), bytes.size()), bytes.begin());
        return true;
      },
      true);
  CHECK_FALSE(out.right);
  CHECK(out.said[1] == "authentication failed, rank 0");
}

TEST_CASE("secure channel: ranks of which one encrypts, or that have different secrets, are told at once") {
  plan odd = with_secret(2, false);
  odd.jobs[1].encrypted = true;
  for (const std::string& text : in_threads(odd, [](driver& d) {
         const status s = work(d, 1);
         return words(s) + "; " + d.transport().describe(1 - d.transport().rank());
       })) {
    CAPTURE(text);
    CHECK(contains(text, "one side encrypts its connections and the other does not; set TUTTI_ENCRYPTION"));
  }
  plan wrong = with_secret(2, true);
  wrong.jobs[1].secret = secret_of(8);
  for (const std::string& text : in_threads(wrong, [](driver& d) { return words(work(d, 1)); }))
    CHECK(contains(text, "authentication failed"));
}

TEST_CASE("secure channel: a world without a secret, or without a provider, does not begin") {
  plan p = with_secret(2, true);
  p.jobs[0].secret.reset();
  p.jobs[1].secret.reset();
  plan without{2};
  without.jobs[0].encrypted = true;
  CHECK(contains(tutti_test::complaint([&] { without.transport(0); }),
                 "is to encrypt its connections, but was given no secret"));
  const auto before = tutti::secure_channel_provider.exchange(nullptr);
  plan good = with_secret(2, true);
  CHECK(
      contains(tutti_test::words_of<tutti::error>([&] { good.transport(0); }), "link the CMake target tutti::openssl"));
  tutti::secure_channel_provider.store(before);
}
