#include <chrono>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/threads.hpp>

// What a communicator does not take: memory that must not travel or be written, types that do not fit one another, and
// a second owner.
//
// SECTION_copy: deleted
// SECTION_copy_assignment: deleted
// SECTION_strings: these_elements_cannot_travel
// SECTION_string_by_value: this_buffer_is_a_temporary
// SECTION_too_large_by_value: a_value_is_trivially_copyable_and_has_64_bytes_and_an_alignment_of_16_at_most
// SECTION_too_large_to_reduce_by_value: a_value_is_trivially_copyable.*_so_pass_a_span_of_another
// SECTION_pointer_by_value: pass_a_span
// SECTION_prepared_sum_of_a_value: values_cannot_be_prepared_so_pass_a_span_of_one_that_outlives_it
// SECTION_prepared_broadcast_of_a_value: values_cannot_be_prepared_so_pass_a_span_of_one_that_outlives_it
// SECTION_sum_of_a_value_on_a_device: values_are_in_host_memory_so_pass_them_to_a_communicator_of_the_host
// SECTION_large_elements: these_elements_cannot_travel
// SECTION_constant_buffer: this_buffer_is_written_and_must_not_be_const
// SECTION_constant_out: this_buffer_is_written_and_must_not_be_const
// SECTION_in_and_out_differ: in_and_out_must_have_the_same_type
// SECTION_gather_types_differ: in_and_out_must_have_the_same_type
// SECTION_vector_of_bool: for_vector_of_bool_use_vector_of_char
// SECTION_container_of_the_moment: this_buffer_is_a_temporary.*pass_a_named_container
// SECTION_counts_of_the_moment: these_counts_are_a_temporary
// SECTION_signed_counts: counts_and_offsets_must_be_std_size_t.*tutti_as_counts_makes_them
// SECTION_offsets_of_the_moment: these_counts_are_a_temporary
// SECTION_reduce_to_constant: this_buffer_is_written_and_must_not_be_const
// SECTION_reduce_structs: the_library_cannot_reduce_these_elements_so_pass_a_function
// SECTION_reduce_by_what_is_none: the_library_cannot_reduce_these_elements_so_pass_a_function
// SECTION_reduce_scatter_v_differ: in_and_out_must_have_the_same_type
// SECTION_reduce_scatter_v_of_structs: the_library_cannot_reduce_these_elements_so_pass_a_function
// SECTION_coalesced_vectors: each_of_these_buffers_must_be_a_span
// SECTION_coalesced_temporary: this_buffer_is_a_temporary
// SECTION_scan_structs: the_library_cannot_reduce_these_elements_so_pass_a_function
// SECTION_exclusive_scan_temporary: this_buffer_is_a_temporary
// SECTION_gather_to_constant: this_buffer_is_written_and_must_not_be_const
// SECTION_gather_v_of_bool: for_vector_of_bool_use_vector_of_char
// SECTION_scatter_types_differ: in_and_out_must_have_the_same_type
// SECTION_scatter_v_temporary: this_buffer_is_a_temporary
// SECTION_all_to_all_strings: these_elements_cannot_travel
// SECTION_all_to_all_v_differ: in_and_out_must_have_the_same_type
// SECTION_all_gather_v_to_constant: this_buffer_is_written_and_must_not_be_const
// SECTION_sum_of_structs: the_library_cannot_reduce_these_elements_so_pass_a_function
// SECTION_sum_of_struct_by_value: the_library_cannot_reduce_these_elements_so_pass_a_function
// SECTION_temporary_to_send: this_buffer_is_a_temporary
// SECTION_constant_to_receive: this_buffer_is_written_and_must_not_be_const
// SECTION_temporary_to_receive_from_any: this_buffer_is_a_temporary
// SECTION_raw_reduction_of_floats: a_raw_reduction_takes_ranges_of_std_byte_as_std_as_writable_bytes_makes_them
// SECTION_raw_reduction_into_floats: a_raw_reduction_takes_ranges_of_std_byte_as_std_as_writable_bytes_makes_them
// SECTION_raw_reduction_of_spans_of_floats: a_raw_reduction_takes_ranges_of_std_byte_as_std_as_writable_bytes
// SECTION_timeout_without_unit: no matching (member )?function for call to .*timeout
// SECTION_register_temporary: this_buffer_is_a_temporary
// SECTION_register_constant: this_buffer_is_written_and_must_not_be_const
// SECTION_allocate_strings: is_trivially_copyable_v.*string|constraints not satisfied .*string
// SECTION_not_a_backend: 'int' does not satisfy 'backend'|satisfaction of 'backend<B>' .*int

