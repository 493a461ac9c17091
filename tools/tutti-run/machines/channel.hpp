#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tutti-run/machines/message.hpp"
#include "tutti-run/poller.hpp"

namespace tutti::launch {

/// A pair of pipes, or of ends of sockets, over which messages go. Never blocks.
class channel {
 public:
  using receiver = std::function<void(message kind, std::string_view content)>;

  /// Both descriptors become non-blocking and are watched as `source::machine` with this index. Whatever comes before
  /// `expected` is skipped: a shell's start-up files may print.
  channel(unique_fd in, unique_fd out, poller& events, int index, std::string expected);
  channel(channel&&) noexcept = default;
  channel& operator=(channel&&) = delete;
  ~channel();

  void send_raw(std::string_view bytes);
  void send(message kind, std::string_view content = {});
  /// Reads what is there and gives each whole message to `take`. Returns false once nothing more can come.
  bool receive(const receiver& take);
  /// Writes what the other side takes.
  void flush();
  std::size_t pending() const noexcept { return queue_.size() - written_; }
  void close() noexcept;
  bool is_open() const noexcept { return static_cast<bool>(in_); }
  /// Returns the time at which the last byte came, or this was made.
  clock::time_point last_heard() const noexcept { return heard_; }
  /// Returns true if receive() would take something now, be it the end.
  bool has_waiting() const noexcept;

 private:
  void deliver(const receiver& take);

  unique_fd in_;
  unique_fd out_;
  poller* events_;
  int index_;
  std::string expected_;
  std::string received_;
  std::string queue_;
  std::size_t written_ = 0;
  bool waits_to_write_ = false;
  clock::time_point heard_ = clock::now();
};

}  // namespace tutti::launch
