#include <system_error>

#include <tutti/core/error.hpp>
#include <tutti/core/status.hpp>

// Codes are neither numbers nor exceptions.
//
// SECTION_code_is_no_number: '(tutti::)?errc' to 'const int'|'const int' with an rvalue of type '(tutti::)?errc'
// SECTION_status_from_number: 'int' to '(tutti::)?errc'|'errc' with an rvalue of type 'int'
// SECTION_code_of_another_category: 'std::errc' to '(tutti::)?errc'|'errc' with an rvalue of type 'std::errc'
// SECTION_error_without_a_message: no matching .*tutti::error
// SECTION_usage_error_from_status: no matching .*tutti::usage_error
// SECTION_usage_error_is_no_error: const tutti::error&?' from .*usage_error|usage_error' to function return type 'const
// tutti::error'

namespace {

using tutti::errc;
using tutti::status;
[[maybe_unused]] const std::error_code allowed = errc::timed_out;
[[maybe_unused]] void may_throw() { throw tutti::error{status{.code = errc::aborted}, "rank 2 called abort()"}; }

#if defined(SECTION_code_is_no_number)
const int number = errc::aborted;
#endif

#if defined(SECTION_status_from_number)
const status s{2};
#endif

#if defined(SECTION_code_of_another_category)
const status s{.code = std::errc::timed_out};
#endif

#if defined(SECTION_error_without_a_message)
const tutti::error e{status{.code = errc::aborted}};
#endif

#if defined(SECTION_usage_error_from_status)
const tutti::usage_error e{status{.code = errc::aborted}};
#endif

#if defined(SECTION_usage_error_is_no_error)
const tutti::error& f(const tutti::usage_error& e) { return e; }
#endif

}  // namespace
