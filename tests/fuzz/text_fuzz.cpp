#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include <tutti/os/cgroup.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/wire/job_id.hpp>
#include <tutti/wire/load_secret.hpp>

// Addresses, secrets and numbers as they come from the environment: understood or refused, never anything else.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string text{reinterpret_cast<const char*>(bytes), size};
  try {
    const auto [host, port] = tutti::os::split_host_port(text);
    if (host.size() > text.size()) std::abort();
  } catch (const tutti::usage_error&) {
  }
  try {
    if (tutti::os::endpoint::unix_socket(text).to_string().size() > text.size() + 5) std::abort();
  } catch (const tutti::usage_error&) {
  }
  if (const auto e = tutti::os::detail::numeric_endpoint(text, 1)) static_cast<void>(e->to_string());
  try {
    static_cast<void>(tutti::wire::detail::decode_secret(text, "a test"));
  } catch (const tutti::error&) {
  }
  const auto id = tutti::wire::job_id::of(text);
  if (tutti::wire::job_id::of(tutti::wire::to_hex(id.bytes)) != id) std::abort();
  const std::string_view name = std::string_view{text}.substr(0, size / 4);
  static_cast<void>(tutti::os::detail::field_of(std::string_view{text}.substr(size / 4), name));
  return 0;
}
