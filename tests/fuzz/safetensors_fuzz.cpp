#include <cstdint>
#include <cstdlib>
#include <string_view>

#include <tutti/train/safetensors.hpp>

// Any header is understood or refused; what is understood covers the data without gaps and encodes to a header that is
// understood in the same way.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using tutti::train::safetensors_header;
  if (size < 2) return 0;
  const std::uint64_t data_bytes = bytes[0] + std::uint64_t{bytes[1]} * 256;
  const std::string_view text{reinterpret_cast<const char*>(bytes) + 2, size - 2};
  try {
    const auto header = safetensors_header::parse(text, data_bytes);
    std::uint64_t sum = 0;
    for (const auto& t : header.tensors) sum += t.bytes;
    if (sum != data_bytes) std::abort();
    const auto again = safetensors_header::parse(header.encode(), data_bytes);
    if (again.tensors != header.tensors || again.words != header.words) std::abort();
  } catch (const tutti::error& e) {
    if (e.kind() != tutti::errc::protocol) std::abort();
  }
  return 0;
}
