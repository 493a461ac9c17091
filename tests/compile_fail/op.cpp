#include <string>
#include <vector>

#include <tutti/tutti.hpp>

namespace {

// Misuse of operations and communicators that the types catch.

[[maybe_unused]] tutti::task<> use(tutti::communicator<>& world, std::vector<float>& data,
                                   const std::vector<float>& constant, std::vector<std::string>& text) {
  auto running = world.all_reduce(data);
  auto moved = std::move(running);
  co_await std::move(moved);
#if defined(SECTION_lvalue_await)
  // SECTION_lvalue_await: co_await|await_ready|operator
  auto other = world.barrier();
  co_await other;
#endif
#if defined(SECTION_copy)
  // SECTION_copy: deleted|implicitly
  auto first = world.barrier();
  auto second = first;
#endif
#if defined(SECTION_discard)
  // SECTION_discard: nodiscard
#pragma GCC diagnostic error "-Wunused-result"
  world.barrier();
#endif
#if defined(SECTION_constant_result)
  // SECTION_constant_result: writable_elements|no matching|constraints
  co_await world.all_reduce(constant);
#endif
#if defined(SECTION_strings)
  // SECTION_strings: no matching|constraints
  co_await world.all_reduce(text);
#endif
#if defined(SECTION_types_differ)
  // SECTION_types_differ: no matching|constraints
  std::vector<double> wide(data.size());
  co_await world.all_reduce(constant, wide);
#endif
#if defined(SECTION_bitwise_float)
  // SECTION_bitwise_float: no matching|constraints
  co_await world.all_reduce(data, tutti::band);
#endif
  static_cast<void>(constant);
  static_cast<void>(text);
}

}  // namespace

int main() {}
