#include <string>
#include <tuple>
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
  // SECTION_lvalue_await: an operation ends once: co_await std::move
  auto other = world.barrier();
  co_await other;
#endif
#if defined(SECTION_copy)
  // SECTION_copy: deleted|implicitly
  auto first = world.barrier();
  auto second = first;
#endif
#if defined(SECTION_discard)
  // SECTION_discard: co_await it, or call wait
#pragma GCC diagnostic error "-Wunused-result"
  world.barrier();
#endif
  co_await tutti::when_all(std::tuple{world.barrier(), tutti::nothrow(world.barrier())});
#if defined(SECTION_order_of_arguments)
  // SECTION_order_of_arguments: whose braces go from left to right
  co_await tutti::when_all(world.barrier(), tutti::nothrow(world.barrier()));
#endif
#if defined(SECTION_constant_result)
  // SECTION_constant_result: this_buffer_is_written_and_must_not_be_const
  co_await world.all_reduce(constant);
#endif
#if defined(SECTION_strings)
  // SECTION_strings: these_elements_cannot_travel
  co_await world.all_reduce(text);
#endif
#if defined(SECTION_types_differ)
  // SECTION_types_differ: in_and_out_must_have_the_same_type
  std::vector<double> wide(data.size());
  co_await world.all_reduce(constant, wide);
#endif
#if defined(SECTION_bitwise_float)
  // SECTION_bitwise_float: the_library_cannot_reduce_these_elements_so
  co_await world.all_reduce(data, tutti::band);
#endif
  static_cast<void>(constant);
  static_cast<void>(text);
}

}  // namespace

int main() {}
