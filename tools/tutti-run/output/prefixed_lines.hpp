#pragma once

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>

#include "tutti-run/posix.hpp"

namespace tutti::launch {

/// The text of one stream of a rank on its way to a sink: whole lines at once, the beginning of a line once it has
/// waited, each behind the prefix. A carriage return begins the line anew, as progress bars do, so the prefix is
/// repeated after it.
class prefixed_lines {
 public:
  static constexpr std::size_t longest = 1U << 18U;  // of a line that is held back
  static constexpr std::chrono::milliseconds patience{50};

  void feed(std::string_view bytes, clock::time_point now) {
    if (waiting_.empty()) since_ = now;
    waiting_ += bytes;
  }

  /// When the beginning of a line that waits is to be passed on.
  clock::time_point due() const noexcept { return waiting_.empty() ? clock::time_point::max() : since_ + patience; }

  /// Takes the whole lines, and what follows them only where that is too long to be held back.
  std::string take_lines(std::string_view prefix, clock::time_point now) {
    const auto whole = waiting_.rfind('\n') + 1;  // 0 where there is none
    const auto rest = waiting_.size() - whole;
    if (whole > 0) since_ = now;
    return take(rest > longest ? waiting_.size() : whole, prefix);
  }
  std::string take_all(std::string_view prefix) { return take(waiting_.size(), prefix); }
  /// Takes what is left, with an end of line if there was none.
  std::string take_rest(std::string_view prefix) {
    std::string rest = take_all(prefix);
    if (open()) rest += '\n';
    at_ = place::start;
    return rest;
  }

  /// Returns true if a line was begun and not ended.
  bool open() const noexcept { return at_ == place::inside || at_ == place::after_return; }
  /// Something else follows on a line of its own: what comes needs the prefix again.
  void interrupt() noexcept { at_ = place::cut; }

 private:
  enum class place { start, inside, after_return, cut };

  std::string take(std::size_t count, std::string_view prefix) {
    std::string shown;
    for (std::string_view left = std::string_view{waiting_}.substr(0, count); !left.empty();) {
      const auto end = std::min(left.find_first_of("\r\n"), left.size());
      const char ending = end < left.size() ? left[end] : '\0';
      const bool needed = end > 0 ? at_ != place::inside : at_ == place::start && ending == '\n';
      if (needed) shown += prefix;
      shown += left.substr(0, end);
      if (end > 0) at_ = place::inside;
      if (ending != '\0' && !(at_ == place::cut && ending == '\n')) shown += ending;
      if (ending == '\n') at_ = place::start;
      if (ending == '\r' && at_ == place::inside) at_ = place::after_return;
      left.remove_prefix(std::min(end + 1, left.size()));
    }
    waiting_.erase(0, count);
    return shown;
  }

  std::string waiting_;
  clock::time_point since_;
  place at_ = place::start;
};

}  // namespace tutti::launch
