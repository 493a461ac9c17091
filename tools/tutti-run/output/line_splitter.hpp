#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace tutti::launch {

/// Cuts a stream of bytes into lines; a line beyond `longest` comes in pieces, so that memory stays bounded.
class line_splitter {
 public:
  static constexpr std::size_t longest = 1U << 18U;

  /// Calls `take(std::string_view)` for each line that is complete now, without its newline.
  template <class Take>
  void feed(std::string_view bytes, const Take& take) {
    while (!bytes.empty()) {
      const auto newline = bytes.find('\n');
      const auto room = longest - rest_.size();
      const auto length = std::min({newline, room, bytes.size()});
      rest_ += bytes.substr(0, length);
      if (length == newline || length == room) finish(take);
      bytes.remove_prefix(length == newline ? length + 1 : length);
    }
  }

  /// Gives what stands after the last newline, if anything does.
  template <class Take>
  void end(const Take& take) {
    if (!rest_.empty()) finish(take);
  }

 private:
  template <class Take>
  void finish(const Take& take) {
    take(std::string_view{rest_});
    rest_.clear();
  }

  std::string rest_;
};

}  // namespace tutti::launch
