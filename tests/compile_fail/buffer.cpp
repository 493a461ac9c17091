#include <span>
#include <string>
#include <vector>

#include <tutti/core/buffer.hpp>

// Memory that must not travel, or must not be written.
//
// SECTION_strings: is_trivially_copyable_v
// SECTION_pointers: is_pointer_v
// SECTION_vectors: is_trivially_copyable_v
// SECTION_volatile_memory: is_volatile_v
// SECTION_write_to_const: 'basic_buffer<const void>' to .*'basic_buffer<void>'
// SECTION_container: no matching function for call to 'erase_type
// SECTION_dtype_of_pointer: is_pointer_v
// SECTION_dtype_of_const: dtype_of<const int>|'const int' does not satisfy
// SECTION_dtype_of_reference: is_object_v

namespace {

[[maybe_unused]] tutti::buffer allowed(std::vector<float>& v) { return tutti::erase_type(std::span{v}); }
[[maybe_unused]] tutti::const_buffer allowed(const std::vector<float>& v) { return tutti::erase_type(std::span{v}); }

#if defined(SECTION_strings)
auto f(std::span<std::string> s) { return tutti::erase_type(s); }
#endif

#if defined(SECTION_pointers)
auto f(std::span<int*> s) { return tutti::erase_type(s); }
#endif

#if defined(SECTION_vectors)
auto f(std::span<const std::vector<int>> s) { return tutti::erase_type(s); }
#endif

#if defined(SECTION_volatile_memory)
auto f(std::span<volatile int> s) { return tutti::erase_type(s); }
#endif

#if defined(SECTION_write_to_const)
tutti::buffer f(std::span<const float> s) { return tutti::erase_type(s); }
#endif

#if defined(SECTION_container)
auto f(std::vector<float>& v) { return tutti::erase_type(v); }
#endif

#if defined(SECTION_dtype_of_pointer)
const auto t = tutti::dtype_of<float*>();
#endif

#if defined(SECTION_dtype_of_const)
const auto t = tutti::dtype_of<const int>();
#endif

#if defined(SECTION_dtype_of_reference)
const auto t = tutti::dtype_of<int&>();
#endif

}  // namespace
