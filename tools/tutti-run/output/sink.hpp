#pragma once

#include <string>
#include <string_view>

#include "tutti-run/poller.hpp"

namespace tutti::launch {

/// The launcher's stdout or stderr: takes text at once and writes it as fast as the reader takes it.
///
/// The launcher must go on watching ranks and signals while a pager or a stopped terminal does not read, so where the
/// kernel allows it this writes through a descriptor of its own that does not block.
class sink {
 public:
  sink(poller& events, int target, int index);

  void append(std::string_view part) {
    if (!broken_) queue_ += part;
  }
  void flush();

  bool is_terminal() const noexcept { return terminal_; }
  bool is_file() const noexcept { return file_; }
  bool is_full() const noexcept { return pending() > upper_mark; }
  bool is_low() const noexcept { return pending() < lower_mark; }
  bool is_idle() const noexcept { return pending() == 0; }
  /// Zero, or why the target takes no more: EPIPE says that its reader has left.
  int broken() const noexcept { return broken_; }

 private:
  static constexpr std::size_t upper_mark = 1U << 20U;
  static constexpr std::size_t lower_mark = 1U << 18U;

  std::size_t pending() const noexcept { return queue_.size() - written_; }
  ssize_t write_some(std::string_view part) const noexcept;
  void watch(bool wanted);

  poller& events_;
  unique_fd own_;
  int fd_;
  int index_;
  int broken_ = 0;
  bool terminal_;
  bool file_;
  bool socket_;
  bool watched_ = false;
  std::string queue_;
  std::size_t written_ = 0;
};

/// Returns true if both descriptors lead to one pipe, terminal or socket, so that only one sink keeps their lines
/// whole.
bool same_stream(int first, int second) noexcept;

}  // namespace tutti::launch
