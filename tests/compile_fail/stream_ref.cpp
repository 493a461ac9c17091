#include <tutti/core/stream_ref.hpp>

// A number is not a stream: 0 would silently be the legacy default stream, which waits for all others.
//
// SECTION_zero: deleted
// SECTION_zero_argument: deleted
// SECTION_number: deleted
// SECTION_false: deleted
// SECTION_long_zero: ambiguous
// SECTION_untyped_pointer: 'void ?\*' to .*stream_ref'
// SECTION_is_no_number: stream_ref' to 'const int'
// SECTION_is_no_bool: stream_ref' to 'const bool'

namespace {

[[maybe_unused]] const tutti::stream_ref nothing;
[[maybe_unused]] const tutti::stream_ref null = nullptr;
[[maybe_unused]] CUstream_st* allowed(tutti::stream_ref s) { return s ? s.native() : nullptr; }

#if defined(SECTION_zero)
const tutti::stream_ref s = 0;
#endif

#if defined(SECTION_zero_argument)
auto* const s = allowed(0);
#endif

#if defined(SECTION_number)
const tutti::stream_ref s{7};
#endif

#if defined(SECTION_false)
const tutti::stream_ref s{false};
#endif

#if defined(SECTION_long_zero)
const tutti::stream_ref s{0L};
#endif

#if defined(SECTION_untyped_pointer)
tutti::stream_ref f(void* p) { return p; }
#endif

#if defined(SECTION_is_no_number)
const int number = nothing;
#endif

#if defined(SECTION_is_no_bool)
const bool some = nothing;
#endif

}  // namespace
