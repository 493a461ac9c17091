#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include <tutti/algo/bring_all.hpp>
#include <tutti/core/external_segments.hpp>
#include <tutti/grad/hook.hpp>
#include <tutti/grad/layout.hpp>
#include <tutti/grad/pass/agreement.hpp>
#include <tutti/grad/reducer.hpp>

namespace tutti::grad {

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
reducer<Comm, Hook>::reducer(Comm& world, std::span<const parameter_shape> shapes, own_memory own,
                             reducer_options options, Hook hook, std::source_location where)
    : pass_(shapes, std::move(options), world.rank()),
      world_(&detail::countable(world)),
      hook_(std::move(hook)),
      own_(std::move(own)),
      arena_(detail::make_agreed(
          world, "reducer", shapes,
          [&] {
            detail::let_check(hook_, pass_.options());
            own_.place(pass_.marks());
            pass_.lie_in({own_.block_of(), detail::ranges_of<Comm>(hook_)});
            return detail::make_arena(world, pass_.marks(), pass_.plan_for(pass_.options().ready_order), own_);
          },
          [&](const arena& a) {
            return a.layout().id() ^ pass_.options().id() ^ own_.id() ^
                   static_cast<std::uint64_t>(detail::sums_of(hook_, world));
          },
          where)),
      scaled_(shapes.size()),
      external_(shapes.size()),
      weights_(detail::scaling_of<Hook>, pass_.options().predivide, world.size()),
      buckets_(world, pass_.options().order, pass_.options().in_flight) {
  lay_out();
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
auto reducer<Comm, Hook>::begin(double weight, contribution what, std::source_location where) -> pass_type {
  detail::let_check(hook_, what);
  pass_.begin(weight);
  where_ = where;
  external_.clear();
  buckets_.begin();
  times_.begin(world_->engine());
  pass_type begun{*this};
  weights_.begin(*world_, pass_.weight(), what, detail::sums_of(hook_, *world_), where);
  for (std::size_t i = 0; pass_.usage_map().learned() && i < size(); ++i) act(pass_.leave_out_never_used(i), i);
  return begun;
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
task<bool> reducer<Comm, Hook>::lay_out_anew(std::source_location where) {
  pass_.require_idle("rebuild()");  // checked again when the task is awaited
  pass_type at_work{*this};         // if dropped or failed, it ends the world: plans might differ
  pass_.begin_rebuild();
  std::vector<int> order = pass_.marks().order();
  Comm& first = weights_.own_collective() ? *world_ : buckets_.group(0);  // on which a pass begins
  co_await detail::agree_on_order(*world_, first, order, where);
  const bool changed = follow(order);
  pass_.end();
  co_return changed;
}

// Called in finish(), after all ranks have received rank 0's request.
template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
task<> reducer<Comm, Hook>::replan_now() {
  std::vector<int> order = pass_.marks().order();
  co_await buckets_.group(0).broadcast(std::span{order}, 0, {}, where_);
  follow(order);
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
bool reducer<Comm, Hook>::follow(const std::vector<int>& order) {
  plan better = pass_.plan_for(order);
  if (better == layout()) return false;
  arena moved = detail::make_arena(*world_, pass_.marks(), std::move(better), own_);
  moved.copy_from(arena_);
  arena_ = std::move(moved);
  lay_out();
  if constexpr (requires { hook_.reset(); }) hook_.reset();
  return true;
}

// Prepares for the plan of the arena.
template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
void reducer<Comm, Hook>::lay_out() {
  pass_.arrange(layout());
  weights_.arrange(layout(), pass_.options().order);
  buckets_.arrange(layout());
  times_.arrange(layout());
  external_.arrange(layout());
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
template <class T>
void reducer<Comm, Hook>::ready(std::size_t i, std::span<const T> from) {
  const ready_tracker& marks = pass_.marks();
  marks.check(i, "ready");
  const std::span<T> gradient = arena_.gradient<T>(i);
  marks.check_count(i, "ready", from.size());
  const bool there = from.data() == gradient.data();
  if (!there && arena_.touches(from.data(), from.size_bytes()))
    throw usage_error("ready: " + marks.label(i) + " was given an array in the reducer's memory that is not its own");
  if (!pass_.reduces()) {
    ready(i);
    if (!there) std::copy(from.begin(), from.end(), gradient.begin());
    return;
  }
  if (!there && !marks.has(i)) external_.put(i, from.data());
  ready(i);
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
void reducer<Comm, Hook>::leave_out(std::size_t i) {
  try {
    zero(i);
  } catch (...) {
    fail();
  }
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
void reducer<Comm, Hook>::launch_or_give_up() {
  try {
    launch();
  } catch (...) {
    fail();
  }
}

// Ends the pass, and throws the exception that is being handled.
template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
void reducer<Comm, Hook>::fail() {
  give_up();
  detail::throw_different_calls(detail::pass_of(pass_.weight()));
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
template <class T>
auto reducer<Comm, Hook>::reduce(std::size_t b) -> operation {
  const bucket& k = layout().buckets[b];
  constexpr std::size_t line = line_elements<T>;
  const bool last = b + 1 == layout().buckets.size();
  const auto tail =
      arena_.tail<T>(b).first(last && pass_.usage_map().map_count() == 0 ? line : arena_.tail<T>(b).size());
  const auto ranges = arena_.ranges<T>(b);
  const bool is_list = ranges.size() > 1;
  const auto elements = is_list ? std::span<T>{} : arena_.bucket_with_tail<T>(b).first(k.count + tail.size());
  // Waits here, and does not leave this bucket to a later mark: its place among the collectives that the user issues
  // between marks must not depend on when messages arrive. (It does so if the number of buckets in flight is bounded.)
  weights_.await_weights<T>();
  for (const bucket_slot& s : k.slots)
    if (const auto i = static_cast<std::size_t>(s.parameter); !scaled_[i] && !external_.has(i))
      multiply(arena_.gradient<T>(i), weights_.prescale<T>());
  external_segments external;
  if (is_list)
    for (const bucket_slot& s : k.slots) {
      const auto i = static_cast<std::size_t>(s.parameter);
      external_.bring(i, arena_.gradient<T>(i), weights_.prescale<T>());
    }
  else
    external = external_.template list<T>(k, weights_.prescale<T>());
  if constexpr (!detail::gathers<Hook, Comm>) algo::bring_all(std::exchange(external, {}), erase_type(elements));
  weights_.put(b, tail);
  if (last) {
    step_flags::put(pass_.commit_step(), tail.first(line), pass_.wants());
    if (tail.size() > line) pass_.usage_map().put(pass_.weight(), tail.subspan(line));
  }
  return hook_(buckets_.group(b),
               bucket_view<T>{b, elements, where_, k.slots, tail.size(), weights_.divisor<T>(), weights_.unit<T>(),
                              external, is_list ? ranges : std::span<const std::span<T>>{}});
}

// Agrees on the step for a model without parameters, for which no bucket carries it.
template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
task<> reducer<Comm, Hook>::agree_on_step() {
  std::array<float, line_elements<float>> line{};
  step_flags::put(pass_.so_far(), std::span<float>{line});
  co_await world_->all_reduce(line, sum, {}, where_);
  pass_.agree(step_flags::take(std::span<const float>{line}));
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
task<step> reducer<Comm, Hook>::finish(pass_type given) {
  auto mine = std::move(given);  // a parameter lives as long as the task, this one as long as the body
  if (!pass_.reduces()) co_return pass_.finish_accumulating();
  times_.finishing();
  for (std::size_t i = 0; i < size(); ++i)
    if (pass_.mark_delayed(i)) count_in(i);
  pass_.require_all_marked();
  try {
    if (auto weights = weights_.take_collective()) {
      co_await *std::move(weights);
      weights_.received();
    }
    buckets_.release_delayed();
    for (std::size_t b = 0; b < layout().buckets.size(); ++b) {
      launch();
      co_await buckets_.end(b);
      times_.ended(b);
    }
    if (size() == 0) co_await agree_on_step();
  } catch (...) {
    detail::throw_different_calls(detail::pass_of(pass_.weight()));
  }
  weights_.learn_from(arena_);
  times_.end(layout());
  if (conclude() == request::replan) co_await replan_now();
  pass_.end();
  co_return pass_.so_far();
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
void reducer<Comm, Hook>::give_up(std::uint64_t why) noexcept {
  world_->abort(why);
  buckets_.drop();
  weights_.forget();
  pass_.end();
}

}  // namespace tutti::grad
