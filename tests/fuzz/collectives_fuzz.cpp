#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tutti/algo/selection/supported.hpp>
#include <tutti/async/op.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/core/args.hpp>

#include <conformance/operands.hpp>
#include <fuzz/area.hpp>
#include <fuzz/collective_program.hpp>
#include <fuzz/messages.hpp>

// Simulated ranks call collectives of any kind, shape and place, and send messages: each gives what a loop over plain
// values gives, and writes nowhere else.

namespace {

using namespace collective_program;
using conformance::element_of;
using tutti::reduction_kind;

class player {
 public:
  explicit player(world_type& w) : w_(w) {}

  void play(const program& p) {
    std::vector<std::function<void()>> ends;
    for (const step& s : p.steps) {
      ends.push_back(start(s));
      if (!p.in_flight) ends.back()();
    }
    for (auto end = ends.rbegin(); p.in_flight && end != ends.rend(); ++end) (*end)();
    w_.barrier().wait();
  }

 private:
  using end = std::function<void()>;

  [[nodiscard]] std::size_t n() const { return static_cast<std::size_t>(w_.size()); }
  [[nodiscard]] std::size_t me() const { return static_cast<std::size_t>(w_.rank()); }

  /// Asks for the algorithm and the order of the step; what cannot be is refused, and automatic instead.
  template <class Args, class Issue>
  std::shared_ptr<tutti::op> ask(const step& s, std::size_t element, Issue go) {
    constexpr bool reduces = requires(Args a) { a.op; };
    if (!reduces) element = 1;
    const tutti::call_options how{.via = s.via, .order = s.order};
    const auto can = [&](tutti::algorithm a) { return w_.backend().can<Args>(a, element); };
    const auto& ordered = tutti::algo::rank_ordered;
    const bool in_order = std::any_of(ordered.begin(), ordered.end(), [&](tutti::algorithm a) {
      return (s.via == tutti::algorithm::automatic || s.via == a) && can(a);
    });
    const bool any_order = !reduces || n() == 1 || s.order == tutti::reduction_order::any;
    if (can(s.via) && (any_order || in_order)) return std::make_shared<tutti::op>(go(how));
    try {
      auto wrong = go(how);
    } catch (const tutti::usage_error&) {
      return std::make_shared<tutti::op>(go(tutti::call_options{}));
    }
    throw std::runtime_error("what cannot be was not refused");
  }

  template <class T>
  std::shared_ptr<area<T>> make(const step& s, std::size_t offset, std::size_t count) {
    return std::make_shared<area<T>>(w_, offset, count, s.in_world_memory);
  }

  end start(const step& s) {
    switch (s.what) {
      case call::barrier:
      case call::calls:
        return [op = std::make_shared<tutti::op>(w_.barrier())] { op->wait(); };
      case call::text:
        return text(s);
      case call::all_reduce:
      case call::prepared_all_reduce:
      case call::all_reduce_coalesced:
      case call::reduce:
      case call::reduce_scatter:
      case call::reduce_scatter_v:
      case call::scan:
      case call::exclusive_scan:
        switch (s.type % 4) {
          case 0:
            return with_reduction<std::int32_t>(s);
          case 1:
            return with_reduction<float>(s);
          case 2:
            return with_reduction<std::uint8_t>(s);
          default:
            return with_reduction<tutti::bfloat16>(s);
        }
      default:
        switch (s.type % 4) {
          case 0:
            return moving<std::uint8_t>(s);
          case 1:
            return moving<conformance::odd>(s);
          case 2:
            return moving<double>(s);
          default:
            return s.count < 100 ? moving<conformance::page>(s) : moving<float>(s);
        }
    }
  }

  end text(const step& s) {
    auto words = std::make_shared<std::string>();
    const auto wanted = [s] { return std::string(s.count, static_cast<char>('a' + s.salt)); };
    *words = w_.rank() == s.root ? wanted() : std::string(s.offset_in, 'x');
    return [=, op = std::make_shared<tutti::op>(w_.broadcast(*words, s.root))] {
      op->wait();
      if (*words != wanted()) throw std::runtime_error("broadcast of a text");
    };
  }

