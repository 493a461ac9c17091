#include "tutti-run/machines/channel.hpp"

#include <fcntl.h>
#include <poll.h>

#include <array>

namespace tutti::launch {
namespace {

constexpr std::size_t header = 5;                    // four bytes of length, one of kind
constexpr std::size_t longest_message = 64U << 20U;  // far beyond what an environment may hold
constexpr std::size_t longest_noise = 1U << 16U;

}  // namespace

channel::channel(unique_fd in, unique_fd out, poller& events, int index, std::string expected)
    : in_(std::move(in)), out_(std::move(out)), events_(&events), index_(index), expected_(std::move(expected)) {
  for (const int fd : {in_.value(), out_.value()})
    check(::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK), "make a pipe non-blocking");
  events_->add(in_.value(), EPOLLIN, source::machine, index_);
}

channel::~channel() {
  // The secret may be in it.
  if (!queue_.empty()) ::explicit_bzero(queue_.data(), queue_.size());
  if (!received_.empty()) ::explicit_bzero(received_.data(), received_.size());
}

void channel::send_raw(std::string_view bytes) {
  if (!out_) return;
  queue_ += bytes;
  flush();
}

void channel::send(message kind, std::string_view content) {
  const auto length = static_cast<std::uint32_t>(content.size());
  std::string head;
  for (unsigned shift = 0; shift < 32; shift += 8) head += static_cast<char>(length >> shift);
  head += static_cast<char>(kind);
  send_raw(head.append(content));
}

void channel::flush() {
  while (out_ && pending() > 0) {
    const auto count = ::write(out_.value(), queue_.data() + written_, pending());
    if (count > 0) {
      written_ += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      if (!waits_to_write_) events_->add(out_.value(), EPOLLOUT, source::machine, index_);
      waits_to_write_ = true;
      return;
    } else if (errno != EINTR) {
      out_.reset();  // the end of the other direction says that nobody is there any more
    }
  }
  if (waits_to_write_ && out_) events_->remove(out_.value());
  waits_to_write_ = false;
  if (!queue_.empty()) ::explicit_bzero(queue_.data(), queue_.size());
  queue_.clear();
  written_ = 0;
}

bool channel::receive(const receiver& take) {
  std::array<char, 1U << 16U> some;
  while (in_) {
    const auto count = ::read(in_.value(), some.data(), some.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) return false;
    heard_ = clock::now();
    received_.append(some.data(), static_cast<std::size_t>(count));
    deliver(take);
  }
  return false;
}

void channel::deliver(const receiver& take) {
  if (!expected_.empty()) {
    const auto at = received_.find(expected_);
    if (at == std::string::npos) {
      if (received_.size() > longest_noise + expected_.size()) received_.erase(0, longest_noise);
      return;
    }
    received_.erase(0, at + expected_.size());
    expected_.clear();
  }
  std::size_t used = 0;
  while (received_.size() - used >= header && in_) {
    std::size_t length = 0;
    for (std::size_t i = 4; i-- > 0;) length = length << 8U | static_cast<unsigned char>(received_[used + i]);
    if (length > longest_message) throw bad_message("is malformed");
    if (received_.size() - used - header < length) break;
    const auto kind = static_cast<message>(received_[used + 4]);
    take(kind, std::string_view{received_}.substr(used + header, length));
    used += header + length;
  }
  received_.erase(0, used);
}

bool channel::has_waiting() const noexcept {
  pollfd ready{in_.value(), POLLIN, 0};
  return in_ && ::poll(&ready, 1, 0) > 0;
}

void channel::close() noexcept {
  in_.reset();
  out_.reset();
  queue_.clear();
  written_ = 0;
  waits_to_write_ = false;
}

}  // namespace tutti::launch
