#include "tutti-run/machines/rank_pipes.hpp"

#include <fcntl.h>

#include <iterator>

#include "tutti-run/machines/order.hpp"

namespace tutti::launch {

rank_pipes::rank_pipes(int ranks, int first, poller& events)
    : events_(events), first_(first), streams_(2 * static_cast<std::size_t>(ranks)) {}

rank_streams::ends rank_pipes::connect(int index) {
  ends result;
  result.out = at(index, side::out).open(events_, source::out, index);
  result.err = at(index, side::err).open(events_, source::err, index);
  if (first_ + index != 0) return result;
  int both[2];
  check(::pipe2(both, O_CLOEXEC), "make a pipe");
  result.in.reset(both[0]);
  stdin_.reset(both[1]);
  check(::fcntl(both[1], F_SETFL, O_NONBLOCK), "make a pipe non-blocking");
  return result;
}

void rank_pipes::handle(const event& happened, const taker& take) {
  if (happened.from == source::input) return;  // pass_input() follows every round
  const side which = happened.from == source::out ? side::out : side::err;
  auto& from = at(happened.index, which);
  if (!from.is_watched()) return;
  const auto pass_on = [&](std::string_view bytes) {
    under_way_ += std::ssize(bytes);
    take(happened.index, which, bytes);
  };
  if (from.read_some(pass_on) == rank_pipe::progress::end) {
    from.close();
    take(happened.index, which, {});
  }
  watch_all();
}

void rank_pipes::credit(std::int64_t bytes) {
  under_way_ -= bytes;
  watch_all();
}

void rank_pipes::watch_all() {
  const bool wanted = under_way_ < output_window;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    auto& one = streams_[i];
    if (!one.is_open()) continue;
    if (wanted)
      one.watch(events_, i % 2 == 0 ? source::out : source::err, static_cast<int>(i / 2));
    else
      one.unwatch(events_);
  }
}

void rank_pipes::drop(side which) {
  for (std::size_t i = static_cast<std::size_t>(which); i < streams_.size(); i += 2) streams_[i].close();
}

void rank_pipes::finish(const taker& take) {
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (!streams_[i].is_open()) continue;
    const auto index = static_cast<int>(i / 2);
    const auto which = static_cast<side>(i % 2);
    streams_[i].read_rest([&](std::string_view bytes) { take(index, which, bytes); });
    take(index, which, {});
  }
}

std::int64_t rank_pipes::pass_input() {
  const auto before = input_.size();
  while (stdin_ && !input_.empty()) {
    const auto count = ::write(stdin_.value(), input_.data(), input_.size());
    if (count > 0)
      input_.erase(0, static_cast<std::size_t>(count));
    else if (errno == EAGAIN)
      break;
    else if (errno != EINTR)
      stdin_.reset();  // nobody reads it any more
  }
  if (!stdin_) input_.clear();
  const bool wanted = stdin_ && !input_.empty();
  if (wanted && !waits_to_write_) events_.add(stdin_.value(), EPOLLOUT, source::input);
  if (!wanted && waits_to_write_ && stdin_) events_.remove(stdin_.value());
  waits_to_write_ = wanted;
  if (input_ends_ && input_.empty()) stdin_.reset();
  return static_cast<std::int64_t>(before - input_.size());
}

}  // namespace tutti::launch
