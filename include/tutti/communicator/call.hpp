#pragma once
#include <cstddef>
#include <limits>
#include <span>
#include <string>

#include <tutti/algo/selection/rank_ordered.hpp>
#include <tutti/async/op.hpp>
#include <tutti/backend/communicator_core.hpp>
#include <tutti/backend/concept.hpp>
#include <tutti/communicator/call_context.hpp>
#include <tutti/communicator/overlapping.hpp>
#include <tutti/core/buffer.hpp>
#include <tutti/core/external_segments.hpp>
#include <tutti/core/layout.hpp>
#include <tutti/core/options.hpp>
#include <tutti/transport/messaging/frame.hpp>

namespace tutti::detail {

/// Number and type of an operation's elements: for its description in errors, and for the choice of its algorithm.
struct shape {
  std::size_t count = 0;
  dtype type = dtype::u8;
  std::size_t element_bytes = 1;

  /// Returns true if the size exceeds what the header of a message can hold.
  [[nodiscard]] constexpr bool too_long() const noexcept { return (count | count * element_bytes) > frame::most_bytes; }
};
template <element T>
constexpr shape shape_of(std::size_t count) noexcept {
  return {count, dtype_of<T>(), sizeof(T)};
}
template <class Void>
constexpr shape shape_of(const basic_buffer<Void>& data) noexcept {
  return {data.count, data.type, data.element_bytes};
}

/// Handle type of a backend's operations: op, or a type of the backend with other ways to end.
template <class B>
struct handle_of {
  using type = op;
};
template <class B>
  requires requires { typename B::op_type; }
struct handle_of<B> {
  using type = typename B::op_type;
};

/// Access of an operation to a buffer.
enum class access { read, write };

/// Base of a communicator's calls: rank, size, and the checks of arguments. A derived class adds `start(shape, issue,
/// where, arguments)`, which returns `started<arguments>`: an operation in flight, or a prepared one.
template <backend B>
class call_base {
 public:
  using backend_type = B;

  /// Return this process's rank in the group, and the number of its ranks. Throw usage_error after a move.
  [[nodiscard]] int rank() const { return core().backend().rank(); }
  [[nodiscard]] int size() const { return core().backend().size(); }

 protected:
  explicit call_base(communicator_core<B>* core) noexcept : core_(core) {}

  [[nodiscard]] call_context who(const char* call) const noexcept {
    return core_ ? call_context::in(core_->backend(), call) : call_context::moved_away(call);
  }
  [[nodiscard]] communicator_core<B>& core() const {
    if (!core_) [[unlikely]]
      throw_moved_away();
    return *core_;
  }

  void check_rank(const char* call, const char* what, int r) const {
    if (r < 0 || r >= size())
      who(call).refuse(std::string(what) + " " + std::to_string(r) + " is not a rank of this communicator of " +
                       std::to_string(size()));
  }
  /// Throws unless `b` is at least as long as `a`: only its beginning is written.
  void check_room(const char* call, const char* a, std::size_t x, const char* b, std::size_t y) const {
    if (y < x) check_equal(call, a, x, b, y);
  }
  void check_equal(const char* call, const char* a, std::size_t x, const char* b, std::size_t y) const {
    if (x != y)
      who(call).refuse(std::string(a) + " is " + std::to_string(x) + " elements but " + b + " is " + std::to_string(y));
  }
  template <class T>
  void check_disjoint(const char* call, std::span<const T> in, std::span<T> out,
                      const char* advice = "pass the same buffer twice for in place, or separate ones") const {
    if (overlap(in.data(), in.size_bytes(), out.data(), out.size_bytes()))
      who(call).refuse((in.data() == out.data() ? "in and out overlap; " : "in and out overlap in part; ") +
                       std::string(advice));
  }
  /// Throws if `in` and `out` overlap, unless the one that the call accesses as `of` is this rank's block of the other.
  template <class T>
  void check_own_block(const char* call, access of, std::span<const T> in, std::span<T> out, std::size_t begin,
                       std::size_t count) const {
    const bool reads = of == access::read;
    const T *const part = reads ? in.data() : out.data(), *const whole = reads ? out.data() : in.data();
    const bool own = whole && part == whole + begin;
    if (own || !overlap(in.data(), in.size_bytes(), out.data(), out.size_bytes())) return;
    who(call).refuse(std::string("in and out overlap; for in place, ") + (reads ? "in" : "out") + " is elements " +
                     std::to_string(begin) + " to " + std::to_string(begin + count) + " of " + (reads ? "out" : "in") +
                     ", this rank's block; else pass separate buffers");
  }
  /// Throws unless there is one count for each rank, an offset for each or none, and every block lies inside a buffer
  /// of `size` elements; and, if the blocks are written, unless no two overlap.
  void check_blocks(const char* call, const layout& blocks, std::size_t size, access how) const {
    const auto counts = blocks.counts(), offsets = blocks.offsets();
    check_one_each(call, "counts", counts.size());
    if (!offsets.empty()) check_one_each(call, "offsets", offsets.size());
    std::size_t end = 0;  // of the block before
    for (std::size_t r = 0; r < counts.size(); ++r) {
      const std::size_t begin = offsets.empty() ? end : offsets[r];
      if (begin > size || counts[r] > size - begin)
        who(call).refuse("block " + std::to_string(r) + " is " + number(counts[r]) + " elements from element " +
                         number(begin) + " on, of a buffer of " + std::to_string(size));
      end = begin + counts[r];
    }
    if (how == access::read || offsets.empty()) return;
    if (const auto both = overlapping(counts, offsets); both.first != both.second)
      who(call).refuse("blocks " + std::to_string(both.first) + " and " + std::to_string(both.second) +
                       " overlap, but are written to");
  }
  /// Throws unless the external segments are in order, do not overlap and lie inside a buffer of `size` elements.
  void check_parts(const char* call, const external_segments& external, std::size_t size) const {
    std::size_t before = 0;
    for (const external_segment* p = external.parts; p != external.end(); ++p) {
      if (p->first < before || p->first > size || p->count > size - p->first || (!p->data && p->count != 0))
        who(call).refuse("part " + std::to_string(p - external.parts) +
                         " overlaps the one before or is out of order, at null, or beyond the buffer of " +
                         std::to_string(size) + " elements");
      before = p->first + p->count;
    }
  }
  void check_one_each(const char* call, const char* what, std::size_t n) const {
    if (n != ranks()) who(call).refuse(std::to_string(n) + " " + what + " for " + std::to_string(ranks()) + " ranks");
  }
  void check_equal_blocks(const char* call, std::size_t elements) const {
    if (elements % ranks() != 0)
      who(call).refuse(std::to_string(elements) + " elements cannot be cut into " + std::to_string(ranks()) +
                       " equal blocks; " + call + "_v takes blocks of any lengths");
  }

