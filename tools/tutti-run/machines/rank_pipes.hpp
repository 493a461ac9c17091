#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti-run/output/rank_pipe.hpp"
#include "tutti-run/poller.hpp"
#include "tutti-run/ranks/rank_streams.hpp"

namespace tutti::launch {

/// The pipes of the ranks of a machine whose output goes to a launcher elsewhere, and whose stdin comes from there.
class rank_pipes : public rank_streams {
 public:
  enum class side : std::uint8_t { out, err };
  /// Takes output; no bytes are the end of that stream.
  using taker = std::function<void(int index, side which, std::string_view bytes)>;

  /// `first` is the rank with index 0: rank 0 has a stdin.
  rank_pipes(int ranks, int first, poller& events);

  ends connect(int index) override;

  /// Reads output, of which at most `output_window` bytes are under way.
  void handle(const event& happened, const taker& take);
  /// The launcher has passed on so many bytes.
  void credit(std::int64_t bytes);
  /// Closes the pipes of that side, so that a rank that writes on gets the same SIGPIPE as without a launcher.
  void drop(side which);
  /// Takes what is left in the pipes, once nobody can write to them any more.
  void finish(const taker& take);

  void feed(std::string_view bytes) { input_ += bytes; }
  void end_input() noexcept { input_ends_ = true; }
  /// Writes what rank 0 takes of its stdin; returns how many bytes less are kept than before.
  std::int64_t pass_input();

 private:
  rank_pipe& at(int index, side which) noexcept {
    return streams_[2 * static_cast<std::size_t>(index) + static_cast<std::size_t>(which)];
  }
  void watch_all();

  poller& events_;
  int first_;
  std::vector<rank_pipe> streams_;
  std::int64_t under_way_ = 0;
  unique_fd stdin_;
  std::string input_;
  bool input_ends_ = false;
  bool waits_to_write_ = false;
};

}  // namespace tutti::launch