  template <class T>
  end with_reduction(const step& s) {
    const auto plain = [&]<class Op>(Op with) {
      return reducing<T>(s, with, Op::kind, [salt = s.salt](int terms, std::size_t i) {
        return conformance::reduced<T>(Op::kind, terms, i, salt);
      });
    };
    switch (s.reduction % 4) {
      case 0:
        return plain(tutti::sum);
      case 1:
        return plain(tutti::max);
      case 2:
        return plain(tutti::mean);
      default:
        return reducing<T>(s, tutti::premul_sum(w_.rank() + 1), reduction_kind::sum,
                           [salt = s.salt](int terms, std::size_t i) { return premultiplied<T>(terms, i, salt); });
    }
  }

  /// `result(terms, i)` is element i over the first ranks.
  template <class T, class Op, class Result>
  end reducing(const step& s, Op with, reduction_kind kind, Result result) {
    const int rank = w_.rank(), size = w_.size();
    const auto all = [=](std::size_t i) { return result(size, i); };
    const bool cut = s.what == call::reduce_scatter || s.what == call::reduce_scatter_v;
    auto table = std::make_shared<blocks>(
        s, s.what == call::reduce_scatter_v ? s.lengths : std::vector<std::size_t>(n(), s.count), me());
    if (s.what == call::reduce_scatter) table = std::make_shared<blocks>(plain(s), std::vector(n(), s.count), me());
    // An element of a block has the same value wherever a rank's layout puts it.
    constexpr std::size_t apart_by = 7919;
    const auto mine = [=, salt = s.salt](std::size_t i) {
      for (std::size_t r = 0; cut && r < table->counts.size(); ++r)
        if (const std::size_t begin = table->layout().begin(r); i >= begin && i - begin < table->counts[r])
          return conformance::operand<T>(kind, rank, r * apart_by + i - begin, salt);
      return conformance::operand<T>(kind, rank, i, salt);
    };
    auto in = make<T>(s, s.offset_in, cut ? table->total : s.count);
    for (std::size_t i = 0; i < in->span().size(); ++i) in->span()[i] = mine(i);
    const auto own = cut ? table->of(in->span(), me()) : in->span();
    const std::size_t first = cut ? me() * apart_by : 0;
    auto apart = s.in_place || s.what == call::all_reduce_coalesced || s.what == call::prepared_all_reduce
                     ? in
                     : make<T>(s, s.offset_out, own.size());
    const auto out = apart == in ? own : apart->span();
    const auto before = [=](std::size_t i) { return apart == in ? mine(first + i) : untouched_value<T>(); };

    std::shared_ptr<tutti::op> op;
    auto pieces = std::make_shared<std::vector<std::span<T>>>();
    std::shared_ptr<void> kept;
    const auto from = in->span();
    switch (s.what) {
      case call::all_reduce:
        op = ask<tutti::all_reduce_args>(s, sizeof(T), [&](auto how) { return w_.all_reduce(from, out, with, how); });
        break;
      case call::prepared_all_reduce:
        op = ask<tutti::all_reduce_args>(s, sizeof(T), [&](auto how) {
          auto p = std::make_shared<tutti::prepared<tutti::sim, tutti::all_reduce_args>>(
              w_.prepare().all_reduce(from, with, how));
          kept = p;
          return p->start();
        });
        break;
      case call::all_reduce_coalesced:
        for (std::size_t at = 0, k = 1; at < from.size() || k < 3; ++k) {
          const std::size_t length = std::min(from.size() - at, k % 3 == s.gaps % 3 ? 0 : k * k * (1 + s.offset_out));
          pieces->push_back(from.subspan(at, length));
          at += length;
        }
        op = ask<tutti::all_reduce_coalesced_args>(
            s, sizeof(T), [&](auto how) { return w_.all_reduce_coalesced(*pieces, with, how); });
        break;
      case call::reduce:
        op = ask<tutti::reduce_args>(s, sizeof(T), [&](auto how) { return w_.reduce(from, out, s.root, with, how); });
        break;
      case call::scan:
        op = ask<tutti::scan_args>(s, sizeof(T), [&](auto how) { return w_.scan(from, out, with, how); });
        break;
      case call::exclusive_scan:
        op = ask<tutti::exclusive_scan_args>(s, sizeof(T),
                                             [&](auto how) { return w_.exclusive_scan(from, out, with, how); });
        break;
      case call::reduce_scatter:
        op = ask<tutti::reduce_scatter_args>(s, sizeof(T),
                                             [&](auto how) { return w_.reduce_scatter(from, out, with, how); });
        break;
      default:
        op = ask<tutti::reduce_scatter_v_args>(
            s, sizeof(T), [&](auto how) { return w_.reduce_scatter_v(from, out, table->layout(), with, how); });
    }
    return [=, what = s.what, root = s.root] {
      op->wait();
      (void)table, (void)pieces, (void)kept;
      std::function<T(std::size_t)> wanted = all;
      if (what == call::reduce && rank != root) wanted = before;
      if (what == call::scan) wanted = [=](std::size_t i) { return result(rank + 1, i); };
      if (what == call::exclusive_scan && rank == 0) wanted = before;
      if (what == call::exclusive_scan && rank != 0) wanted = [=](std::size_t i) { return result(rank, i); };
      expect<T>("a reduction", out, [&](std::size_t i) { return wanted(first + i); });
      if (apart != in) expect<T>("the input of a reduction", in->span(), mine);
      in->check("a reduction");
      apart->check("a reduction");
    };
  }

