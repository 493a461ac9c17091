#include "tutti-run/machines/rank_pipes.hpp"

#include <fcntl.h>

#include <array>

#include "tutti-run/machines/order.hpp"

namespace tutti::launch {
namespace {

source source_of(rank_pipes::side which) noexcept { return which == rank_pipes::side::out ? source::out : source::err; }

}  // namespace

rank_pipes::rank_pipes(int ranks, int first, poller& events)
    : events_(events), first_(first), streams_(2 * static_cast<std::size_t>(ranks)) {}

unique_fd rank_pipes::open_pipe(int index, side which) {
  int both[2];
  check(::pipe2(both, O_CLOEXEC), "make a pipe");
  auto& ours = at(index, which);
  ours.fd.reset(both[0]);
  unique_fd for_rank{both[1]};
  check(::fcntl(both[0], F_SETFL, O_NONBLOCK), "make a pipe non-blocking");
  events_.add(both[0], EPOLLIN, source_of(which), index);
  ours.watched = true;
  return for_rank;
}

rank_streams::ends rank_pipes::connect(int index) {
  ends result;
  result.out = open_pipe(index, side::out);
  result.err = open_pipe(index, side::err);
  if (first_ + index != 0) return result;
  int both[2];
  check(::pipe2(both, O_CLOEXEC), "make a pipe");
  result.in.reset(both[0]);
  stdin_.reset(both[1]);
  check(::fcntl(both[1], F_SETFL, O_NONBLOCK), "make a pipe non-blocking");
  return result;
}

rank_pipes::progress rank_pipes::read_some(int index, side which, const taker& take) {
  std::array<char, 1U << 16U> some;
  auto& from = at(index, which);
  const auto count = ::read(from.fd.value(), some.data(), some.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return progress::nothing_now;
  if (count > 0) {
    under_way_ += count;
    take(index, which, {some.data(), static_cast<std::size_t>(count)});
    return progress::more;
  }
  from.watched = false;
  from.fd.reset();
  take(index, which, {});
  return progress::end;
}

void rank_pipes::handle(const event& happened, const taker& take) {
  if (happened.from == source::input) return;  // pass_input() follows every round
  const side which = happened.from == source::out ? side::out : side::err;
  if (!at(happened.index, which).watched) return;
  read_some(happened.index, which, take);
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
    if (!one.fd || one.watched == wanted) continue;
    const auto which = static_cast<side>(i % 2);
    if (wanted)
      events_.add(one.fd.value(), EPOLLIN, source_of(which), static_cast<int>(i / 2));
    else
      events_.remove(one.fd.value());
    one.watched = wanted;
  }
}

void rank_pipes::drop(side which) {
  for (std::size_t i = static_cast<std::size_t>(which); i < streams_.size(); i += 2) {
    streams_[i].fd.reset();
    streams_[i].watched = false;
  }
}

void rank_pipes::finish(const taker& take) {
  constexpr int most_chunks = 32;  // a pipe holds 64 KiB unless the rank made it larger
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    if (!streams_[i].fd) continue;
    const auto index = static_cast<int>(i / 2);
    const auto which = static_cast<side>(i % 2);
    for (int chunk = 0; chunk < most_chunks && read_some(index, which, take) == progress::more; ++chunk) continue;
    if (!streams_[i].fd) continue;
    streams_[i].fd.reset();
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
