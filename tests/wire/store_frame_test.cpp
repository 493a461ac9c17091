#include <doctest/doctest.h>

#include <array>
#include <tutti/wire/store_frame.hpp>

using namespace tutti::wire;

namespace {

using head = std::array<std::byte, store_request::head_bytes>;

head encoded(const store_request& q) {
  head h{};
  encode(q, h);
  return h;
}

bool good(const store_request& q) { return decode_request(encoded(q)).has_value(); }

}  // namespace

TEST_CASE("requests come back as they were sent") {
  const store_request q{store_verb::compare_set, 1024, 1 << 20, 77, 0x1122334455667788, -5};
  const auto d = decode_request(encoded(q));
  REQUIRE(d.has_value());
  CHECK(d->verb == q.verb);
  CHECK(d->key_bytes == q.key_bytes);
  CHECK(d->expected_bytes == q.expected_bytes);
  CHECK(d->value_bytes == q.value_bytes);
  CHECK(d->id == q.id);
  CHECK(d->number == -5);
  CHECK(d->body_bytes() == 1024 + (1 << 20) + 77);
}

TEST_CASE("requests with absurd lengths or unknown verbs are refused") {
  CHECK(good({store_verb::set, 1, 0, 0, 0, 0}));
  CHECK_FALSE(good({store_verb::set, 0, 0, 0, 0, 0}));
  CHECK_FALSE(good({store_verb::set, 1025, 0, 0, 0, 0}));
  CHECK_FALSE(good({store_verb::set, 0xffff, 0, 0, 0, 0}));
  for (const std::uint32_t absurd : {(1U << 20) + 1, 1U << 31, 0xffffffffU}) {
    CHECK_FALSE(good({store_verb::set, 1, 0, absurd, 0, 0}));
    CHECK_FALSE(good({store_verb::compare_set, 1, absurd, 0, 0, 0}));
  }
  CHECK_FALSE(good({store_verb::get, 1, 0, 1, 0, 0}));
  CHECK_FALSE(good({store_verb::set, 1, 1, 1, 0, 0}));
  CHECK_FALSE(good({store_verb::goodbye, 1, 0, 0, 0, 0}));
  CHECK(good({store_verb::goodbye, 0, 0, 0, 0, 0}));
  CHECK_FALSE(good({static_cast<store_verb>(0), 1, 0, 0, 0, 0}));
  CHECK_FALSE(good({static_cast<store_verb>(9), 1, 0, 0, 0, 0}));
  head h = encoded({store_verb::set, 1, 0, 0, 0, 0});
  h[1] = std::byte{1};
  CHECK_FALSE(decode_request(h).has_value());
  h = encoded({store_verb::set, 1, 0, 0, 0, 0});
  h[13] = std::byte{1};
  CHECK_FALSE(decode_request(h).has_value());
}

TEST_CASE("responses come back as they were sent, and absurd ones are refused") {
  std::array<std::byte, store_response::head_bytes> h{};
  encode(store_response{store_answer::full, 12, 34, -56}, h);
  const auto d = decode_response(h);
  REQUIRE(d.has_value());
  CHECK(d->answer == store_answer::full);
  CHECK(d->value_bytes == 12);
  CHECK(d->id == 34);
  CHECK(d->number == -56);
  h[0] = std::byte{4};
  CHECK_FALSE(decode_response(h).has_value());
  encode(store_response{store_answer::ok, (1 << 20) + 1, 0, 0}, h);
  CHECK_FALSE(decode_response(h).has_value());
  encode(store_response{}, h);
  h[2] = std::byte{1};
  CHECK_FALSE(decode_response(h).has_value());
}
