#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/reducer.hpp>

// Misuse of the reducer that the compiler finds.
//
// SECTION_copied_reducer: deleted
// SECTION_moved_reducer: deleted
// SECTION_copied_pass: deleted
// SECTION_assigned_pass: deleted
// SECTION_copied_arena: deleted
// SECTION_world_of_the_moment: cannot bind|rvalue|no viable|expects an lvalue
// SECTION_gradient_of_strings: satisfaction of .number<.*string|string.*satisfy 'number'
// SECTION_hook_without_flight: (because|satisfaction of) .reduction_hook<.*no_flight
// SECTION_hook_of_numbers: (because|satisfaction of) .reduction_hook<.*number_flight
// SECTION_hook_of_floats_only: (because|satisfaction of) .reduction_hook<.*floats_only
// SECTION_hook_of_two_flights: (because|satisfaction of) .reduction_hook<.*two_flights
// SECTION_not_a_hook: (because|satisfaction of) .reduction_hook<.*int
// SECTION_own_memory_of_the_moment: gradients_lie_in_a_named_container_or_span
// SECTION_constant_own_memory: gradients_lie_in_a_named_container_or_span
// SECTION_discarded_pass: nodiscard

namespace {

using world_t = tutti::communicator<tutti::threads>;
using tutti::grad::bucket_view;
using tutti::grad::reducer;

[[maybe_unused]] void allowed(world_t& world, const std::vector<tutti::grad::parameter_shape>& shapes) {
  reducer averaged{world, shapes, {{1 << 20, 25 << 20}}};
  std::vector<float> own(10);
  reducer in_place{world, shapes, own};
  reducer hooked{world, shapes, {}, [](auto& w, auto bucket) { return w.all_reduce(bucket.elements); }};
  auto pass = averaged.begin(32, tutti::grad::contribution::sum);
  auto moved = std::move(pass);
  averaged.gradient<float>(0)[0] = 1;
  moved.ready(0);
  tutti::sync_wait(world, moved.finish());
}

[[maybe_unused]] struct no_flight {
  void operator()(world_t&, auto) const {}
} none;
[[maybe_unused]] struct number_flight {
  int operator()(world_t&, auto) const { return 1; }
} number;
[[maybe_unused]] struct floats_only {
  tutti::op operator()(world_t& w, bucket_view<float> b) const { return w.all_reduce(b.elements); }
} floats;
[[maybe_unused]] struct two_flights {
  tutti::op operator()(world_t& w, bucket_view<float> b) const { return w.all_reduce(b.elements); }
  template <class T>
  tutti::basic_op<float> operator()(world_t& w, bucket_view<T>) const {
    return w.all_reduce(1.0f);
  }
} two;

#if defined(SECTION_copied_reducer)
void f(reducer<world_t>& r) { auto copy = r; }
#endif

#if defined(SECTION_moved_reducer)
void f(reducer<world_t>& r) { auto moved = std::move(r); }
#endif

#if defined(SECTION_copied_pass)
void f(reducer<world_t>& r) {
  auto pass = r.begin();
  auto copy = pass;
}
#endif

#if defined(SECTION_assigned_pass)
void f(reducer<world_t>& r) {
  auto pass = r.begin();
  pass = r.begin();
}
#endif

#if defined(SECTION_copied_arena)
void f(const tutti::grad::arena& a) { auto copy = a; }
#endif

#if defined(SECTION_world_of_the_moment)
world_t make();
void f(const std::vector<tutti::grad::parameter_shape>& shapes) { reducer<world_t> r{make(), shapes}; }
#endif

#if defined(SECTION_gradient_of_strings)
auto f(reducer<world_t>& r) { return r.gradient<std::string>(0); }
#endif

#if defined(SECTION_hook_without_flight)
using r = reducer<world_t, no_flight>;
#endif

#if defined(SECTION_hook_of_numbers)
using r = reducer<world_t, number_flight>;
#endif

#if defined(SECTION_hook_of_floats_only)
using r = reducer<world_t, floats_only>;
#endif

#if defined(SECTION_hook_of_two_flights)
using r = reducer<world_t, two_flights>;
#endif

#if defined(SECTION_not_a_hook)
using r = reducer<world_t, int>;
#endif

#if defined(SECTION_own_memory_of_the_moment)
void f(world_t& w, const std::vector<tutti::grad::parameter_shape>& shapes) {
  reducer<world_t> r{w, shapes, std::vector<float>(10)};
}
#endif

#if defined(SECTION_constant_own_memory)
void f(world_t& w, const std::vector<tutti::grad::parameter_shape>& shapes, const std::vector<float>& own) {
  reducer<world_t> r{w, shapes, own};
}
#endif

#if defined(SECTION_discarded_pass)
#pragma GCC diagnostic error "-Wunused-result"
void f(reducer<world_t>& r) { r.begin(); }
#endif

}  // namespace
