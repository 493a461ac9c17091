#pragma once
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/os/host.hpp>
#include <tutti/os/process.hpp>
#include <tutti/transport/rank_info.hpp>
#include <tutti/transport/shm/layout.hpp>
#include <tutti/version.hpp>
#include <tutti/wire/bytes.hpp>
#include <tutti/wire/handshake_messages.hpp>
#include <tutti/wire/job_id.hpp>
#include <tutti/wire/random.hpp>

namespace tutti {

/// Claim of a process that joins a world: its identity, and the settings on which all ranks must agree.
struct roll_call_claim {
  int rank = 0;
  int world_size = 1;
  wire::job_id job{};
  std::uint32_t links = 0;  ///< transport that it was told to use, or `unknown`
  std::array<std::uint16_t, 3> version{version_major, version_minor, version_patch};
  std::uint32_t protocols = current_protocols;
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;  ///< start time of the process, which tells a reused pid apart
  std::uint64_t token = 0;       ///< random: distinguishes equal claims of two attempts
  std::uint64_t tuning = 0;      ///< hash of its table of algorithms; 0: none; or `unknown`
  std::string host;
  std::string memory_domain;
  std::string job_name;           ///< for messages
  std::string cpus;               ///< mask of the CPUs that it may use, the first 1024
  std::uint32_t cpu_limit = 0;    ///< limit of its control group; 0: none
  std::uint32_t connections = 1;  ///< number of TCP connections to each peer, or `unknown`
  std::uint32_t encryption = 0;   ///< encryption of TCP connections that it was told to use, or `unknown`

  /// Versions of the protocols between ranks, one byte each.
  static constexpr std::uint32_t current_protocols = wire::handshake_version | shm_layout::version << 8U;
  /// Value of a setting that the process could not read. It matches any value, so that the process can join and report
  /// its error.
  static constexpr std::uint32_t unknown = ~std::uint32_t{0};
  static constexpr std::size_t longest_text = 255;
  static constexpr std::size_t most_encoded_bytes = 148 + 4 * longest_text;

  /// Returns the claim of this process. A `domain` that is not empty replaces os::memory_domain().
  [[nodiscard]] static roll_call_claim of_this_process(int rank, int world_size, std::string domain = {}) {
    roll_call_claim c;
    c.rank = rank;
    c.world_size = world_size;
    c.pid = ::getpid();
    c.start_time = os::process_start_time(c.pid).value_or(0);
    if (!wire::kernel_random(std::as_writable_bytes(std::span{&c.token, 1})))
      throw error{{errc::system}, "the kernel gave no random bytes for joining a world"};
    c.host = os::hostname().substr(0, longest_text);
    c.memory_domain = (domain.empty() ? os::memory_domain() : std::move(domain)).substr(0, longest_text);
    const auto mask = os::affinity();
    const auto bytes = std::as_bytes(std::span{mask}).first(std::min<std::size_t>(mask.size() * 8, 128));
    c.cpus.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    c.cpu_limit = static_cast<std::uint32_t>(os::cgroup_cpu_limit().value_or(0));
    return c;
  }

