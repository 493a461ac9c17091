#include <doctest/doctest.h>

#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <tutti/os/fiber.hpp>

namespace {

using tutti::os::fiber;

constexpr std::size_t stack_bytes = 256 << 10;

TEST_CASE("a fiber runs until it gives way and goes on there") {
  std::vector<int> seen;
  fiber* self = nullptr;
  fiber f{stack_bytes, [&] {
            for (int i = 0; i < 3; ++i) {
              seen.push_back(i);
              self->yield();
            }
          }};
  self = &f;
  for (int round = 0; round < 3; ++round) {
    CHECK(seen.size() == static_cast<std::size_t>(round));
    f.resume();
    CHECK_FALSE(f.ended());
    seen.back() += 10;
  }
  f.resume();
  CHECK(f.ended());
  CHECK(seen == std::vector<int>{10, 11, 12});
}

TEST_CASE("fibers keep their locals apart, and what ends is unwound") {
  constexpr int count = 20, rounds = 50;
  std::vector<std::unique_ptr<fiber>> fibers;
  std::vector<std::string> results(count);
  for (int i = 0; i < count; ++i)
    fibers.push_back(std::make_unique<fiber>(stack_bytes, [&, i] {
      std::string text;
      volatile char deep[8192] = {};
      for (int r = 0; r < rounds; ++r) {
        text += static_cast<char>('a' + (i + r) % 26);
        deep[r * 100] = text.back();
        fibers[static_cast<std::size_t>(i)]->yield();
        if (deep[r * 100] != text.back()) return;
      }
      results[static_cast<std::size_t>(i)] = text;
    }));
  for (int r = 0; r <= rounds; ++r)
    for (auto& f : fibers) f->resume();
  for (int i = 0; i < count; ++i) {
    CHECK(fibers[static_cast<std::size_t>(i)]->ended());
    std::string wanted;
    for (int r = 0; r < rounds; ++r) wanted += static_cast<char>('a' + (i + r) % 26);
    CHECK(results[static_cast<std::size_t>(i)] == wanted);
  }
}

struct unwound {
  std::function<void()> then;
  ~unwound() { then(); }
};

// Each thread of the C++ runtime knows the exceptions that are handled and in flight on it; fibers share one thread.
TEST_CASE("exceptions that are handled or in flight stay with their fiber") {
  fiber* one = nullptr;
  fiber* two = nullptr;
  std::vector<std::string> rethrown;
  const auto handle = [&rethrown](fiber*& self, const char* name) {
    return [&rethrown, &self, name] {
      try {
        try {
          throw std::runtime_error(name);
        } catch (...) {
          self->yield();
          throw;
        }
      } catch (const std::runtime_error& e) {
        rethrown.emplace_back(e.what());
      }
    };
  };
  fiber first{stack_bytes, handle(one, "first")}, second{stack_bytes, handle(two, "second")};
  one = &first;
  two = &second;
  first.resume();
  second.resume();
  CHECK(std::current_exception() == nullptr);
  first.resume();
  second.resume();
  CHECK(rethrown == std::vector<std::string>{"first", "second"});

  std::vector<int> in_flight;
  fiber* self = nullptr;
  fiber unwinding{stack_bytes, [&] {
                    try {
                      const unwound guard{[&] {
                        self->yield();
                        in_flight.push_back(std::uncaught_exceptions());
                      }};
                      throw std::runtime_error("on its way");
                    } catch (const std::runtime_error&) {
                      in_flight.push_back(std::uncaught_exceptions());
                    }
                  }};
  self = &unwinding;
  unwinding.resume();
  CHECK(std::uncaught_exceptions() == 0);
  unwinding.resume();
  CHECK(in_flight == std::vector<int>{1, 0});
}

TEST_CASE("a fiber may run fibers") {
  std::vector<int> order;
  fiber* outer = nullptr;
  fiber* inner = nullptr;
  fiber f{stack_bytes, [&] {
            fiber g{stack_bytes, [&] {
                      order.push_back(1);
                      inner->yield();
                      order.push_back(3);
                      outer->yield();  // both wait: the whole stack of fibers stops
                      order.push_back(5);
                    }};
            inner = &g;
            g.resume();
            order.push_back(2);
            g.resume();
            order.push_back(6);
          }};
  outer = &f;
  f.resume();
  order.push_back(4);
  f.resume();
  CHECK(f.ended());
  CHECK(order == std::vector<int>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("a fiber that never ran or has not ended can be destroyed") {
  bool ran = false;
  {
    fiber never{stack_bytes, [&] { ran = true; }};
  }
  CHECK_FALSE(ran);
  fiber* self = nullptr;
  fiber half{stack_bytes, [&] {
               self->yield();
               ran = true;
             }};
  self = &half;
  half.resume();
  CHECK_FALSE(ran);
}

}  // namespace
