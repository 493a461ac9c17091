#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "report.hpp"

namespace tutti::doctor {

enum class severity : std::uint8_t {
  error,    ///< a job will break
  warning,  ///< it will run, but slowly, or not in all cases
};
NLOHMANN_JSON_SERIALIZE_ENUM(severity, {{severity::error, "error"}, {severity::warning, "warning"}})

struct finding {
  severity how = severity::warning;
  std::vector<int> ranks;  ///< those concerned; empty: the whole job
  std::string what;
  std::string remedy;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(finding, how, ranks, what, remedy)

/// Returns what is wrong, errors first; what is the same on several ranks is one finding.
std::vector<finding> find_faults(const report& all);

/// Returns "ranks 0-3 (host a)".
std::string describe(const std::vector<int>& ranks, const report& all);

}  // namespace tutti::doctor
