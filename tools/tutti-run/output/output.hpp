#pragma once

#include <array>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "tutti-run/options.hpp"
#include "tutti-run/output/line_splitter.hpp"
#include "tutti-run/output/prefixed_lines.hpp"
#include "tutti-run/output/rank_pipe.hpp"
#include "tutti-run/output/sink.hpp"
#include "tutti-run/poller.hpp"
#include "tutti-run/ranks/rank_names.hpp"
#include "tutti-run/ranks/rank_streams.hpp"

namespace tutti::launch {

/// Brings what the ranks print to the launcher's stdout and stderr, whole line by whole line where it goes to a file;
/// else the beginning of a line (a prompt, a progress bar) follows after a moment.
class output : public rank_streams {
 public:
  output(output_mode mode, int ranks, const rank_names& names, poller& events);

  ends connect(int rank) override;
  /// Returns true if the tail of this rank's stderr is known.
  bool captures(int rank) const noexcept { return ranks_[static_cast<std::size_t>(rank)].captured; }
  const std::deque<std::string>& tail(int rank) const noexcept { return ranks_[static_cast<std::size_t>(rank)].tail; }

  void handle(const event& happened);
  /// Shows what a rank has written elsewhere; end_of() ends that stream.
  void take(source which, int rank, std::string_view bytes);
  void end_of(source which, int rank);
  /// Returns true if the reader has fallen behind.
  bool is_full() const noexcept { return sinks_[0].is_full() || sinks_[err_sink_].is_full(); }
  /// Returns true if nobody reads this side any more.
  bool reader_left(source which) const noexcept { return sinks_[sink_of(which)].broken() == EPIPE; }
  /// Shows lines of the launcher itself, after all that came before.
  void say(std::string_view lines);
  void flush();
  /// When flush() has something to do though nothing happens: the beginning of a line has waited for its end.
  clock::time_point due() const noexcept;
  /// Returns true if something could not be written, for another reason than that the reader has left.
  bool lost() const noexcept { return told_broken_; }
  /// Takes what is left in the pipes, once nobody can write to them any more.
  void finish();
  bool is_idle() const noexcept { return sinks_[0].is_idle() && sinks_[1].is_idle(); }

 private:
  static constexpr std::size_t tail_lines = 20;
  static constexpr std::size_t tail_width = 500;

  struct stream {
    rank_pipe pipe;
    line_splitter lines;   ///< for the tail
    prefixed_lines shown;  ///< on its way to a sink
  };
  struct rank_output {
    stream out;
    stream err;
    std::deque<std::string> tail;
    bool captured = false;
  };

  stream& stream_at(source which, int rank) noexcept;
  std::size_t sink_of(source which) const noexcept { return which == source::out ? 0 : err_sink_; }
  void remember(source which, int rank, std::string_view line);
  void show(source which, int rank, std::string text);
  void show_due(clock::time_point now);
  void end_open_line(std::size_t sink);
  const std::string& prefix_of(source which, int rank) const noexcept {
    return prefixes_[which == source::out ? 0 : 1][static_cast<std::size_t>(rank)];
  }
  void watch_pipes();
  bool report_broken();

  output_mode mode_;
  poller& events_;
  std::array<sink, 2> sinks_;
  std::array<prefixed_lines*, 2> last_{};  ///< whose text each sink had last
  std::size_t err_sink_;
  std::vector<rank_output> ranks_;
  std::array<std::vector<std::string>, 2> prefixes_;
  bool told_broken_ = false;
};

}  // namespace tutti::launch