namespace {

using world_t = tutti::communicator<tutti::threads>;

struct point {
  double x, y;
};
struct page_and_more {
  char bytes[4097];
};
struct nine {
  double words[9];
};
struct device_backend : tutti::threads {
  static constexpr tutti::space where = tutti::space::cuda;
};

[[maybe_unused]] void allowed(world_t& world, std::vector<point>& points, const std::vector<float>& constant,
                              std::vector<float>& out) {
  world_t moved = std::move(world);
  moved.all_reduce(points, [](point a, point b) { return point{a.x + b.x, a.y + b.y}; }).wait();
  moved.all_reduce(constant, out, tutti::max).wait();
  const tutti::raw_reduction raw;
  moved.all_reduce(std::as_writable_bytes(std::span{out}), raw).wait();
  moved.recv_any(out).wait();
  moved.all_reduce(std::span{out}.first(1)).wait();
  moved.send(constant, 1).wait();
  const std::vector<std::size_t> counts{1, 2};
  moved.all_gather_v(constant, out, counts).wait();
  moved.all_gather_v(constant, out, {counts, counts}).wait();
  moved.reduce(points, 0, [](point a, point b) { return point{a.x + b.x, a.y + b.y}; }).wait();
  moved.reduce(constant, std::span<float>{}, 1, tutti::max, {.timeout = std::chrono::seconds(1)}).wait();
  moved.reduce_scatter_v(constant, out, {counts, counts}, tutti::max).wait();
  moved.scan(out).wait();
  moved.exclusive_scan(constant, out, tutti::max).wait();
  moved.all_to_all_v(constant, counts, out, {counts, counts}).wait();
}

#if defined(SECTION_copy)
void f(const world_t& world) { auto copy = world; }
#endif

#if defined(SECTION_copy_assignment)
void f(world_t& a, const world_t& b) { a = b; }
#endif

#if defined(SECTION_strings)
auto f(world_t& world, std::vector<std::string>& v) { return world.all_reduce(v); }
#endif

#if defined(SECTION_string_by_value)
auto f(world_t& world) { return world.all_reduce(std::string("text")); }
#endif

#if defined(SECTION_too_large_by_value)
auto f(world_t& world, nine n) { return world.broadcast(n, 0); }
#endif

#if defined(SECTION_too_large_to_reduce_by_value)
auto f(world_t& world, nine n) {
  return world.all_reduce(n, [](nine a, nine) { return a; });
}
#endif

#if defined(SECTION_pointer_by_value)
auto f(world_t& world, float* p) { return world.all_reduce(p); }
#endif

#if defined(SECTION_prepared_sum_of_a_value)
auto f(world_t& world) { return world.prepare().all_reduce(3.0f); }
#endif

#if defined(SECTION_prepared_broadcast_of_a_value)
auto f(world_t& world) { return world.prepare().broadcast(3.0f, 0); }
#endif

#if defined(SECTION_sum_of_a_value_on_a_device)
auto f(tutti::communicator<device_backend>& world) { return world.all_reduce(3.0f); }
#endif

#if defined(SECTION_large_elements)
auto f(world_t& world, std::vector<page_and_more>& v) { return world.broadcast(v, 0); }
#endif

#if defined(SECTION_constant_buffer)
auto f(world_t& world, const std::vector<float>& v) { return world.all_reduce(v); }
#endif

#if defined(SECTION_constant_out)
auto f(world_t& world, std::span<const float> in, std::span<const float> out) { return world.all_reduce(in, out); }
#endif

#if defined(SECTION_in_and_out_differ)
auto f(world_t& world, std::vector<float>& in, std::vector<double>& out) { return world.all_reduce(in, out); }
#endif

#if defined(SECTION_gather_types_differ)
auto f(world_t& world, std::vector<int>& in, std::vector<unsigned>& out) { return world.all_gather(in, out); }
#endif

#if defined(SECTION_vector_of_bool)
auto f(world_t& world, std::vector<bool>& v) { return world.all_reduce(v); }
#endif

#if defined(SECTION_container_of_the_moment)
auto f(world_t& world) { return world.all_reduce(std::vector<float>(10)); }
#endif

#if defined(SECTION_counts_of_the_moment)
auto f(world_t& world, std::vector<float>& in, std::vector<float>& out) {
  return world.all_gather_v(in, out, std::vector<std::size_t>{1, 2});
}
#endif

#if defined(SECTION_signed_counts)
auto f(world_t& world, std::vector<float>& in, std::vector<float>& out, std::vector<int>& counts) {
  return world.all_gather_v(in, out, counts);
}
#endif

#if defined(SECTION_offsets_of_the_moment)
auto f(world_t& world, std::vector<float>& in, std::vector<float>& out, std::vector<std::size_t>& counts) {
  return world.all_gather_v(in, out, {counts, std::vector<std::size_t>{1, 2}});
}
#endif

#if defined(SECTION_reduce_to_constant)
auto f(world_t& world, std::vector<float>& in, std::span<const float> out) { return world.reduce(in, out, 0); }
#endif

#if defined(SECTION_reduce_structs)
auto f(world_t& world, std::vector<point>& v) { return world.reduce(v, 0); }
#endif

#if defined(SECTION_reduce_by_what_is_none)
auto f(world_t& world, std::vector<float>& in, std::vector<float>& out) {
  return world.reduce(in, out, 0, tutti::band);
}
#endif

#if defined(SECTION_reduce_scatter_v_differ)
auto f(world_t& world, std::vector<float>& in, std::vector<int>& out, std::vector<std::size_t>& counts) {
  return world.reduce_scatter_v(in, out, {counts, counts});
}
#endif

#if defined(SECTION_reduce_scatter_v_of_structs)
auto f(world_t& world, std::vector<point>& in, std::vector<point>& out, std::vector<std::size_t>& counts) {
  return world.reduce_scatter_v(in, out, counts, tutti::max);
}
#endif

#if defined(SECTION_coalesced_vectors)
auto f(world_t& world, std::vector<std::vector<float>>& v) { return world.all_reduce_coalesced(v); }
#endif

#if defined(SECTION_coalesced_temporary)
auto f(world_t& world, std::span<float> v) { return world.all_reduce_coalesced(std::vector{v, v}); }
#endif

#if defined(SECTION_scan_structs)
auto f(world_t& world, std::vector<point>& v) { return world.scan(v); }
#endif

#if defined(SECTION_exclusive_scan_temporary)
auto f(world_t& world, std::vector<float>& in) { return world.exclusive_scan(in, std::vector<float>(10)); }
#endif

#if defined(SECTION_gather_to_constant)
auto f(world_t& world, std::vector<float>& in, const std::vector<float>& out) { return world.gather(in, out, 0); }
#endif

#if defined(SECTION_gather_v_of_bool)
auto f(world_t& world, std::vector<bool>& in, std::vector<bool>& out, std::vector<std::size_t>& counts) {
  return world.gather_v(in, out, counts, 0);
}
#endif

#if defined(SECTION_scatter_types_differ)
auto f(world_t& world, std::vector<float>& in, std::vector<double>& out) { return world.scatter(in, out, 0); }
#endif

#if defined(SECTION_scatter_v_temporary)
auto f(world_t& world, std::vector<float>& in, std::vector<std::size_t>& counts) {
  return world.scatter_v(in, std::vector<float>(10), counts, 0);
}
#endif

#if defined(SECTION_all_to_all_strings)
auto f(world_t& world, std::vector<std::string>& in, std::vector<std::string>& out) {
  return world.all_to_all(in, out);
}
#endif

#if defined(SECTION_all_to_all_v_differ)
auto f(world_t& world, std::vector<float>& in, std::vector<int>& out, std::vector<std::size_t>& counts) {
  return world.all_to_all_v(in, counts, out, counts);
}
#endif

#if defined(SECTION_all_gather_v_to_constant)
auto f(world_t& world, std::vector<float>& in, const std::vector<float>& out, std::vector<std::size_t>& counts) {
  return world.all_gather_v(in, out, counts);
}
#endif

#if defined(SECTION_sum_of_structs)
auto f(world_t& world, std::vector<point>& v) { return world.all_reduce(v); }
#endif

#if defined(SECTION_sum_of_struct_by_value)
auto f(world_t& world) { return world.all_reduce(point{1, 2}); }
#endif

#if defined(SECTION_temporary_to_send)
auto f(world_t& world) { return world.send(std::vector<float>(10), 1); }
#endif

#if defined(SECTION_constant_to_receive)
auto f(world_t& world, const std::vector<float>& v) { return world.recv(v, 1); }
#endif

#if defined(SECTION_temporary_to_receive_from_any)
auto f(world_t& world) { return world.recv_any(std::vector<float>(10)); }
#endif

#if defined(SECTION_raw_reduction_of_floats)
auto f(world_t& world, std::vector<float>& v, tutti::raw_reduction with) { return world.all_reduce(v, with); }
#endif

#if defined(SECTION_raw_reduction_into_floats)
auto f(world_t& world, std::vector<float>& in, std::vector<float>& out, tutti::raw_reduction with) {
  return world.reduce(in, out, 0, with);
}
#endif

#if defined(SECTION_raw_reduction_of_spans_of_floats)
auto f(world_t& world, std::vector<std::span<float>>& v, tutti::raw_reduction with) {
  return world.all_reduce_coalesced(v, with);
}
#endif

#if defined(SECTION_timeout_without_unit)
void f(const world_t& world) { world.timeout(30); }
#endif

#if defined(SECTION_register_temporary)
void f(world_t& w) { const auto held = w.register_buffer(std::vector<float>(10)); }
#endif

#if defined(SECTION_register_constant)
void f(world_t& w, const std::vector<float>& constant) { const auto held = w.register_buffer(constant); }
#endif

#if defined(SECTION_allocate_strings)
auto f(world_t& world) { return world.allocate<std::string>(10); }
#endif

#if defined(SECTION_not_a_backend)
using w = tutti::communicator<int>;
#endif

}  // namespace
