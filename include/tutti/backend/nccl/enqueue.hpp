#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <tutti/backend/nccl/divide.hpp>
#include <tutti/backend/nccl/driver.hpp>
#include <tutti/backend/nccl/feature.hpp>
#include <tutti/backend/nccl/operand.hpp>
#include <tutti/backend/nccl/types.hpp>
#include <tutti/core/args.hpp>
#include <tutti/core/status.hpp>

/// Collectives as calls of NCCL, in a driver's stream. Data that is only moved is sent as bytes. Collectives that NCCL
/// lacks are composed of messages, or of rooted collectives, in one group, which is one launch.
namespace tutti::detail {

template <class Api>
class nccl_enqueue {
  using driver = nccl_driver<Api>;

 public:
  explicit nccl_enqueue(driver& d) noexcept : d_(d) {}

  nccl_result operator()(const barrier_args&) const noexcept {
    return Api::all_reduce(d_.scratch(), d_.scratch(), 1, nccl_dtype::u8, nccl_reduction::op_max, d_.comm(),
                           d_.stream());
  }

  nccl_result operator()(const all_reduce_args& a) const noexcept {
    return reduced(a.op, a.in.type, [&](const nccl_operand& o) {
      return pieces(o, a.in.count, a.in.element_bytes, [&](std::size_t first, std::size_t count) {
        return Api::all_reduce(at(a.in, first), at(a.out, first), count * o.per_element, o.type, o.with, d_.comm(),
                               d_.stream());
      });
    });
  }
  nccl_result operator()(const reduce_args& a) const noexcept {
    return reduced(a.op, a.in.type, [&](const nccl_operand& o) {
      return pieces(o, a.in.count, a.in.element_bytes, [&](std::size_t first, std::size_t count) {
        return Api::reduce(at(a.in, first), at(a.out, first), count * o.per_element, o.type, o.with, a.root, d_.comm(),
                           d_.stream());
      });
    });
  }
  nccl_result operator()(const reduce_scatter_args& a) const noexcept {
    return reduced(a.op, a.in.type, [&](const nccl_operand& o) {
      return pieces(o, a.out.count, a.in.element_bytes, [&](std::size_t first, std::size_t count) {
        return Api::reduce_scatter(at(a.in, first), at(a.out, first), count * o.per_element, o.type, o.with, d_.comm(),
                                   d_.stream());
      });
    });
  }
  nccl_result operator()(const reduce_scatter_v_args& a) const noexcept {
    return reduced(a.op, a.in.type, [&](const nccl_operand& o) {
      return for_ranks([&](int root, std::size_t r) {
        if (a.blocks.size(r) == 0) return nccl_result::success;
        return pieces(o, a.blocks.size(r), a.in.element_bytes, [&](std::size_t first, std::size_t count) {
          return Api::reduce(at(a.in, a.blocks.begin(r) + first), at(a.out, first), count * o.per_element, o.type,
                             o.with, root, d_.comm(), d_.stream());
        });
      });
    });
  }
  nccl_result operator()(const all_reduce_coalesced_args& a) const noexcept {
    return reduced(a.op, a.data.type, [&](const nccl_operand& o) {
      return grouped(a.data.size, [&](std::size_t i) {
        const auto part = a.data[i];
        const std::size_t count = part.size() / a.data.element_bytes;
        if (count == 0) return nccl_result::success;
        return pieces(o, count, a.data.element_bytes, [&](std::size_t first, std::size_t n) {
          std::byte* const from = part.data() + first * a.data.element_bytes;
          return Api::all_reduce(from, from, n * o.per_element, o.type, o.with, d_.comm(), d_.stream());
        });
      });
    });
  }

  nccl_result operator()(const broadcast_args& a) const noexcept {
    return Api::broadcast(a.data.data, a.data.data, a.data.bytes(), nccl_dtype::u8, a.root, d_.comm(), d_.stream());
  }
  nccl_result operator()(const all_gather_args& a) const noexcept {
    return Api::all_gather(a.in.data, a.out.data, a.in.bytes(), nccl_dtype::u8, d_.comm(), d_.stream());
  }
  nccl_result operator()(const all_gather_v_args& a) const noexcept {
    return for_ranks([&](int root, std::size_t r) {
      const std::size_t bytes = a.blocks.size(r) * a.out.element_bytes;
      if (bytes == 0) return nccl_result::success;
      void* const to = at(a.out, a.blocks.begin(r));
      return Api::broadcast(root == rank() ? a.in.data : to, to, bytes, nccl_dtype::u8, root, d_.comm(), d_.stream());
    });
  }

