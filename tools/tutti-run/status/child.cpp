#include "tutti-run/status/child.hpp"

#include <fcntl.h>
#include <sys/wait.h>

#include <array>
#include <utility>

namespace tutti::launch {
namespace {

/// Reads what is there. Returns false at the end.
bool read_from(const unique_fd& from, std::string& to) {
  std::array<char, 1U << 16U> some;
  for (;;) {
    const auto count = ::read(from.value(), some.data(), some.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) return false;
    to.append(some.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace

std::string status_child::start(std::vector<std::string> arguments) try {
  if (process_.out) return "";
  arguments.insert(arguments.begin(), own_path());
  process_ = start_piped(arguments, signals_);
  process_.in.reset();
  said_ = {};
  for (const auto* const end : {&process_.out, &process_.err})
    check(::fcntl(end->value(), F_SETFL, O_NONBLOCK), "make a pipe non-blocking");
  events_.add(process_.out.value(), EPOLLIN, source::status);
  return "";
} catch (const failure& why) {
  process_ = {};
  return why.what();
}

std::optional<status_child::words> status_child::read() {
  if (!process_.out || read_from(process_.out, said_.out)) return std::nullopt;
  static_cast<void>(read_from(process_.err, said_.err));
  ::waitpid(process_.pid, nullptr, 0);  // it is ending, unless it was waited for already
  process_ = {};
  return std::move(said_);
}

}  // namespace tutti::launch
