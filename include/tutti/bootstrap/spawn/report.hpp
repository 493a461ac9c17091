#pragma once
#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <typeinfo>

#include <tutti/core/error.hpp>
#include <tutti/core/status.hpp>
#include <tutti/wire/bytes.hpp>

namespace tutti::detail {

/// Message of a rank that spawn() started to the process that started it, or that process's own record of an end.
struct spawn_report {
  enum class what : std::uint8_t {
    arrived,     ///< the rank has come to the call of spawn()
    returned,    ///< its function has returned, and its world has ended
    misused,     ///< it threw usage_error
    failed,      ///< it threw error: `why` and `sequence`
    threw,       ///< it threw something else
    no_program,  ///< the program could not be run: why.detail is the errno
    ended,       ///< its process ended before `returned`: why.detail is the status of waitpid()
    late         ///< it did not come to the call in time
  };
  what kind = what::returned;
  std::int32_t rank = 0;
  status why{};
  std::uint64_t sequence = 0;
  std::string text;

  static constexpr std::size_t longest_text = 32768;
  static constexpr std::size_t longest = 1 + 4 + 16 + 8 + 2 + longest_text;

  /// Returns true for a failure that another rank has caused, or found and told this one.
  [[nodiscard]] bool is_consequence() const noexcept {
    const bool told = why.code == errc::aborted || why.code == errc::peer_lost || why.code == errc::peer_left;
    const bool found_elsewhere = why.other != 0 && why.other - 1 != rank;
    return kind == what::failed && (found_elsewhere || (told && why.peer >= 0 && why.peer != rank));
  }
};

/// Writes a report into `out`, which has spawn_report::longest bytes, or less for one with a shorter text. Returns the
/// bytes written. Allocates nothing, as it is called between fork() and exec(), too.
inline std::span<const std::byte> encode(const spawn_report& r, std::span<std::byte> out) noexcept {
  wire::byte_writer w{out};
  w.u8(static_cast<std::uint8_t>(r.kind)).u32(static_cast<std::uint32_t>(r.rank));
  w.u16(static_cast<std::uint16_t>(r.why.code)).u16(r.why.other).u32(static_cast<std::uint32_t>(r.why.peer));
  w.u64(r.why.detail).u64(r.sequence).text(std::string_view{r.text}.substr(0, spawn_report::longest_text));
  return w.written();
}

/// Reads the next report of `in`; nullopt if there is none.
inline std::optional<spawn_report> decode_report(wire::byte_reader& in) {
  spawn_report r;
  r.kind = static_cast<spawn_report::what>(in.u8());
  r.rank = static_cast<std::int32_t>(in.u32());
  r.why.code = static_cast<errc>(in.u16());
  r.why.other = in.u16();
  r.why.peer = static_cast<std::int32_t>(in.u32());
  r.why.detail = in.u64();
  r.sequence = in.u64();
  r.text = in.text(spawn_report::longest_text);
  if (!in.ok() || r.kind > spawn_report::what::late || r.why.code > last_errc) return std::nullopt;
  return r;
}

/// Returns the name of the type of the exception that is being handled.
inline std::string current_exception_name() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "an exception";
  int failed = 0;
  const std::unique_ptr<char, void (*)(void*)> name{abi::__cxa_demangle(type->name(), nullptr, nullptr, &failed),
                                                    &std::free};
  return name ? name.get() : type->name();
}

/// Returns the report of a rank whose function has thrown the exception that is being handled.
inline spawn_report report_of_exception(int rank) {
  using enum spawn_report::what;
  try {
    throw;
  } catch (const error& e) {
    return {failed, rank, e.cause(), e.sequence(), e.what()};
  } catch (const usage_error& e) {
    return {misused, rank, {}, 0, e.what()};
  } catch (const std::exception& e) {
    return {threw, rank, {}, 0, current_exception_name() + ": " + e.what()};
  } catch (...) {
    return {threw, rank, {}, 0, current_exception_name()};
  }
}

}  // namespace tutti::detail