  nccl_result operator()(const send_args& a) const noexcept { return send(a.data.data, a.data.bytes(), a.peer); }
  nccl_result operator()(const recv_args& a) const noexcept { return recv(a.data.data, a.data.bytes(), a.peer); }

  nccl_result operator()(const gather_args& a) const noexcept {
    if (natively())
      return Api::gather(a.in.data, a.out.data, a.in.bytes(), nccl_dtype::u8, a.root, d_.comm(), d_.stream());
    return run_messages(a);
  }
  nccl_result operator()(const gather_v_args& a) const noexcept { return run_messages(a); }
  nccl_result operator()(const scatter_args& a) const noexcept {
    if (natively())
      return Api::scatter(a.in.data, a.out.data, a.out.bytes(), nccl_dtype::u8, a.root, d_.comm(), d_.stream());
    return run_messages(a);
  }
  nccl_result operator()(const scatter_v_args& a) const noexcept { return run_messages(a); }
  nccl_result operator()(const all_to_all_args& a) const noexcept {
    if (natively())
      return Api::all_to_all(a.in.data, a.out.data, a.in_blocks.size(0) * a.in.element_bytes, nccl_dtype::u8, d_.comm(),
                             d_.stream());
    return run_messages(a);
  }
  nccl_result operator()(const all_to_all_v_args& a) const noexcept { return run_messages(a); }

  /// Divides the sum that NCCL has computed, for a mean, behind it in the stream.
  status finish(const all_reduce_args& a) const noexcept { return divide(a.out, a.op); }
  status finish(const reduce_args& a) const noexcept { return rank() == a.root ? divide(a.out, a.op) : status{}; }
  status finish(const reduce_scatter_args& a) const noexcept { return divide(a.out, a.op); }
  status finish(const reduce_scatter_v_args& a) const noexcept { return divide(a.out, a.op); }
  status finish(const all_reduce_coalesced_args& a) const noexcept {
    status s;
    for (std::size_t i = 0; s.ok() && i < a.data.size; ++i)
      s = divide(a.data[i].data(), a.data[i].size() / a.data.element_bytes, a.data.type, operand(a.op, a.data.type));
    return s;
  }

 private:
  [[nodiscard]] int rank() const noexcept { return d_.place().rank; }
  [[nodiscard]] std::size_t me() const noexcept { return static_cast<std::size_t>(rank()); }
  /// Returns true if NCCL has these collectives itself; that and the calls are the same on all ranks.
  [[nodiscard]] bool natively() const noexcept { return nccl_has<Api>(nccl_feature::exchange, d_.place().version); }
  static bool fine(nccl_result r) noexcept { return r == nccl_result::success || r == nccl_result::in_progress; }

  static const void* at(const const_buffer& b, std::size_t element) noexcept {
    return static_cast<const std::byte*>(b.data) + element * b.element_bytes;
  }
  static void* at(const buffer& b, std::size_t element) noexcept {
    return static_cast<std::byte*>(b.data) + element * b.element_bytes;
  }

  nccl_result send(const void* from, std::size_t bytes, int peer) const noexcept {
    return bytes == 0 ? nccl_result::success : Api::send(from, bytes, nccl_dtype::u8, peer, d_.comm(), d_.stream());
  }
  nccl_result recv(void* to, std::size_t bytes, int peer) const noexcept {
    return bytes == 0 ? nccl_result::success : Api::recv(to, bytes, nccl_dtype::u8, peer, d_.comm(), d_.stream());
  }

  nccl_result run_messages(const gather_args& a) const noexcept {
    if (rank() != a.root) return send(a.in.data, a.in.bytes(), a.root);
    const bool in_place = a.in.data == at(a.out, a.blocks.begin(me()));
    return both([&] { return in_place ? nccl_result::success : send(a.in.data, a.in.bytes(), a.root); },
                [&](int from, std::size_t r) {
                  if (from == rank() && in_place) return nccl_result::success;
                  return recv(at(a.out, a.blocks.begin(r)), a.blocks.size(r) * a.out.element_bytes, from);
                });
  }
  nccl_result run_messages(const scatter_args& a) const noexcept {
    if (rank() != a.root) return recv(a.out.data, a.out.bytes(), a.root);
    const bool in_place = a.out.data == at(a.in, a.blocks.begin(me()));
    return both([&] { return in_place ? nccl_result::success : recv(a.out.data, a.out.bytes(), a.root); },
                [&](int to, std::size_t r) {
                  if (to == rank() && in_place) return nccl_result::success;
                  return send(at(a.in, a.blocks.begin(r)), a.blocks.size(r) * a.in.element_bytes, to);
                });
  }
  nccl_result run_messages(const all_to_all_args& a) const noexcept {
    return for_ranks([&](int peer, std::size_t r) {
      const nccl_result sent = send(at(a.in, a.in_blocks.begin(r)), a.in_blocks.size(r) * a.in.element_bytes, peer);
      if (!fine(sent)) return sent;
      return recv(at(a.out, a.out_blocks.begin(r)), a.out_blocks.size(r) * a.out.element_bytes, peer);
    });
  }

