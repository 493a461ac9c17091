#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <tutti/wire/rendezvous_file.hpp>
#include <vector>

using namespace tutti::wire;

namespace {

rendezvous_head sample_head() {
  rendezvous_head h;
  h.nonce[3] = std::byte{4};
  h.pid = 712;
  h.start_time = 99;
  h.domain = "boot/1/2/0";
  h.host = "host-a";
  h.joined = 3;
  h.finished = 2;
  h.heartbeat = 77;
  return h;
}

std::vector<std::byte> sample_record(std::string_view key, std::string_view value) {
  rendezvous_record r;
  r.key = key;
  r.value = std::as_bytes(std::span{value});
  const auto head = encode_record_head(r);
  std::vector<std::byte> bytes{head.begin(), head.end()};
  for (const char c : std::string{key} + std::string{value}) bytes.push_back(static_cast<std::byte>(c));
  return bytes;
}

}  // namespace

TEST_CASE("the head of a rendezvous file comes back as it was written") {
  const auto bytes = encode_head(sample_head());
  const auto d = decode_head(bytes);
  REQUIRE(d.kind == head_kind::valid);
  CHECK(d.head.nonce == sample_head().nonce);
  CHECK(d.head.pid == 712);
  CHECK(d.head.start_time == 99);
  CHECK(d.head.domain == "boot/1/2/0");
  CHECK(d.head.host == "host-a");
  CHECK(d.head.joined == 3);
  CHECK(d.head.finished == 2);
  CHECK(d.head.heartbeat == 77);
  const std::span all{bytes};
  CHECK(byte_reader{all.subspan(rendezvous_head::joined_offset)}.u64() == 3);
  CHECK(byte_reader{all.subspan(rendezvous_head::finished_offset)}.u64() == 2);
  CHECK(byte_reader{all.subspan(rendezvous_head::heartbeat_offset)}.u64() == 77);
}

TEST_CASE("a head cut at any byte is torn; one changed in any byte is not taken for whole; other files are foreign") {
  const auto bytes = encode_head(sample_head());
  CHECK(decode_head({}).kind == head_kind::empty);
  for (std::size_t n = 1; n < bytes.size(); ++n) CHECK(decode_head(std::span{bytes}.first(n)).kind == head_kind::torn);
  for (std::size_t i = 0; i < rendezvous_head::joined_offset; ++i) {
    auto changed = bytes;
    changed[i] ^= std::byte{0x40};
    const auto kind = decode_head(changed).kind;
    CHECK(kind == (i < 8 ? head_kind::foreign : i < 10 ? head_kind::other_version : head_kind::torn));
  }
  CHECK(decode_head(std::as_bytes(std::span{"#!/bin/sh", 9})).kind == head_kind::foreign);
  CHECK(decode_head(std::as_bytes(std::span{"t", 1})).kind == head_kind::torn);
  CHECK(decode_head(std::as_bytes(std::span{"x", 1})).kind == head_kind::foreign);
}

TEST_CASE("names longer than their field are cut, not written over their neighbours") {
  auto h = sample_head();
  h.domain = std::string(5000, 'd');
  h.host = std::string(5000, 'h');
  const auto d = decode_head(encode_head(h));
  REQUIRE(d.kind == head_kind::valid);
  CHECK(d.head.domain == std::string(160, 'd'));
  CHECK(d.head.host == std::string(160, 'h'));
  CHECK(d.head.joined == 3);
}

TEST_CASE("a record cut at any byte or changed in any bit is not there yet") {
  const auto bytes = sample_record("key", "some value");
  const auto d = decode_record(bytes);
  REQUIRE(d.has_value());
  CHECK(d->key == "key");
  CHECK(d->value.size() == 10);
  CHECK(d->total_bytes == bytes.size());
  for (std::size_t n = 0; n < bytes.size(); ++n) CHECK_FALSE(decode_record(std::span{bytes}.first(n)).has_value());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto changed = bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    CHECK_FALSE(decode_record(changed).has_value());
  }
  CHECK_FALSE(decode_record(std::vector<std::byte>(1000)).has_value());
}

TEST_CASE("records follow one another") {
  auto bytes = sample_record("a", "");
  const auto second = sample_record("b", "x");
  bytes.insert(bytes.end(), second.begin(), second.end());
  const auto first = decode_record(bytes);
  REQUIRE(first.has_value());
  CHECK(first->value.empty());
  const auto next = decode_record(std::span{bytes}.subspan(first->total_bytes));
  REQUIRE(next.has_value());
  CHECK(next->key == "b");
}
