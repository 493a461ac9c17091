#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/bootstrap/threads.hpp>
#include <tutti/communicator.hpp>

#include <support/expect.hpp>
#include <support/words.hpp>

namespace ranks {

using world = tutti::communicator<tutti::threads>;

using tutti_test::complaint;
using tutti_test::contains;
using tutti_test::expect;
using tutti_test::words_of;

/// What each rank hands to the main thread.
template <class T>
class collected {
 public:
  explicit collected(int size) : values_(static_cast<std::size_t>(size)) {}
  T& operator[](int rank) noexcept { return values_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<T> values_;
};

/// Ranks wait for something that another thread of the test has done.
class gate {
 public:
  void open() noexcept { open_.store(true); }
  void pass() const noexcept {
    while (!open_.load()) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }

 private:
  std::atomic<bool> open_{false};
};

inline tutti::call_options within(std::chrono::milliseconds limit,
                                  tutti::algorithm via = tutti::algorithm::automatic) noexcept {
  return {.timeout = limit, .via = via};
}

/// The error that an operation ends with.
template <class Op>
std::unique_ptr<tutti::error> error_of(Op pending) {
  try {
    pending.wait();
  } catch (const tutti::error& e) {
    return std::make_unique<tutti::error>(e);
  }
  throw std::runtime_error("the operation did not fail");
}

}  // namespace ranks
