#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include <tutti/wire/rendezvous_file.hpp>

// Any file is taken for what it is, and what is taken for a record encodes to the same bytes again.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using namespace tutti::wire;
  auto data = std::as_bytes(std::span{bytes, size});
  const auto found = decode_head(data);
  if (found.kind == head_kind::valid) {
    if (found.head.domain.size() > detail::domain_limit || found.head.host.size() > detail::host_limit) std::abort();
    data = data.subspan(rendezvous_head::bytes);
  }
  while (const auto record = decode_record(data)) {
    const auto head = encode_record_head(*record);
    if (std::memcmp(head.data(), data.data(), head.size()) != 0) std::abort();
    if (record->total_bytes > data.size() || record->total_bytes <= record->key.size()) std::abort();
    data = data.subspan(record->total_bytes);
  }
  // Random bytes hardly ever have the right checksum, so the rest is made into a record first.
  if (data.size() >= 2 && data.size() < 60000) {
    rendezvous_record made;
    const std::size_t key = 1 + std::to_integer<std::size_t>(data[0]) % (data.size() - 1);
    made.key = {reinterpret_cast<const char*>(data.data()), key};
    made.value = data.subspan(key);
    if (key > max_key_bytes) return 0;
    std::vector<std::byte> whole;
    const auto head = encode_record_head(made);
    whole.insert(whole.end(), head.begin(), head.end());
    whole.insert(whole.end(), data.begin(), data.end());
    const auto record = decode_record(whole);
    if (!record || record->key != made.key || record->value.size() != made.value.size()) std::abort();
  }
  return 0;
}
