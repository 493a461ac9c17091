#include <tutti/core/half.hpp>

// A conversion that rounds is spelled out.
//
// SECTION_float_to_float16: from 'float' to .*float16'
// SECTION_float_to_bfloat16: from 'float' to .*bfloat16'
// SECTION_assignment: from 'float' to 'const .*float16
// SECTION_sum_back_to_float16: (from|of type) 'float' to .*float16'
// SECTION_float16_to_bfloat16: (from|of type) 'tutti::float16' to .*bfloat16'

namespace {

[[maybe_unused]] tutti::float16 allowed(tutti::float16 a, tutti::bfloat16 b) { return tutti::float16(a + b); }

#if defined(SECTION_float_to_float16)
tutti::float16 h = 1.0f;
#endif

#if defined(SECTION_float_to_bfloat16)
tutti::bfloat16 h = 1.0f;
#endif

#if defined(SECTION_assignment)
void f(tutti::float16& h) { h = 2.0f; }
#endif

#if defined(SECTION_sum_back_to_float16)
tutti::float16 f(tutti::float16 a, tutti::float16 b) { return a + b; }
#endif

#if defined(SECTION_float16_to_bfloat16)
tutti::bfloat16 f(tutti::float16 a) { return a; }
#endif

}  // namespace
