#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>

#include <tutti/wire/store_frame.hpp>

// What is decoded is within the limits and encodes to the same bytes again.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace tutti::wire;
  const auto data = std::as_bytes(std::span{bytes, size});
  if (data.size() >= store_request::head_bytes) {
    const auto head = data.first<store_request::head_bytes>();
    if (const auto q = decode_request(head)) {
      if (q->body_bytes() > max_key_bytes + 2 * max_value_bytes) std::abort();
      std::array<std::byte, store_request::head_bytes> again;
      encode(*q, again);
      if (std::memcmp(again.data(), head.data(), again.size()) != 0) std::abort();
    }
  }
  if (data.size() >= store_response::head_bytes) {
    const auto head = data.first<store_response::head_bytes>();
    if (const auto p = decode_response(head)) {
      if (p->value_bytes > max_value_bytes) std::abort();
      std::array<std::byte, store_response::head_bytes> again;
      encode(*p, again);
      if (std::memcmp(again.data(), head.data(), again.size()) != 0) std::abort();
    }
  }
  return 0;
}
