#include "tutti-run/status/server.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>
#include <sstream>
#include <system_error>
#include <utility>

#include <tutti/os/descriptor_passing.hpp>
#include <tutti/os/endpoint.hpp>
#include <tutti/os/peer_credentials.hpp>
#include <tutti/os/socket.hpp>
#include <tutti/os/write_all.hpp>

#include "tutti-run/machines/message.hpp"

namespace tutti::launch {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view name_start = "@tutti-status-";
constexpr auto patience_with_machines = 3s;
constexpr auto patience_with_server = 10s;
constexpr std::size_t most_clients = 16;

std::string name_of(pid_t pid) { return text(name_start, pid); }

/// Connects and waits at most for `patience_with_server`, now and at each read.
unique_fd connect_to(pid_t pid) {
  unique_fd s{check(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "make a socket")};
  timeval limit{};
  limit.tv_sec = patience_with_server.count();
  ::setsockopt(s.value(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(s.value(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  const auto where = os::endpoint::unix_socket(name_of(pid));
  if (::connect(s.value(), where.native(), where.native_bytes()) != 0)
    throw failure(2, text("cannot ask tutti-run (process ", pid, "): ", std::strerror(errno)));
  const auto peer = os::peer_credentials(s.value());
  // Anyone can take a name that has another one's pid in it.
  if (peer.pid != pid)
    throw failure(2, text("the socket of tutti-run (process ", pid, ") is held by process ", peer.pid, " (uid ",
                          peer.uid, "), which is not asked"));
  if (peer.uid != ::geteuid() && ::geteuid() != 0)
    throw failure(2, text("the job of process ", pid, " belongs to another user (uid ", peer.uid, ")"));
  return s;
}

/// Returns true if a process has an open file of this name, as /proc/PID/fd shows it.
bool holds(pid_t pid, std::string_view file) {
  std::error_code why;
  for (std::filesystem::directory_iterator at{text("/proc/", pid, "/fd"), why}, end; !why && at != end;
       at.increment(why)) {
    std::error_code gone;
    if (std::filesystem::read_symlink(at->path(), gone) == file) return true;
  }
  return false;
}

}  // namespace

status_server::status_server(poller& events, std::vector<std::string> machines, asker ask)
    : machines_(std::move(machines)),
      ask_(std::move(ask)),
      listener_(os::listen_on(os::endpoint::unix_socket(name_of(::getpid())))) {
  events.add(listener_.native(), EPOLLIN, source::status_server);
}

void status_server::accept() {
  while (auto next = os::accept_connection(listener_.native()).socket) {
    const auto peer = os::peer_credentials(next.native());
    if ((peer.uid != ::geteuid() && peer.uid != 0) || clients_.size() >= most_clients) continue;
    clients_.push_back(std::move(next));
    if (clients_.size() > 1) continue;  // the machines have been asked already
    answers_.assign(machines_.size(), std::nullopt);
    deadline_ = clock::now() + patience_with_machines;
    ask_(++round_);
  }
}

void status_server::take(std::size_t machine, std::int64_t round, std::string_view ranks) {
  if (clients_.empty() || round != round_ || machine >= answers_.size()) return;
  answers_[machine] = ranks;
  if (std::ranges::all_of(answers_, [](const auto& a) { return a.has_value(); })) answer();
}

clock::time_point status_server::tick(clock::time_point now) {
  if (now >= deadline_) answer();
  return deadline_;
}

// The answer is memory, of which the client gets the descriptor: nobody waits until a client reads it.
void status_server::answer() {
  message_writer out;
  for (std::size_t i = 0; i < machines_.size(); ++i)
    out.text(machines_[i]).number(answers_[i] ? 1 : 0).text(answers_[i].value_or(""));
  const os::fd memory{::memfd_create("tutti-status", MFD_CLOEXEC)};
  const bool written = memory && os::write_all(memory.native(), std::as_bytes(std::span{out.bytes()})) == 0;
  const std::array<int, 1> passed{memory.native()};
  for (const auto& client : clients_)
    if (written) static_cast<void>(os::send_descriptors(client.native(), std::as_bytes(std::span{"!", 1}), passed));
  clients_.clear();
  answers_.clear();
  deadline_ = clock::time_point::max();
}

std::vector<pid_t> status_servers() {
  std::vector<pid_t> found;
  std::ifstream sockets{"/proc/net/unix"};
  for (std::string line; std::getline(sockets, line);) {
    const auto at = line.rfind(name_start);
    if (at == std::string::npos) continue;
    pid_t pid = 0;
    std::from_chars(line.data() + at + name_start.size(), line.data() + line.size(), pid);
    std::string inode;  // the last column before the name
    std::istringstream columns{line.substr(0, at)};
    for (std::string column; columns >> column;) inode = column;
    // Anyone can take a name that has another one's pid in it.
    if (pid > 0 && std::ranges::find(found, pid) == found.end() && holds(pid, text("socket:[", inode, "]")))
      found.push_back(pid);
  }
  return found;
}

machine_ranks ask_status_server(pid_t pid) {
  const unique_fd connection = connect_to(pid);
  std::array<std::byte, 1> mark{};
  std::array<os::fd, 1> memory;
  const auto got = os::receive_descriptors(connection.value(), mark, memory);
  if (got.descriptors != 1)
    throw failure(2, got.io.closed ? text("tutti-run (process ", pid, ") refused to answer, or has ended")
                                   : text("tutti-run (process ", pid, ") did not answer within ",
                                          patience_with_server.count(), " s"));
  std::string bytes;
  std::array<char, 1U << 16U> some;
  for (off_t at = 0;; at = static_cast<off_t>(bytes.size())) {
    const auto count = ::pread(memory[0].native(), some.data(), some.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    bytes.append(some.data(), static_cast<std::size_t>(count));
  }
  machine_ranks result;
  try {
    for (message_reader in{bytes}; !in.empty();) {
      const std::string machine{in.text()};
      const bool answered = in.number() != 0;
      const auto ranks = in.text();
      if (answered)
        decode_ranks(ranks, result.ranks);
      else
        result.silent.push_back(machine);
    }
  } catch (const failure& why) {
    throw failure(2, text("the answer of tutti-run (process ", pid, ") is malformed: ", why.what()));
  }
  return result;
}

}  // namespace tutti::launch
