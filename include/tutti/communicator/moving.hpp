#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <span>
#include <string>

#include <tutti/async/op.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/communicator/base.hpp>
#include <tutti/communicator/elements.hpp>
#include <tutti/core/args.hpp>

namespace tutti::detail {

/// The calls of a communicator that move elements between all ranks.
template <class Base>
class moving_calls : public Base {
 public:
  using Base::Base;
  using typename Base::backend_type;

  /// Gives every rank the root's `data`. Collective; count and root equal on all ranks.
  /// Costs: see algo/direct_gather.hpp and algo/tree.hpp.
  template <writable_elements R>
    requires supports<backend_type, broadcast_args>
  op broadcast(R&& data, int root, issue how = {}, std::source_location where = std::source_location::current()) {
    using T = std::ranges::range_value_t<R>;
    this->check_rank("broadcast", "root", root);
    const auto s = span_of(data);
    return this->start(shape_of<T>(s.size()), how, where,
                       [&](op_state&) { return broadcast_args{erase_type(std::span<T>{s}), root, how.via}; });
  }

  /// The same for one number or small struct; the handle's result is the root's value.
  template <value T>
    requires supports<backend_type, broadcast_args>
  basic_op<T> broadcast(T value, int root, issue how = {},
                        std::source_location where = std::source_location::current()) {
    this->check_rank("broadcast", "root", root);
    return basic_op<T>{this->launch(shape_of<T>(1), how, where, [&](op_state& s) {
      std::memcpy(s.value, &value, sizeof(T));
      return broadcast_args{erase_type(std::span<T>{reinterpret_cast<T*>(s.value), 1}), root, how.via};
    })};
  }

  /// Gives every rank the root's string, whatever its length; only the root's needs to be set.
  op broadcast(std::string& text, int root, issue how = {},
               std::source_location where = std::source_location::current())
    requires supports<backend_type, broadcast_sized_args>
  {
    this->check_rank("broadcast", "root", root);
    constexpr auto resize = [](void* container, std::uint64_t bytes) noexcept -> std::byte* {
      auto& s = *static_cast<std::string*>(container);
      try {
        s.resize(bytes);
      } catch (...) {
        return nullptr;
      }
      return reinterpret_cast<std::byte*>(s.data());
    };
    return this->start({text.size()}, how, where, [&](op_state&) {
      return broadcast_sized_args{&text, resize, reinterpret_cast<std::byte*>(text.data()), text.size(), root};
    });
  }

  /// Block r of everyone's `out` becomes rank r's `in`; the count of `out` is n times that of `in`, which may be the
  /// own block of `out`. Collective. Costs: see algo/direct_gather.hpp and algo/ring.hpp.
  template <elements In, writable_elements Out>
    requires supports<backend_type, all_gather_args> && alike<In, Out>
  op all_gather(In&& in, Out&& out, issue how = {}, std::source_location where = std::source_location::current()) {
    using T = std::ranges::range_value_t<Out>;
    const auto args = checked_all_gather(read_only(in), span_of(out), how.via);
    return this->start(shape_of<T>(args.out.count), how, where, [&](op_state&) { return args; });
  }

 protected:
  template <class T>
  all_gather_args checked_all_gather(std::span<const T> in, std::span<T> out,
                                     algorithm via = algorithm::automatic) const {
    this->check_equal("all_gather", "in x world size", in.size() * this->ranks(), "out", out.size());
    if (in.data() != out.data() + in.size() * this->me()) this->check_apart("all_gather", in, out);
    return {erase_type(in), erase_type(out), via};
  }
};

}  // namespace tutti::detail
