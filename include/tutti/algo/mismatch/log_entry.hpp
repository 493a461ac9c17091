#pragma once
#include <cstdint>

#include <tutti/algo/mismatch/signature.hpp>
#include <tutti/core/options.hpp>
#include <tutti/transport/messaging/call_log.hpp>
#include <tutti/transport/messaging/tag.hpp>

namespace tutti::algo {

/// Returns the entry of the call log for a call; `via` is the algorithm that this rank takes.
constexpr call_log::entry noted(std::uint32_t context, const call_signature& c, algorithm via) noexcept {
  return {tag::make(context, c.sequence, static_cast<std::uint32_t>(via)), detail::mix(0, c.fingerprint()),
          c.short_id()};
}

}  // namespace tutti::algo