  // Makes n calls in a group, which is always ended; the first error is the result.
  template <class Call>
  nccl_result grouped(std::size_t n, Call call) const noexcept {
    nccl_result r = Api::group_start();
    if (r != nccl_result::success) return r;
    for (std::size_t i = 0; i < n && fine(r); ++i) r = call(i);
    const nccl_result ended = Api::group_end();
    return fine(r) ? ended : r;
  }
  /// Calls call(first, count); if NCCL needs it, separately for the whole blocks of 16 KiB and the rest. Before 2.29.7,
  /// a premul_sum of one rank left out up to 31 elements at the end, because of the division among its thread blocks,
  /// one for each 16 KiB and 32 at most.
  template <class Call>
  nccl_result pieces(const nccl_operand& o, std::size_t count, std::size_t element_bytes, Call call) const noexcept {
    const std::size_t behind = o.in_pieces ? count % (16384 / element_bytes) : 0, whole = count - behind;
    if (behind == 0 || whole == 0) return call(std::size_t{0}, count);
    return grouped(2, [&](std::size_t i) { return i == 0 ? call(std::size_t{0}, whole) : call(whole, behind); });
  }
  template <class Call>
  nccl_result for_ranks(Call call) const noexcept {
    return grouped(static_cast<std::size_t>(d_.place().size),
                   [&](std::size_t r) { return call(static_cast<int>(r), r); });
  }
  template <class Own, class Call>
  nccl_result both(Own own, Call call) const noexcept {
    return grouped(static_cast<std::size_t>(d_.place().size) + 1,
                   [&](std::size_t i) { return i == 0 ? own() : call(static_cast<int>(i - 1), i - 1); });
  }

  /// Calls call(operand), with the reduction that NCCL needs for a premul_sum. The factor is the product of 1 and the
  /// user's factor, as the host's kernel computes it: rounded to the element type.
  template <class Call>
  nccl_result reduced(const reduction& with, dtype t, Call call) const noexcept {
    nccl_operand o = operand(with, t);
    if (!o.scaled) return call(o);
    alignas(8) std::array<std::byte, 8> factor = one(t);
    with.prepare(factor.data(), factor.data(), 1, with.context.data());
    nccl_result r = Api::create_scaled_sum(o.with, factor.data(), o.type, d_.comm());
    if (r != nccl_result::success) return r;
    r = call(o);
    const nccl_result destroyed = Api::destroy_reduction(o.with, d_.comm());
    return fine(r) && destroyed != nccl_result::success ? destroyed : r;
  }

  [[nodiscard]] nccl_operand operand(const reduction& with, dtype t) const noexcept {
    return nccl_operand_of(t, with.kind, d_.place().size, d_.place().version, division_of<Api>);
  }
  status divide(const buffer& out, const reduction& with) const noexcept {
    return divide(out.data, out.count, out.type, operand(with, out.type));
  }
  status divide(void* data, std::size_t count, dtype t, const nccl_operand& o) const noexcept {
    if constexpr (dividing_kernels<Api>)
      if (count != 0) return Api::divide(data, count, t, o.divisor, d_.stream());
    return {};
  }

  template <class T>
  static void put(std::array<std::byte, 8>& to, T value) noexcept {
    std::memcpy(to.data(), &value, sizeof value);
  }
  static std::array<std::byte, 8> one(dtype t) noexcept {
    alignas(8) std::array<std::byte, 8> x{};
    switch (t) {
      case dtype::f32:
        put(x, 1.0F);
        break;
      case dtype::f64:
        put(x, 1.0);
        break;
      case dtype::f16:
        put(x, float16{1.0F});
        break;
      case dtype::bf16:
        put(x, bfloat16{1.0F});
        break;
      case dtype::f8_e4m3:
        put(x, float8_e4m3{1.0F});
        break;
      case dtype::f8_e5m2:
        put(x, float8_e5m2{1.0F});
        break;
      default:
        put(x, std::uint64_t{1});  // little-endian: the first bytes are 1 in any width
    }
    return x;
  }

  driver& d_;
};

}  // namespace tutti::detail
