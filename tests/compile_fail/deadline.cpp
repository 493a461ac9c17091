#include <chrono>

#include <tutti/core/deadline.hpp>
#include <tutti/core/options.hpp>

// A time has a unit, a moment is not a duration.
//
// SECTION_number_without_unit: from 'int' to '(tutti::)?duration
// SECTION_timeout_without_unit: from 'int' to '(tutti::)?duration
// SECTION_fractions_of_a_nanosecond: from 'duration<double.*' to 'duration<
// SECTION_time_of_day: from 'time_point<.*system_clock.*' to 'time_point<.*steady_clock
// SECTION_duration_as_deadline: from '.*chrono::seconds'.* to '(tutti::)?deadline
// SECTION_deadline_from_number: from 'int' to .*deadline'
// SECTION_algorithm_from_number: 'int' to '(tutti::)?algorithm|'(tutti::)?algorithm' with an rvalue of type 'int'

namespace {

using namespace std::chrono_literals;
[[maybe_unused]] tutti::duration allowed() { return tutti::remaining(tutti::after(30s)); }
[[maybe_unused]] constexpr tutti::call_options options{.timeout = 5min, .via = tutti::algorithm::ring};

#if defined(SECTION_number_without_unit)
const auto d = tutti::after(30);
#endif

#if defined(SECTION_timeout_without_unit)
const tutti::call_options i{.timeout = 30};
#endif

#if defined(SECTION_fractions_of_a_nanosecond)
const auto d = tutti::after(std::chrono::duration<double>{0.5});
#endif

#if defined(SECTION_time_of_day)
const auto d = tutti::remaining(std::chrono::system_clock::now());
#endif

#if defined(SECTION_duration_as_deadline)
const auto d = tutti::remaining(5s);
#endif

#if defined(SECTION_deadline_from_number)
const tutti::deadline d = 5;
#endif

#if defined(SECTION_algorithm_from_number)
const tutti::call_options i{.via = 2};
#endif

}  // namespace
