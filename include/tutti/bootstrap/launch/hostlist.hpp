#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/bootstrap/launch/text.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/text.hpp>

namespace tutti {

namespace detail {

inline constexpr std::size_t longest_hostlist = 65536;
inline constexpr std::uint64_t highest_number = 0xffffffff;  // highest number in brackets

[[noreturn]] inline void refuse_hostlist(std::string_view list, std::string_view why) {
  throw usage_error("host list " + quoted(list) + ": " + std::string(why) +
                    "; a list looks like node[01-04,07],login,rack[1-2]n[0-3]");
}

/// Returns the texts for which one bracket stands: "07-09,12" gives 07 08 09 12, padded like the lower bound.
inline std::vector<std::string> expand_bracket(std::string_view list, std::string_view inside) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at <= inside.size();) {
    const std::string_view item = inside.substr(at, inside.find(',', at) - at);
    at += item.size() + 1;
    const std::size_t dash = item.find('-');
    const std::string_view low = item.substr(0, dash);
    const std::string_view high = dash == std::string_view::npos ? low : item.substr(dash + 1);
    const auto first = parse_decimal<std::uint64_t>(low), last = parse_decimal<std::uint64_t>(high);
    if (!first || !last || *first > highest_number || *last > highest_number)
      refuse_hostlist(list, "brackets hold numbers and ranges of numbers");
    if (*first > *last) refuse_hostlist(list, "the range " + quoted(item) + " runs backwards");
    if (*last - *first >= longest_hostlist) refuse_hostlist(list, "more than 65536 hosts");
    if (low.size() > 64) refuse_hostlist(list, "a number of more than 64 digits");
    for (std::uint64_t n = *first; n <= *last; ++n) {
      const std::string digits = std::to_string(n);
      texts.push_back(std::string(low.size() > digits.size() ? low.size() - digits.size() : 0, '0') + digits);
    }
    if (texts.size() > longest_hostlist) refuse_hostlist(list, "more than 65536 hosts");
  }
  return texts;
}

/// Appends the hosts of one item of the list, without commas outside of brackets. Several brackets multiply; the last
/// one varies fastest.
inline void expand_hosts(std::string_view list, std::string_view item, std::vector<std::string>& hosts) {
  std::vector<std::string> names;
  names.push_back("");
  while (!item.empty()) {
    const std::size_t open = item.find_first_of("[]");
    const std::string_view plain = item.substr(0, open);
    for (const char c : plain) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      if (!letter && c != '-' && c != '.' && c != '_')
        refuse_hostlist(list, "a host has letters, digits, '-', '.', '_'");
    }
    for (std::string& name : names) name += plain;
    item.remove_prefix(plain.size());
    if (item.empty()) break;
    const std::size_t close = item.find(']');
    if (item.front() == ']' || close == std::string_view::npos) refuse_hostlist(list, "the brackets do not match");
    const std::vector<std::string> texts = expand_bracket(list, item.substr(1, close - 1));
    if (hosts.size() + names.size() * texts.size() > longest_hostlist) refuse_hostlist(list, "more than 65536 hosts");
    std::vector<std::string> product;
    for (const std::string& name : names)
      for (const std::string& text : texts) product.push_back(name + text);
    names.swap(product);
    item.remove_prefix(close + 1);
  }
  if (names.front().empty()) refuse_hostlist(list, "a host name is empty");
  for (std::string& name : names) hosts.push_back(std::move(name));
  if (hosts.size() > longest_hostlist) refuse_hostlist(list, "more than 65536 hosts");
}

}  // namespace detail

/// Expands a Slurm node list (`a[1-3,07-09],b,c[1-2]x[0-1]`) into at most 65536 host names in the order written,
/// without scontrol. Numbers are zero-padded like the lower bound of their range; of several brackets the last varies
/// fastest. Throws usage_error that quotes the list.
inline std::vector<std::string> expand_hostlist(std::string_view list) {
  std::vector<std::string> hosts;
  std::size_t start = 0;
  bool bracket = false;
  for (std::size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && list[i] == '[') bracket = true;
    if (i < list.size() && list[i] == ']') bracket = false;
    if (i < list.size() && (list[i] != ',' || bracket)) continue;
    detail::expand_hosts(list, list.substr(start, i - start), hosts);
    start = i + 1;
  }
  return hosts;
}

}  // namespace tutti
