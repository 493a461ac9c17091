#pragma once
#include <pthread.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/os/memory_areas.hpp>

namespace tutti::os {

namespace detail {

/// Returns true if the range shares a byte with the stack of the calling thread.
inline bool is_own_stack(std::uintptr_t begin, std::uintptr_t end) noexcept {
  pthread_attr_t attributes;
  if (::pthread_getattr_np(::pthread_self(), &attributes) != 0) return false;
  void* stack = nullptr;
  std::size_t bytes = 0;
  const bool known = ::pthread_attr_getstack(&attributes, &stack, &bytes) == 0;
  ::pthread_attr_destroy(&attributes);
  const auto at = reinterpret_cast<std::uintptr_t>(stack);
  return known && begin < at + bytes && at < end;
}

/// Returns the reason for which pages of this mapping cannot be replaced by shared ones; empty if they can.
inline std::string why_not_replaceable(const memory_area& a) {
  const std::string instead = "; use memory of the heap (new, malloc, a std::vector), or allocate()";
  if (a.permissions.find('s') != a.permissions.npos)
    return "it is shared memory already (" + (a.name.empty() ? "of no name" : a.name) +
           "), which this would cut off from those that share it" + instead;
  if (a.has("ht")) return "it lies in huge pages of hugetlbfs, which cannot be replaced" + instead;
  if (a.inode != 0) return "it is a mapping of the file " + a.name + instead;
  if (a.name == "[stack]" || a.has("gd")) return "it lies on a stack" + instead;
  if (a.has("io") || a.has("pf")) return "it is memory of a device" + instead;
  if (a.permissions.compare(0, 2, "rw") != 0) return "it is not readable and writable" + instead;
  if (a.has("dc"))
    return "it is marked MADV_DONTFORK, as memory is that a network card or GPU accesses, which would go on to access "
           "the pages of before" +
           instead;
  if (a.has("wf")) return "it is marked MADV_WIPEONFORK" + instead;
  if (a.has("um") || a.has("uw")) return "it is watched by userfaultfd" + instead;
  return "";
}

}  // namespace detail

/// Returns the reason for which the pages [begin, end), whose mappings are `areas` by areas_in(), cannot be replaced by
/// shared ones, and what to use instead; empty if they can. Memory that a device has pinned cannot be told from other.
[[nodiscard]] inline std::string why_not_registrable(const std::vector<memory_area>& areas, std::uintptr_t begin,
                                                     std::uintptr_t end) {
  std::uintptr_t at = begin;
  for (const memory_area& a : areas) {
    if (a.begin != at) break;
    if (const std::string why = detail::why_not_replaceable(a); !why.empty()) return why;
    at = a.end;
  }
  if (at != end) return "it is not memory of this process from one end to the other; pass memory that exists";
  if (detail::is_own_stack(begin, end)) return "it lies on this thread's stack; use memory of the heap, or allocate()";
  return "";
}

}  // namespace tutti::os