  template <class T>
  static T untouched_value() {
    T t;
    std::memset(&t, untouched, sizeof t);
    return t;
  }
  static step plain(step s) {
    s.gaps = 0;
    return s;
  }

  static std::size_t most(const step& s) { return s.type % 4 == 3 && s.count < 100 ? 9 : 200'000; }  // pages are long
  /// The length of what `a` has for `b`.
  [[nodiscard]] std::size_t length(const step& s, std::size_t a, std::size_t b) const {
    switch (s.what) {
      case call::all_to_all_v:
        return std::min(most(s), s.lengths[a * n() + b]);
      case call::all_gather_v:
      case call::gather_v:
        return std::min(most(s), s.lengths[a]);
      case call::scatter_v:
        return std::min(most(s), s.lengths[b]);
      default:
        return std::min(most(s), s.count);
    }
  }
  /// Blocks for, or from, everyone; none where there is nothing to have.
  [[nodiscard]] std::shared_ptr<blocks> table(const step& s, bool uneven, bool there, bool from) const {
    std::vector<std::size_t> lengths(n());
    for (std::size_t r = 0; there && r < n(); ++r) lengths[r] = from ? length(s, r, me()) : length(s, me(), r);
    return std::make_shared<blocks>(uneven && there ? s : plain(s), lengths, me());
  }

  template <class T>
  end moving(const step& s) {
    using enum call;
    if (s.what == broadcast) return broadcasting<T>(s);
    if (s.what == messages) return exchange<T>(w_, s, most(s));
    if (s.what == messages_to_any) return gather_any<T>(w_, s, most(s));
    const bool root = w_.rank() == s.root;
    const bool uneven = s.what == all_gather_v || s.what == gather_v || s.what == scatter_v || s.what == all_to_all_v;
    const bool gathers = s.what == gather || s.what == gather_v,
               to_all = s.what == all_gather || s.what == all_gather_v;
    const bool scatters = s.what == scatter || s.what == scatter_v;
    // What is cut in blocks on this rank, beside what is one block.
    const bool many_in = scatters ? root : !gathers && !to_all, many_out = gathers ? root : !scatters;
    const auto in_table = table(s, uneven, many_in, false), out_table = table(s, uneven, many_out, true);
    const std::size_t one_in = length(s, me(), 0), one_out = length(s, 0, me());
    const auto cut_in = gathers || to_all ? one_in : in_table->total, cut_out = scatters ? one_out : out_table->total;
    auto out_area = make<T>(s, s.offset_out, cut_out);
    // In place: the own block of what is cut, or the same buffer where both are.
    const bool same = s.in_place && s.what == all_to_all;
    auto in_area = same ? out_area : make<T>(s, s.offset_in, cut_in);
    auto in = in_area->span(), out = out_area->span();
    if (s.in_place && to_all) in = out_table->of(out, me());
    if (s.in_place && gathers && root) in = out_table->of(out, me());
    if (s.in_place && scatters && root) out = in_table->of(in, me());
    for (std::size_t b = 0; b < n(); ++b) {
      if (gathers || to_all ? b != 0 : !many_in) continue;
      const auto block = gathers || to_all ? in : in_table->of(in, b);
      for (std::size_t i = 0; i < block.size(); ++i) block[i] = parcel<T>(s, scatters ? 0 : me(), b, i);
    }
    const auto there = [](const std::shared_ptr<blocks>& b, bool has) { return has ? b->layout() : tutti::layout{}; };
    std::shared_ptr<tutti::op> op;
    switch (s.what) {
      case all_gather:
        op = ask<tutti::all_gather_args>(s, 1, [&](auto how) { return w_.all_gather(in, out, how); });
        break;
      case all_gather_v:
        op = ask<tutti::all_gather_v_args>(
            s, 1, [&](auto how) { return w_.all_gather_v(in, out, out_table->layout(), how); });
        break;
      case gather:
        op = ask<tutti::gather_args>(s, 1, [&](auto how) { return w_.gather(in, out, s.root, how); });
        break;
      case gather_v:
        op = ask<tutti::gather_v_args>(
            s, 1, [&](auto how) { return w_.gather_v(in, out, there(out_table, root), s.root, how); });
        break;
      case scatter:
        op = ask<tutti::scatter_args>(s, 1, [&](auto how) { return w_.scatter(in, out, s.root, how); });
        break;
      case scatter_v:
        op = ask<tutti::scatter_v_args>(
            s, 1, [&](auto how) { return w_.scatter_v(in, out, there(in_table, root), s.root, how); });
        break;
      case all_to_all:
        op = ask<tutti::all_to_all_args>(s, 1, [&](auto how) { return w_.all_to_all(in, out, how); });
        break;
      default:
        op = ask<tutti::all_to_all_v_args>(
            s, 1, [&](auto how) { return w_.all_to_all_v(in, in_table->layout(), out, out_table->layout(), how); });
    }
    return [=, this] {
      op->wait();
      const std::size_t to = gathers || to_all ? 0 : me();
      for (std::size_t r = 0; r < n(); ++r) {
        if (scatters ? r != 0 : !many_out) continue;
        expect<T>("what was moved", scatters ? out : out_table->of(out, r),
                  [&](std::size_t i) { return parcel<T>(s, r, to, i); });
      }
      for (std::size_t i = 0; many_out && !scatters && uneven && i < out.size(); ++i)
        if (out_table->between(i) && !out_area->is_untouched(out[i]))
          throw std::runtime_error("wrote between its blocks");
      (void)in_table;
      in_area->check("a move");
      out_area->check("a move");
    };
  }

  template <class T>
  end broadcasting(const step& s) {
    auto data = make<T>(s, s.offset_in, length(s, 0, 0));
    if (w_.rank() == s.root)
      for (std::size_t i = 0; i < data->span().size(); ++i) data->span()[i] = parcel<T>(s, 0, 0, i);
    auto op = ask<tutti::broadcast_args>(s, 1, [&](auto how) { return w_.broadcast(data->span(), s.root, how); });
    return [=] {
      op->wait();
      expect<T>("a broadcast", data->span(), [&](std::size_t i) { return parcel<T>(s, 0, 0, i); });
      data->check("a broadcast");
    };
  }

  world_type& w_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const program p = read({data, size});
  tutti::run_sim(p.ranks, p.how, [&](world_type& w) { player{w}.play(p); });
  return 0;
}
