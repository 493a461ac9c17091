#pragma once
#include <cstddef>
#include <source_location>
#include <span>
#include <string>

#include <tutti/async/op.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/communicator/base.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/raw_reduction.hpp>

namespace tutti::detail {

/// The calls of a communicator that compute with a reducer of bytes.
template <class Base>
class raw_reducing_calls : public Base {
 public:
  using Base::all_reduce;
  using Base::Base;
  using Base::reduce_scatter;
  using Base::reduce_scatter_v;
  using typename Base::backend_type;

  /// Reduces `inout` over all ranks, in place, by a function of bytes: elements of `with.element_bytes` that only the
  /// function knows. Collective; sizes equal on all ranks and whole elements, which are never split.
  op all_reduce(std::span<std::byte> inout, const raw_reduction& with, issue how = {},
                std::source_location where = std::source_location::current())
    requires supports<backend_type, all_reduce_args>
  {
    return all_reduce(inout, inout, with, how, where);
  }
  /// The same into another buffer of equal size, which must not overlap.
  op all_reduce(std::span<const std::byte> in, std::span<std::byte> out, const raw_reduction& with, issue how = {},
                std::source_location where = std::source_location::current())
    requires supports<backend_type, all_reduce_args>
  {
    check_raw("all_reduce", with, out.size());
    this->check_equal("all_reduce", "in", in.size(), "out", out.size());
    if (in.data() != out.data()) this->check_apart("all_reduce", in, out);
    return this->start(shape_of_raw(out.size(), with), how, where, [&](op_state&) {
      return all_reduce_args{erase_raw<const_buffer>(in, with), erase_raw<buffer>(out, with), erase_type(with),
                             how.via};
    });
  }

  /// Rank r gets block r of the reduction of everyone's `in`, which is n times the size of `out`. `out` may be block r
  /// of `in`. Collective; sizes are whole elements.
  op reduce_scatter(std::span<const std::byte> in, std::span<std::byte> out, const raw_reduction& with, issue how = {},
                    std::source_location where = std::source_location::current())
    requires supports<backend_type, reduce_scatter_args>
  {
    check_raw("reduce_scatter", with, out.size());
    this->check_equal("reduce_scatter", "in", in.size(), "out x world size", out.size() * this->ranks());
    if (out.data() != in.data() + out.size() * this->me()) this->check_apart("reduce_scatter", in, out);
    return this->start(shape_of_raw(in.size(), with), how, where, [&](op_state&) {
      return reduce_scatter_args{erase_raw<const_buffer>(in, with), erase_raw<buffer>(out, with), erase_type(with),
                                 how.via};
    });
  }
  /// The same with blocks of any lengths: `blocks` counts elements of `with.element_bytes`, not bytes.
  op reduce_scatter_v(std::span<const std::byte> in, std::span<std::byte> out, layout blocks, const raw_reduction& with,
                      issue how = {}, std::source_location where = std::source_location::current())
    requires supports<backend_type, reduce_scatter_v_args>
  {
    check_raw("reduce_scatter_v", with, in.size());
    check_raw("reduce_scatter_v", with, out.size());
    this->check_blocks("reduce_scatter_v", blocks, in.size() / with.element_bytes, access::read);
    this->check_equal("reduce_scatter_v", "out", out.size() / with.element_bytes, "the count of this rank",
                      blocks.size(this->me()));
    if (out.data() != in.data() + blocks.begin(this->me()) * with.element_bytes)
      this->check_apart("reduce_scatter_v", in, out);
    return this->start(shape_of_raw(in.size(), with), how, where, [&](op_state&) {
      return reduce_scatter_v_args{erase_raw<const_buffer>(in, with), erase_raw<buffer>(out, with), blocks,
                                   erase_type(with), how.via};
    });
  }

 private:
  static shape shape_of_raw(std::size_t bytes, const raw_reduction& with) noexcept {
    return {bytes / with.element_bytes, dtype::opaque, with.element_bytes};
  }
  template <class Buffer, class Bytes>
  static Buffer erase_raw(Bytes bytes, const raw_reduction& with) noexcept {
    return {bytes.data(), bytes.size() / with.element_bytes, static_cast<std::uint32_t>(with.element_bytes),
            dtype::opaque, space::host};
  }
  static void check_raw(const char* call, const raw_reduction& with, std::size_t bytes) {
    if (!with.valid())
      throw usage_error(std::string(call) + ": a raw_reduction needs a function and an element of 1 to " +
                        std::to_string(raw_reduction::most_bytes) + " bytes; this one is of " +
                        std::to_string(with.element_bytes));
    if (bytes % with.element_bytes != 0)
      throw usage_error(std::string(call) + ": " + std::to_string(bytes) + " bytes are not whole elements of " +
                        std::to_string(with.element_bytes) + " bytes");
  }
};

}  // namespace tutti::detail