  /// Returns the algorithm that a call asks for, or automatic. Throws usage_error if the call cannot have it.
  template <class Args>
  [[nodiscard]] algorithm resolved(const call_options& how, const shape& data) const {
    check_issue<Args>(how, data);
    return how.order == reduction_order::any ? how.via : in_order<Args>(how, data.element_bytes);
  }

  /// Throws if a buffer with elements is at null.
  template <class Args>
  void check_there(const Args& args) const {
    const auto look = [&](const char* what, const auto& b) {
      if (!b.data && b.count != 0)
        who(Args::name).refuse(std::string(what) + " is " + std::to_string(b.count) + " elements at null");
    };
    if constexpr (requires { args.in.data; }) look("in", args.in);
    if constexpr (requires { args.out.data; }) look("out", args.out);
    if constexpr (requires { args.data.data; }) look("the buffer", args.data);
  }
  /// Throws error{unsupported}, before anything is started, if the backend reports that it does not support the call.
  template <class Args>
  void check_supported(const Args& args) const {
    if constexpr (requires { core().backend().check(args); }) core().backend().check(args);
  }

  /// Returns `n` elements for each rank, multiplied by the size; the largest std::size_t if that overflows.
  [[nodiscard]] std::size_t for_all_ranks(std::size_t n) const {
    constexpr std::size_t most = (std::numeric_limits<std::size_t>::max)();
    return n > most / ranks() ? most : n * ranks();
  }
  /// Return size and rank as std::size_t, for comparison with counts and for indexing.
  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(size()); }
  [[nodiscard]] std::size_t me() const { return static_cast<std::size_t>(rank()); }

  communicator_core<B>* core_;  // null after a move

 private:
  /// Returns the text of a count or an offset, as a negative number if it was probably converted from one.
  static std::string number(std::size_t n) {
    const auto as_signed = static_cast<std::ptrdiff_t>(n);
    return as_signed < 0 ? std::to_string(as_signed) + " (as std::size_t)" : std::to_string(n);
  }

  // Direct algorithms that reduce need room for one element per rank in a slot; those that only copy do not.
  template <class Args>
  void check_issue(const call_options& how, const shape& data) const {
    if (how.via != algorithm::automatic || how.stream || how.timeout < duration{0} || data.too_long())
      check_wishes<Args>(how, data);
  }
  template <class Args>
  void check_wishes(const call_options& how, const shape& data) const {
    const std::size_t element_bytes = requires(Args a) { a.op; } ? data.element_bytes : 1;
    if (how.via != algorithm::automatic && !core().backend().template can<Args>(how.via, element_bytes))
      who(Args::name).refuse(core().backend().template refusal<Args>(how.via, element_bytes));
    if constexpr (B::where == space::host) {
      if (how.stream) who(Args::name).refuse("streams order operations on devices; this is host memory");
      if (data.too_long())
        who(Args::name)
            .refuse(number(data.count) + " elements of " + std::to_string(data.element_bytes) +
                    " bytes are too long for one call, which takes less than 1 TiB; make several");
    }
    if (how.timeout < duration{0}) who(Args::name).refuse("a timeout cannot be negative");
  }

  template <class Args>
  static constexpr bool reduces = requires(Args a) { a.op; };

  // Returns the algorithm for reduction_order::rank.
  template <class Args>
  [[nodiscard]] algorithm in_order(const call_options& how, std::size_t element_bytes) const {
    if constexpr (reduces<Args>) {
      if (size() == 1) return how.via;
      for (const algorithm a : algo::rank_ordered)
        if ((how.via == algorithm::automatic || how.via == a) && core().backend().template can<Args>(a, element_bytes))
          return a;
      who(Args::name)
          .refuse("reduction_order::rank needs algorithm direct or pairwise, and " +
                  (how.via == algorithm::automatic
                       ? std::string("neither can run here; over messages all_reduce and reduce_scatter have pairwise")
                       : name(how.via) + std::string(" was asked for")));
    } else {
      return how.via;
    }
  }
};

}  // namespace tutti::detail
