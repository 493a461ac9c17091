#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti-run/posix.hpp"

namespace tutti::launch {

/// The kinds of messages between the launcher and the agents, which are the launchers of single machines.
enum class message : std::uint8_t {
  hello = 1,     ///< agent: `greeting`
  order,         ///< launcher: `machine_order`
  prepared,      ///< agent: the pids of its ranks, which wait
  go,            ///< launcher: the ranks are to run their program
  running,       ///< agent: they do
  refused,       ///< agent: exit status, text; it ends
  output,        ///< agent: index, side, bytes
  output_end,    ///< agent: index, side
  credit,        ///< launcher: so many bytes of output may follow; agent: so many bytes of input
  ended,         ///< agent: index, code, status, blamed rank
  finished,      ///< agent: nothing is left of the ranks; it ends
  signals,       ///< launcher: numbers of signals for the ranks and all that they started
  signal_ranks,  ///< launcher: the number of a signal for the ranks alone
  input,         ///< launcher: bytes for the stdin of rank 0
  input_end,
  drop_output,  ///< launcher: nobody reads this side (0: stdout, 1: stderr) any more
  alive,        ///< both: nothing has happened
  status,       ///< launcher: the number of a round; agent: that, and the status of its ranks
};

/// Writer of the content of a message: numbers and texts, one after the other.
class message_writer {
 public:
  message_writer& number(std::int64_t value) {
    for (int shift = 0; shift < 64; shift += 8)
      bytes_ += static_cast<char>(static_cast<std::uint64_t>(value) >> static_cast<unsigned>(shift));
    return *this;
  }
  message_writer& text(std::string_view value) {
    number(static_cast<std::int64_t>(value.size()));
    bytes_ += value;
    return *this;
  }
  message_writer& texts(const std::vector<std::string>& values) {
    number(static_cast<std::int64_t>(values.size()));
    for (const auto& value : values) text(value);
    return *this;
  }
  const std::string& bytes() const noexcept { return bytes_; }

 private:
  std::string bytes_;
};

/// A message that a launcher of the same version does not send.
class bad_message : public failure {
 public:
  explicit bad_message(const char* what) : failure(1, text("a message between launchers ", what)) {}
};

/// Reader of the same; throws `bad_message` if the message is too short.
class message_reader {
 public:
  explicit message_reader(std::string_view bytes) noexcept : left_(bytes) {}

  std::int64_t number() {
    std::uint64_t value = 0;
    const auto bytes = take(8);
    for (std::size_t i = 8; i-- > 0;) value = value << 8U | static_cast<unsigned char>(bytes[i]);
    return static_cast<std::int64_t>(value);
  }
  int small() { return static_cast<int>(number()); }
  std::string_view text() {
    const auto size = number();
    return take(size < 0 ? left_.size() + 1 : static_cast<std::size_t>(size));
  }
  std::vector<std::string> texts() {
    std::vector<std::string> values;
    for (auto count = number(); count > 0; --count) values.emplace_back(text());
    return values;
  }
  bool empty() const noexcept { return left_.empty(); }

 private:
  std::string_view take(std::size_t count) {
    if (count > left_.size()) throw bad_message("is too short");
    const auto taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }

  std::string_view left_;
};

}  // namespace tutti::launch
