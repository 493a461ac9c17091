#pragma once
#include <cstdint>
#include <string>
#include <system_error>
#include <type_traits>

#include <tutti/config.hpp>

namespace tutti {

/// The reason why an operation ended without its result.
enum class errc : std::uint16_t {
  ok = 0,
  aborted,           ///< status::peer called abort(), or destroyed its communicator with operations in flight
  timed_out,         ///< the deadline passed; status::peer is the awaited rank
  peer_lost,         ///< the process of status::peer died or its connection broke: see status::how_lost()
  peer_left,         ///< status::peer destroyed its communicator while it was still needed
  mismatch,          ///< ranks called different collectives, or with different sizes or types
  protocol,          ///< bytes that are not of this protocol or version
  auth_failed,       ///< a peer could not prove the job's secret
  rendezvous,        ///< the ranks of a world did not meet at the rendezvous
  out_of_resources,  ///< memory, descriptors or shared memory ran out
  system,            ///< a system call failed; status::detail is its errno
  unsupported,       ///< this backend cannot do that
  device             ///< a device, or a library for it, failed; status::detail is its code
};
/// The last value; peers send them as numbers.
inline constexpr errc last_errc = errc::device;

/// The way in which a rank was lost, as far as the library knows.
enum class loss : std::uint8_t {
  unknown,
  died,    ///< its process has ended
  broken,  ///< the connection to it broke; its process may live
  cut      ///< the connection to it broke, and its process lives
};

/// The outcome of an operation below the typed interface: 16 bytes, never throws.
struct status {
  errc code = errc::ok;
  std::uint16_t other = 0;   ///< 1 + the world rank that detected the error or timed out; 0 if unknown
  std::int32_t peer = -1;    ///< world rank at fault, -1 when unknown
  std::uint64_t detail = 0;  ///< errno for errc::system, else as the code says, or 0; sent to peers

  /// The detail of errc::aborted when a user's reduction threw. This value and the next ones are unlike those that
  /// users pass to abort().
  static constexpr std::uint64_t reduction_threw = ~std::uint64_t{0};
  /// The detail when a reducer's pass was dropped before its finish() had ended.
  static constexpr std::uint64_t pass_dropped = reduction_threw - 1;
  /// The detail when an exception left a group of operations before it had begun.
  static constexpr std::uint64_t group_left = reduction_threw - 2;
  /// The detail when a communicator was destroyed with operations in flight.
  static constexpr std::uint64_t destroyed = reduction_threw - 3;
  /// The detail when a hook around operations threw.
  static constexpr std::uint64_t hook_threw = reduction_threw - 4;

  /// Returns an errc::peer_lost: `finder` lost `peer`; `error` is the errno of their connection, if there was one.
  static constexpr status lost(int peer, loss how, int finder = -1, int error = 0) noexcept {
    return {errc::peer_lost, static_cast<std::uint16_t>(finder + 1), peer,
            std::uint64_t{static_cast<std::uint8_t>(how)} << 32 | static_cast<std::uint32_t>(error)};
  }
  /// Returns the way in which a rank was lost, for errc::peer_lost.
  [[nodiscard]] constexpr loss how_lost() const noexcept {
    const std::uint64_t how = detail >> 32;
    return how <= static_cast<std::uint64_t>(loss::cut) ? static_cast<loss>(how) : loss::unknown;
  }
  /// Returns the errno of errc::peer_lost, errc::system and errc::out_of_resources; 0 if there is none.
  [[nodiscard]] constexpr int error_number() const noexcept { return static_cast<int>(detail & 0xffffffffU); }

  [[nodiscard]] constexpr bool ok() const noexcept { return code == errc::ok; }
  friend constexpr bool operator==(const status&, const status&) = default;
};
static_assert(sizeof(status) == 16 && std::is_trivially_copyable_v<status>);

namespace detail {
class tutti_category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "tutti"; }
  std::string message(int value) const override {
    switch (static_cast<errc>(value)) {
      case errc::ok:
        return "success";
      case errc::aborted:
        return "aborted";
      case errc::timed_out:
        return "timed out";
      case errc::peer_lost:
        return "peer lost";
      case errc::peer_left:
        return "peer left";
      case errc::mismatch:
        return "ranks disagree";
      case errc::protocol:
        return "protocol violated";
      case errc::auth_failed:
        return "authentication failed";
      case errc::rendezvous:
        return "rendezvous failed";
      case errc::out_of_resources:
        return "out of resources";
      case errc::system:
        return "system call failed";
      case errc::unsupported:
        return "not supported";
      case errc::device:
        return "device failed";
    }
    return "unknown";
  }
};
}  // namespace detail

/// Returns the std::error_category of tutti::errc.
inline const std::error_category& category() noexcept {
  static const detail::tutti_category instance;
  return instance;
}

inline std::error_code make_error_code(errc e) noexcept { return {static_cast<int>(e), category()}; }

}  // namespace tutti

template <>
struct std::is_error_code_enum<tutti::errc> : std::true_type {};
