#pragma once
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/core/status.hpp>
#include <tutti/cuda/types.hpp>

namespace tutti {

/// Permission for several ranks to use one GPU.
enum class device_sharing : std::uint8_t {
  refused,  ///< sharing is nearly always a mistake, which NCCL would report late or not at all
  /// For NCCL 2.30.3 or newer with NCCL_MULTI_RANK_GPU_ENABLE=1, or with a different NCCL_HOSTID on each rank.
  allowed
};

/// Description of a rank's device, which ranks exchange before any of them calls NCCL. It is sent as bytes between
/// ranks of one version.
struct device_claim {
  std::array<char, 64> host{};
  std::int32_t pid = 0;
  std::int32_t device = 0;        ///< as this process numbers devices
  std::int32_t devices = 0;       ///< number of devices that this process sees
  std::int32_t nccl_version = 0;  ///< 22809 is 2.28.9; 0: the library did not tell
  std::int32_t calls = 0;         ///< nccl_calls
  std::int32_t cuda = 0;          ///< CUDA's error; 0: the device can be used
  cuda::device_identity who;
  std::uint64_t machine = 0;            ///< equal on ranks under the same kernel
  std::uint64_t shm_device = 0;         ///< id of the file system at /dev/shm
  std::int64_t shm_free = -1;           ///< bytes left in it; -1: not needed, or not known
  std::array<char, 256> reason{};       ///< reason why this rank cannot take part, with a remedy; empty: it can
  std::array<char, 256> unreachable{};  ///< reason why NCCL finds no network interface; empty: it finds one
};

namespace detail {

template <std::size_t N>
void put_text(std::array<char, N>& to, std::string_view text) noexcept {
  to = {};
  text.copy(to.data(), N - 1);
}
template <std::size_t N>
std::string text_of(const std::array<char, N>& from) {
  const std::string_view all{from.data(), N};
  std::string text{all.substr(0, all.find('\0'))};
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  return text;
}

inline std::string nccl_version_text(int v) {
  // Up to 2.8 the minor version had one digit: 2708 is 2.7.8.
  const int base = v < 10000 ? 1000 : 10000;
  return std::to_string(v / base) + "." + std::to_string(v % base / 100) + "." + std::to_string(v % 100);
}

/// Returns "rank 3 (host b, pid 712)".
inline std::string describe(const device_claim& c, int rank) {
  return "rank " + std::to_string(rank) + " (host " + text_of(c.host) + ", pid " + std::to_string(c.pid) + ")";
}

/// Returns true if two claims are of one GPU. Processes may number it differently, according to CUDA_VISIBLE_DEVICES.
inline bool same_device(const device_claim& a, const device_claim& b) noexcept {
  constexpr decltype(a.who.uuid) unknown{};  // the uuid in some virtual machines
  if (a.who.uuid != unknown || b.who.uuid != unknown) return a.who.uuid == b.who.uuid;
  return a.machine == b.machine && a.who.pci == b.who.pci;
}

/// Returns another rank that shares this rank's /dev/shm, through which NCCL would connect the two; the number of ranks
/// if there is none.
inline std::size_t neighbour(std::span<const device_claim> all, std::size_t r) noexcept {
  for (std::size_t o = 0; o < all.size(); ++o)
    if (o != r && all[o].shm_free >= 0 && all[o].machine == all[r].machine && all[o].shm_device == all[r].shm_device)
      return o;
  return all.size();
}
inline std::string shm_remedy() {
  return "start the container with --shm-size=1g (or mount a larger tmpfs), remove what a dead program left there, or "
         "do without it, slower: NCCL_SHM_DISABLE=1";
}

}  // namespace detail

/// Least space in /dev/shm, in bytes, that one connection of NCCL takes.
inline constexpr std::int64_t least_shm = std::int64_t{4} << 20;
/// Free space below which /dev/shm is named as a possible cause of NCCL's failure.
inline constexpr std::int64_t ample_shm = std::int64_t{1} << 30;

/// Returns a text to append to an error of NCCL: a machine has little room in /dev/shm, such as the default 64 MiB of a
/// container. Empty if all machines have enough, or need none.
[[nodiscard]] inline std::string scarce_shm(std::span<const device_claim> all) {
  for (std::size_t r = 0; r < all.size(); ++r)
    if (all[r].shm_free >= 0 && all[r].shm_free < ample_shm && detail::neighbour(all, r) != all.size())
      return "; /dev/shm on host " + detail::text_of(all[r].host) + " had " + std::to_string(all[r].shm_free >> 20) +
             " MiB left, which may be too little: " + detail::shm_remedy();
  return {};
}

/// Oldest version of NCCL that can bound every call by a deadline.
inline constexpr int oldest_nccl = 21800;

/// Returns the reason why these ranks cannot form a world of GPUs: a status that names the rank at fault, and a message
/// that names all ranks concerned and the remedy. The claims are in rank order, so the result is the same on every
/// rank. The message is empty if they can.
[[nodiscard]] inline std::pair<status, std::string> why_no_device_world(std::span<const device_claim> all,
                                                                        device_sharing sharing) {
  using detail::describe;
  const auto version = [&](std::size_t r) { return detail::nccl_version_text(all[r].nccl_version); };
  const auto at_fault = [](errc code, std::size_t r) { return status{code, 0, static_cast<int>(r), 0}; };
  for (std::size_t r = 0; r < all.size(); ++r)
    if (const std::string why = detail::text_of(all[r].reason); !why.empty())
      return {at_fault(errc::device, r),
              describe(all[r], static_cast<int>(r)) + " has no GPU to take part with: " + why};
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::string both = describe(all[0], 0) + " and " + describe(all[r], static_cast<int>(r));
    if (all[r].nccl_version != all[0].nccl_version)
      return {at_fault(errc::protocol, r),
              both + " use different versions of NCCL, " + version(0) + " and " + version(r) +
                  "; give all ranks the same libnccl.so (LD_LIBRARY_PATH, container image)"};
    if (all[r].nccl_version < oldest_nccl)
      return {at_fault(errc::unsupported, r), describe(all[r], static_cast<int>(r)) + " uses NCCL " + version(r) +
                                                  "; 2.18 or newer is needed, for calls that can be given up"};
    if (all[r].calls != all[0].calls)
      return {at_fault(errc::rendezvous, r),
              both + " were told to make NCCL's calls in different ways; set nccl_options::calls alike"};
  }
  for (std::size_t r = 0; r < all.size(); ++r) {
    const std::string who = describe(all[r], static_cast<int>(r));
    if (const std::string why = detail::text_of(all[r].unreachable); !why.empty())
      return {at_fault(errc::rendezvous, r), who + " cannot be reached by NCCL: " + why};
    if (all[r].shm_free < 0 || all[r].shm_free >= least_shm) continue;
    if (const std::size_t other = detail::neighbour(all, r); other != all.size())
      return {at_fault(errc::out_of_resources, r),
              who + " has " + std::to_string(all[r].shm_free >> 10) + " KiB left in /dev/shm, too little for NCCL to " +
                  "connect it with " + describe(all[other], static_cast<int>(other)) + "; " + detail::shm_remedy()};
  }
  if (sharing == device_sharing::allowed) return {};
  for (std::size_t a = 0; a < all.size(); ++a)
    for (std::size_t b = a + 1; b < all.size(); ++b) {
      if (!detail::same_device(all[a], all[b])) continue;
      const std::string gpu = detail::text_of(all[a].who.model) + " at " + detail::text_of(all[a].who.pci);
      return {at_fault(errc::rendezvous, b),
              describe(all[a], static_cast<int>(a)) + " and " + describe(all[b], static_cast<int>(b)) +
                  " use the same GPU (" + gpu + ", device " + std::to_string(all[a].device) + " and " +
                  std::to_string(all[b].device) +
                  " of theirs); give each rank its own (tutti-run --devices 0,1,..., or nccl_options{.device = "
                  "world.local_rank()}), or start fewer ranks. To share it on purpose: device_sharing::allowed"};
    }
  return {};
}

}  // namespace tutti
