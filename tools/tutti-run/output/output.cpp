#include "tutti-run/output/output.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>

namespace tutti::launch {
namespace {

constexpr std::array sides{source::out, source::err};

bool colour_wanted() noexcept {
  const char* refused = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return !(refused && *refused) && terminal && std::string_view{terminal} != "dumb";
}

std::string make_prefix(const rank_names& names, int rank, const sink& target) {
  constexpr std::array hues{36, 33, 32, 35, 34, 31};
  if (!target.is_terminal() || !colour_wanted()) return text('[', names.shown(rank), "] ");
  return text("\033[", hues[static_cast<std::size_t>(names.number(rank)) % hues.size()], "m[", names.shown(rank),
              "]\033[0m ");
}

output_mode resolve(output_mode asked, int ranks) noexcept {
  if (asked != output_mode::automatic) return asked;
  return ranks == 1 && ::isatty(STDOUT_FILENO) == 1 ? output_mode::plain : output_mode::prefix;
}

}  // namespace

output::output(output_mode mode, int ranks, const rank_names& names, poller& events)
    : mode_(resolve(mode, ranks)),
      events_(events),
      sinks_{sink{events, STDOUT_FILENO, 0}, sink{events, STDERR_FILENO, 1}},
      err_sink_(same_stream(STDOUT_FILENO, STDERR_FILENO) ? 0 : 1),
      ranks_(static_cast<std::size_t>(ranks)) {
  for (std::size_t side = 0; side < sides.size(); ++side)
    for (int rank = 0; rank < ranks; ++rank)
      prefixes_[side].push_back(make_prefix(names, rank, sinks_[sink_of(sides[side])]));
}

output::stream& output::stream_at(source which, int rank) noexcept {
  auto& both = ranks_[static_cast<std::size_t>(rank)];
  return which == source::out ? both.out : both.err;
}

output::ends output::connect(int rank) {
  if (mode_ == output_mode::plain || (mode_ == output_mode::rank0 && rank == 0)) return {};
  ranks_[static_cast<std::size_t>(rank)].captured = true;
  ends result;
  result.out = mode_ == output_mode::prefix
                   ? stream_at(source::out, rank).pipe.open(events_, source::out, rank)
                   : unique_fd{check(::open("/dev/null", O_WRONLY | O_CLOEXEC), "open /dev/null")};
  result.err = stream_at(source::err, rank).pipe.open(events_, source::err, rank);
  return result;
}

void output::handle(const event& happened) {
  if (happened.from == source::sink) return;  // flush() follows every round anyway
  auto& from = stream_at(happened.from, happened.index).pipe;
  if (!from.is_watched()) return;
  const auto show = [&](std::string_view bytes) { take(happened.from, happened.index, bytes); };
  if (from.read_some(show) != rank_pipe::progress::end) return;
  end_of(happened.from, happened.index);
  from.close();
}

void output::take(source which, int rank, std::string_view bytes) {
  auto& from = stream_at(which, rank);
  ranks_[static_cast<std::size_t>(rank)].captured = true;
  from.lines.feed(bytes, [&](std::string_view line) { remember(which, rank, line); });
  if (mode_ == output_mode::prefix) {
    const auto now = clock::now();
    from.shown.feed(bytes, now);
    show(which, rank, from.shown.take_lines(prefix_of(which, rank), now));
  } else if (mode_ == output_mode::plain || rank == 0) {
    sinks_[sink_of(which)].append(bytes);
  }
}

void output::end_of(source which, int rank) {
  auto& from = stream_at(which, rank);
  from.lines.end([&](std::string_view line) { remember(which, rank, line); });
  show(which, rank, from.shown.take_rest(prefix_of(which, rank)));
}

void output::remember(source which, int rank, std::string_view line) {
  if (which != source::err) return;
  auto& tail = ranks_[static_cast<std::size_t>(rank)].tail;
  if (tail.size() == tail_lines) tail.pop_front();
  tail.emplace_back(line.substr(0, tail_width));
}

void output::show(source which, int rank, std::string text) {
  if (mode_ != output_mode::prefix || text.empty()) return;
  auto& mine = stream_at(which, rank).shown;
  const auto at = sink_of(which);
  if (last_[at] != &mine) end_open_line(at);
  last_[at] = &mine;
  sinks_[at].append(text);
}

// Two streams never share a line.
void output::end_open_line(std::size_t sink) {
  if (!last_[sink] || !last_[sink]->open()) return;
  sinks_[sink].append("\n");
  last_[sink]->interrupt();
}

void output::say(std::string_view lines) {
  end_open_line(err_sink_);
  sinks_[err_sink_].append(lines);
}

clock::time_point output::due() const noexcept {
  auto first = clock::time_point::max();
  for (const auto& rank : ranks_) {
    if (!sinks_[0].is_file()) first = std::min(first, rank.out.shown.due());
    if (!sinks_[err_sink_].is_file()) first = std::min(first, rank.err.shown.due());
  }
  return first;
}

void output::show_due(clock::time_point now) {
  for (const source which : sides)
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      auto& waiting = stream_at(which, rank).shown;
      if (now >= waiting.due() && !sinks_[sink_of(which)].is_file())
        show(which, rank, waiting.take_all(prefix_of(which, rank)));
    }
}

void output::flush() {
  if (const auto now = clock::now(); now >= due()) show_due(now);
  for (auto& target : sinks_) target.flush();
  if (report_broken()) sinks_[err_sink_].flush();
  watch_pipes();
}

// A reader that has fallen behind slows the ranks down, as it would without a launcher; one that has left ends their
// pipes too, so that a rank that writes on gets the same SIGPIPE.
void output::watch_pipes() {
  for (const source which : sides) {
    const auto& target = sinks_[sink_of(which)];
    const bool gone = target.broken() == EPIPE && mode_ == output_mode::prefix;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      auto& from = stream_at(which, rank).pipe;
      if (!from.is_open()) continue;
      const bool wanted = !gone && (from.is_watched() ? !target.is_full() : target.is_low());
      if (wanted)
        from.watch(events_, which, rank);
      else
        from.unwatch(events_);
      if (gone) from.close();
    }
  }
}

bool output::report_broken() {
  if (told_broken_) return false;
  for (const auto& target : sinks_)
    if (target.broken() != 0 && target.broken() != EPIPE) {
      told_broken_ = true;
      say(text("tutti-run: output was lost: ", std::strerror(target.broken()), '\n'));
    }
  return told_broken_;
}

void output::finish() {
  for (const source which : sides)
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      stream_at(which, rank).pipe.read_rest([&](std::string_view bytes) { take(which, rank, bytes); });
      end_of(which, rank);
    }
}

}  // namespace tutti::launch
