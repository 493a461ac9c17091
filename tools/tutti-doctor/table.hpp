#pragma once

#include <string>
#include <vector>

#include "findings.hpp"

namespace tutti::doctor {

/// Returns the report as tables for people: ranks, links, clocks, findings with remedies, and a last line that sums up.
std::string to_text(const report& all, const std::vector<finding>& found);

/// Returns the same as a JSON document.
std::string to_json_text(const report& all, const std::vector<finding>& found);

/// Returns the findings alone, each with its remedy.
std::string to_text(const std::vector<finding>& found, const report& all);

bool has_errors(const std::vector<finding>& found);

}  // namespace tutti::doctor
