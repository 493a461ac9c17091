#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include <tutti/config.hpp>

namespace tutti::wire {

/// The range from which a listener can be reached.
enum class reach : std::uint8_t { this_machine, network };

/// The proof that a listener requires from connecting processes.
enum class protection : std::uint8_t {
  secret,   ///< the job's secret, or the same user, as the kernel reports it
  none,     ///< only the job's id
  insecure  ///< only the job's id, as the user has asked for explicitly
};

/// Returns an empty text if one may listen on `address`, else the reason and the remedy.
[[nodiscard]] inline std::string why_not_listen(
    std::string_view address, reach who, protection asked,
    std::string_view remedy =
        "Give all sides one (TUTTI_SECRET_FILE); or listen on 127.0.0.1; or spell out "
        "`insecure` on a network that you trust") {
  if (who == reach::this_machine || asked != protection::none) return {};
  return "refusing to listen on " + std::string{address} +
         " without a secret: everybody who can reach that address could join the job or read from it. " +
         std::string{remedy};
}

}  // namespace tutti::wire
