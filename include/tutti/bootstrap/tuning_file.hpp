#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tutti/algo/selection/table.hpp>
#include <tutti/bootstrap/launch/text.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/bootstrap/options.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/options.hpp>
#include <tutti/core/text.hpp>
#include <tutti/os/read_file.hpp>

/// Tables of algorithms as text, one rule a line:
///
///     tutti tuning 1
///     # collective links ranks bytes algorithm
///     all_reduce messages 2 32768 recursive_doubling
///     all_reduce messages * * ring
///
/// `links` is memory, messages or machines; `ranks` and `bytes` are upper limits, `*` for none. The first rule that
/// matches applies.
namespace tutti::detail {

/// Returns the next word of a line and removes it from the line.
inline std::string_view next_word(std::string_view& line) noexcept {
  constexpr std::string_view blanks = " \t\r";
  const std::size_t begin = line.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return line = {};
  line.remove_prefix(begin);
  const std::string_view word = line.substr(0, line.find_first_of(blanks));
  line.remove_prefix(word.size());
  return word;
}

/// Throws usage_error for a line of `source`.
[[noreturn]] inline void refuse_tuning(std::string_view source, std::size_t line, const std::string& why) {
  throw usage_error(std::string(source) + ", line " + std::to_string(line) + ": " + why +
                    "; tutti-bench --tune FILE writes such tables");
}

/// Parses an upper limit; "*" gives `any`.
template <class Int>
Int parse_limit(std::string_view word, Int any, std::string_view source, std::size_t line, const char* what) {
  if (word == "*") return any;
  const auto value = parse_decimal<Int>(word);
  if (!value) refuse_tuning(source, line, quoted(word) + " is not a number of " + what + ", nor *");
  return *value;
}

template <class Known = algo::tunable>
algo::tuning::rule parse_rule(std::string_view line, std::string_view source, std::size_t number) {
  const std::string_view collective = next_word(line), links = next_word(line), ranks = next_word(line),
                         bytes = next_word(line), via = next_word(line);
  if (via.empty() || !next_word(line).empty())
    refuse_tuning(source, number, "a rule is five words: collective, links, ranks, bytes and algorithm");
  algo::tuning::rule r;
  if (!Known::has(collective))
    refuse_tuning(source, number, quoted(collective) + " is no collective that can be tuned");
  r.collective = algo::tuning::id_of(collective);
  const auto kind = algo::connectivity_of(links);
  if (!kind) refuse_tuning(source, number, quoted(links) + " is not memory, messages or machines");
  r.links = *kind;
  r.ranks = parse_limit(ranks, algo::tuning::any_ranks, source, number, "ranks");
  if (r.ranks < 1) refuse_tuning(source, number, "a rule for worlds of up to 0 ranks fits none");
  r.bytes = parse_limit(bytes, algo::tuning::any_bytes, source, number, "bytes");
  r.via = algorithm_of(via);
  if (!Known::has(collective, r.via))
    refuse_tuning(source, number, std::string(collective) + " has no algorithm " + quoted(via));
  return r;
}

/// Parses a table. Throws usage_error that names `source` and the line.
template <class Known = algo::tunable>
algo::tuning parse_tuning(std::string_view text, std::string_view source) {
  algo::tuning table;
  bool begun = false;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() < text.size() ? line.size() + 1 : line.size());
    line = line.substr(0, line.find('#'));
    std::string_view rest = line;
    const std::string_view first = next_word(rest);
    if (first.empty()) continue;
    if (!begun) {
      if (first != "tutti" || next_word(rest) != "tuning" || next_word(rest) != "1" || !next_word(rest).empty())
        refuse_tuning(source, number, "a table begins with \"tutti tuning 1\"");
      begun = true;
    } else if (!table.add(parse_rule<Known>(line, source, number))) {
      refuse_tuning(source, number, "more than " + std::to_string(algo::tuning::most_rules) + " rules");
    }
  }
  if (!begun) refuse_tuning(source, 1, "a table begins with \"tutti tuning 1\", and this one is empty");
  return table;
}

/// Returns the table that the options or TUTTI_TUNING name; an empty one if neither does. Throws usage_error.
template <variable_lookup Get>
algo::tuning load_tuning(const init_options& options, const Get& get) {
  constexpr std::size_t most_bytes = std::size_t{1} << 20;
  const std::string path = options.tuning.empty() ? std::string(get("TUTTI_TUNING").value_or("")) : options.tuning;
  if (path.empty()) return {};
  const std::string source =
      (options.tuning.empty() ? "TUTTI_TUNING " : "init_options::tuning ") + detail::quoted(path);
  const auto text = os::read_file(path, most_bytes);
  if (!text) throw usage_error(source + " cannot be read: name a file that this rank can open, or leave it out");
  if (text->size() == most_bytes) throw usage_error(source + " is too long for a table of algorithms");
  return parse_tuning(*text, source);
}

}  // namespace tutti::detail