  friend bool operator==(const roll_call_claim&, const roll_call_claim&) = default;
};

/// Returns "rank 3 of 4 (host b, pid 712)".
inline std::string describe(const roll_call_claim& c) {
  return "rank " + std::to_string(c.rank) + " of " + std::to_string(c.world_size) + " (host " + c.host + ", pid " +
         std::to_string(c.pid) + ")";
}

namespace detail {

inline constexpr std::array<std::byte, 8> claim_magic{std::byte{'t'}, std::byte{'u'},  std::byte{'t'},  std::byte{'c'},
                                                      std::byte{'l'}, std::byte{'\r'}, std::byte{'\n'}, std::byte{0}};

/// Returns a text of another process with its control characters replaced, for messages.
inline std::string printable(std::string_view text) {
  std::string shown(text);
  for (char& c : shown)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return shown;
}

}  // namespace detail

/// Encodes a claim for a store. New fields are appended only, so that ranks of two versions can name each other.
[[nodiscard]] inline std::vector<std::byte> encode(const roll_call_claim& c) {
  std::vector<std::byte> out(roll_call_claim::most_encoded_bytes);
  wire::byte_writer w{out};
  w.bytes(detail::claim_magic).u32(c.protocols).u16(c.version[0]).u16(c.version[1]).u16(c.version[2]);
  w.u32(static_cast<std::uint32_t>(c.rank)).u32(static_cast<std::uint32_t>(c.world_size));
  w.u32(static_cast<std::uint32_t>(c.pid)).u64(c.start_time).u64(c.token).bytes(c.job.bytes).u32(c.links);
  w.text(c.host).text(c.memory_domain).text(c.job_name).text(c.cpus).u32(c.cpu_limit).u64(c.tuning);
  w.u32(c.connections).u32(c.encryption);
  out.resize(w.written().size());
  return out;
}

/// Decodes a claim; nullopt if the bytes are not one. Ranks may be any numbers; the texts that messages show have no
/// control characters.
[[nodiscard]] inline std::optional<roll_call_claim> decode_claim(std::span<const std::byte> in) {
  wire::byte_reader r{in};
  std::array<std::byte, 8> magic{};
  r.copy_to(std::span{magic});
  roll_call_claim c;
  c.protocols = r.u32();
  for (std::uint16_t& part : c.version) part = r.u16();
  c.rank = static_cast<std::int32_t>(r.u32());
  c.world_size = static_cast<std::int32_t>(r.u32());
  c.pid = static_cast<std::int32_t>(r.u32());
  c.start_time = r.u64();
  c.token = r.u64();
  r.copy_to(std::span{c.job.bytes});
  c.links = r.u32();
  c.host = detail::printable(r.text(roll_call_claim::longest_text));
  c.memory_domain = r.text(roll_call_claim::longest_text);
  c.job_name = detail::printable(r.text(roll_call_claim::longest_text));
  c.cpus = r.text(roll_call_claim::longest_text);
  c.cpu_limit = r.u32();
  c.tuning = r.u64();
  c.connections = r.u32();
  c.encryption = r.u32();
  if (!r.ok() || magic != detail::claim_magic) return std::nullopt;
  return c;
}

/// Returns the reason why two processes cannot be ranks of one world: the difference, both names, and the remedy. Empty
/// if they can.
[[nodiscard]] inline std::string why_not_together(const roll_call_claim& a, const roll_call_claim& b) {
  const auto version = [](const roll_call_claim& c) {
    return std::to_string(int{c.version[0]}) + "." + std::to_string(int{c.version[1]}) + "." +
           std::to_string(int{c.version[2]});
  };
  const std::string both = describe(a) + " and " + describe(b);
  if (a.version != b.version || a.protocols != b.protocols)
    return both + " run different versions of tutti: " + version(a) + " (protocols " + std::to_string(a.protocols) +
           ") and " + version(b) + " (" + std::to_string(b.protocols) + "); build all ranks with the same one";
  if (a.job != b.job)
    return both + " belong to two jobs, \"" + a.job_name + "\" and \"" + b.job_name +
           "\", that meet at the same place; give each job a rendezvous of its own";
  if (a.world_size != b.world_size)
    return both +
           " disagree about the number of ranks; start as many processes as the world has, and tell all of them "
           "the same world size";
  const auto differ = [](std::uint64_t x, std::uint64_t y) {
    return x != y && x != roll_call_claim::unknown && y != roll_call_claim::unknown;
  };
  if (differ(a.links, b.links))
    return both + " were told to use different transports; set TUTTI_TRANSPORT or init_options::transport alike";
  if (differ(a.connections, b.connections))
    return both + " were told to open different numbers of connections to each peer, " + std::to_string(a.connections) +
           " and " + std::to_string(b.connections) + "; set TUTTI_CONNECTIONS or init_options::connections alike";
  if (differ(a.encryption, b.encryption))
    return both +
           " were told differently whether to encrypt their connections; set TUTTI_ENCRYPTION or "
           "init_options::encryption alike";
  if (differ(a.tuning, b.tuning))
    return both +
           " were given different tables of algorithms, or only one of them was; set TUTTI_TUNING or "
           "init_options::tuning alike";
  return {};
}

}  // namespace tutti
