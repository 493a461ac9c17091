#pragma once
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/processes.hpp"

/// Worlds of real processes, and what must be true after them.
namespace tutti_test {

using reports = std::vector<processes::report>;

inline bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// How all names of this program begin, and none of another that runs beside it.
inline std::string our_names() { return "world-of-" + std::to_string(::getpid()) + "-"; }

/// A name that no other test has.
inline std::string unique_name() {
  static int count = 0;
  return our_names() + std::to_string(++count);
}

/// A port that was free a moment ago, below those that the kernel gives to outgoing connections.
inline int free_port() {
  static int next = 20000 + ::getpid() % 8000;
  for (;; ++next) {
    const int s = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(static_cast<std::uint16_t>(next));
    const bool good = ::bind(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0;
    ::close(s);
    if (good) return next++;
  }
}

/// Starts `n` processes of a helper program; `more(rank)` gives the words and the environment of each.
struct rank_words {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;
};
template <class More>
void start_ranks(processes& all, const std::string& name, int n, More more) {
  for (int r = 0; r < n; ++r) {
    rank_words w = more(r);
    all.start({program(name), std::move(w.arguments), std::move(w.environment)});
  }
}
template <class More>
reports run_ranks(const std::string& name, int n, More more, std::chrono::seconds limit = std::chrono::seconds{60}) {
  processes all;
  start_ranks(all, name, n, more);
  return all.wait(limit);
}

/// The URL of one rank.
inline std::string at(const std::string& url, int rank, int world) {
  return "rendezvous=" + url + "?rank=" + std::to_string(rank) + "&world_size=" + std::to_string(world);
}

/// One tutti-run with `n` ranks of a helper program.
inline command launched(int n, const std::string& name, std::vector<std::string> words,
                        std::vector<std::string> environment = {}) {
  std::vector<std::string> arguments{"-n", std::to_string(n), "--", program(name)};
  arguments.insert(arguments.end(), words.begin(), words.end());
  return {tutti_run(), std::move(arguments), std::move(environment)};
}

inline int occurrences(std::string_view text, std::string_view part) {
  int found = 0;
  for (auto i = text.find(part); i != std::string_view::npos; i = text.find(part, i + part.size())) ++found;
  return found;
}

inline std::string all_text(const reports& all) {
  std::string text;
  for (const auto& r : all) text += "[" + std::to_string(r.status) + "] " + r.out;
  return text;
}

/// Every one of `n` ranks joined a world of `n` `times` times, with the right sum over it, and left nothing to heirs.
inline void check_joined(const reports& all, int n, int times = 1) {
  const std::string text = all_text(all);
  CAPTURE(text);
  for (const auto& r : all) CHECK(r.status == 0);
  const std::string sum = "sum " + std::to_string((1 << n) - 1) + " inherit 0 ";
  CHECK(occurrences(text, sum) == n * times);
  for (int r = 0; r < n; ++r)
    CHECK(occurrences(text, "joined rank " + std::to_string(r) + " of " + std::to_string(n) + " ") == times);
}

/// All failed with an error of this kind, and say each of `parts`.
inline void check_refused(const reports& all, int kind, const std::vector<std::string>& parts) {
  const std::string text = all_text(all);
  CAPTURE(text);
  for (const auto& r : all) {
    CHECK(r.status == 1);
    CHECK(contains(r.out, "error kind " + std::to_string(kind) + " "));
    for (const std::string& part : parts) CHECK_MESSAGE(contains(r.out, part), part << " is not in " << r.out);
  }
}

/// After all processes of a test have ended: none of their descendants lives, and no socket has the name.
inline void check_nothing_left(const std::string& name) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{10};
  auto alive = processes::survivors();
  while (!alive.empty() && std::chrono::steady_clock::now() < until) {  // what was killed takes a moment to go
    std::this_thread::sleep_for(std::chrono::milliseconds{5});
    alive = processes::survivors();
  }
  CHECK(alive.empty());
  std::ifstream sockets{"/proc/net/unix"};
  for (std::string line; std::getline(sockets, line);) CHECK_MESSAGE(!contains(line, name), line);
}

/// What lies in /dev/shm: segments have no names, so nothing of ours ever does.
inline std::set<std::string> shared_memory_names() {
  std::set<std::string> names;
  if (!std::filesystem::exists("/dev/shm")) return names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
    if (contains(entry.path().filename().string(), "tutti")) names.insert(entry.path().filename());
  return names;
}

}  // namespace tutti_test
