#pragma once
#include <cstddef>
#include <cstdint>

#include <tutti/config.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/watch/record.hpp>

namespace tutti::watch {

/// Returns the record of a call with these arguments, an aggregate of core/args.hpp, as it is issued.
template <class Args>
[[gnu::always_inline]] inline issued_operation issue_of(const Args& a, std::size_t count, dtype type) noexcept {
  constexpr call_kind named = call_kind::of(Args::name);
  call_kind call = named;
  if constexpr (requires { a.within; })
    if (a.within) call = call_kind::of(a.within);
  std::size_t element = size_of(type);
  if constexpr (requires { a.data.element_bytes; })
    element = a.data.element_bytes;
  else if constexpr (requires { a.out.element_bytes; })
    element = a.out.element_bytes;
  issued_operation o{call, count, element, type};
  if constexpr (requires { a.op.kind; }) o.reduction(a.op.kind);
  if constexpr (requires { a.root; }) o.other(a.root);
  if constexpr (requires { a.peer; }) o.other(a.peer);
  if constexpr (requires { a.tag; }) o.tag(static_cast<std::uint32_t>(a.tag));
  return o;
}

}  // namespace tutti::watch
