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
#include <tutti/impl/grad/pass_state.hpp>

namespace tutti::grad {

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
reducer<Comm, Hook>::reducer(Comm& world, std::span<const parameter_shape> shapes, reducer_options options, Hook hook,
                             std::source_location where)
    : base(shapes, std::move(options), world.rank()),
      world_(&detail::countable(world)),
      hook_(std::move(hook)),
      arena_(detail::make_alike(
          world, "reducer", shapes,
          [&] {
            detail::let_check(hook_, options_);
            return detail::make_arena(world, marks_, detail::layout_of(marks_, options_, options_.arrival));
          },
          [&](const arena& a) {
            return a.layout().id() ^ options_.id() ^ static_cast<std::uint64_t>(detail::sums_of(hook_, world));
          },
          where)),
      scaled_(shapes.size()),
      elsewhere_(shapes.size()),
      weights_(detail::scaling_of<Hook>, options_.predivide, world.size()),
      buckets_(world, options_.order, options_.in_flight) {
  lay_out();
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
auto reducer<Comm, Hook>::begin(double weight, contribution what, std::source_location where) -> pass_type {
  detail::let_check(hook_, what);
  const double whole = start(weight);
  where_ = where;
  reduces_ = true;
  elsewhere_.clear();
  buckets_.begin();
  pass_type begun{*this};
  weights_.begin(*world_, whole, what, detail::sums_of(hook_, *world_), where);
  this->leave_out_never_used();
  return begun;
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
task<bool> reducer<Comm, Hook>::lay_out_anew(std::source_location where) {
  require_idle("rebuild()");  // checked again when the task is awaited
  pass_type at_work{*this};   // if dropped or failed, it ends the world: plans might differ
  reduces_ = rebuilding_ = true;
  std::vector<int> order = marks_.order();
  Comm& meeting = weights_.travel_alone() ? *world_ : buckets_.lane(0);  // on which a pass begins
  co_await detail::agree_on_order(*world_, meeting, order, where);
  const bool changed = follow(order);
  this->let_go();
  co_return changed;
}

// Called in finish(), after all ranks have received rank 0's request.
template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
task<> reducer<Comm, Hook>::replan_now() {
  std::vector<int> order = marks_.order();
  co_await buckets_.lane(0).broadcast(std::span{order}, 0, {}, where_);
  follow(order);
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
bool reducer<Comm, Hook>::follow(const std::vector<int>& order) {
  plan better = detail::layout_of(marks_, options_, order);
  if (better == layout()) return false;
  arena moved = detail::make_arena(*world_, marks_, std::move(better));
  moved.copy_from(arena_);
  arena_ = std::move(moved);
  lay_out();
  if constexpr (requires { hook_.reset(); }) hook_.reset();
  return true;
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
template <class T>
void reducer<Comm, Hook>::ready(std::size_t i, std::span<const T> from) {
  marks_.check(i, "ready");
  const std::span<T> gradient = arena_.gradient<T>(i);
  marks_.check_count(i, "ready", from.size());
  const bool there = from.data() == gradient.data();
  if (!there && arena_.touches(from.data(), from.size_bytes()))
    throw usage_error("ready: " + marks_.label(i) + " was given an array in the reducer's memory that is not its own");
  if (!reduces_) {
    ready(i);
    if (!there) std::copy(from.begin(), from.end(), gradient.begin());
    return;
  }
  if (!there && !marks_.has(i)) elsewhere_.put(i, from.data());
  ready(i);
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
void reducer<Comm, Hook>::complete(std::size_t i) {
  count_in(i);
  advance();
  world_->engine().poll();
  if (buckets_.bounded()) advance();
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
template <class T>
auto reducer<Comm, Hook>::depart(std::size_t b, Comm& lane) -> flight {
  const bucket& k = layout().buckets[b];
  constexpr std::size_t line = line_elements<T>;
  const bool last = b + 1 == layout().buckets.size();
  const auto tail = arena_.tail<T>(b).first(last && usage_.map_count() == 0 ? line : arena_.tail<T>(b).size());
  const auto elements = arena_.bucket_with_tail<T>(b).first(k.count + tail.size());
  // Waits here, and does not leave this bucket to a later mark: its place among the collectives that the user issues
  // between marks must not depend on when messages arrive. (It does so if the number of buckets in flight is bounded.)
  weights_.settle<T>();
  for (const bucket_slot& s : k.slots)
    if (const auto i = static_cast<std::size_t>(s.parameter); !scaled_[i] && !elsewhere_.has(i))
      multiply(arena_.gradient<T>(i), weights_.before<T>());
  external_segments apart = elsewhere_.template list<T>(k, weights_.before<T>());
  if constexpr (!detail::gathers<Hook, Comm>) algo::bring_all(std::exchange(apart, {}), erase_type(elements));
  weights_.put(b, tail);
  if (last) {
    step_flags::put(step_, tail.first(line), watch_.wants());
    if (tail.size() > line) usage_.put(weights_.mine(), tail.subspan(line));
  }
  return hook_(lane, bucket_view<T>{b, elements, where_, k.slots, tail.size(), weights_.divisor<T>(),
                                    weights_.unit<T>(), apart});
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
void reducer<Comm, Hook>::advance() {
  try {
    buckets_.advance(departure());
  } catch (...) {
    give_up();
    detail::tell_apart(detail::pass_of(weights_.mine()));
  }
}

// Agrees on the step for a model without parameters, for which no bucket carries it.
template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
task<> reducer<Comm, Hook>::agree_on_step() {
  std::array<float, line_elements<float>> line{};
  step_flags::put(step_, std::span<float>{line});
  co_await world_->all_reduce(line, sum, {}, where_);
  step_ = step_flags::take(std::span<const float>{line});
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
task<step> reducer<Comm, Hook>::finish(pass_type given) {
  auto mine = std::move(given);  // a parameter lives as long as the task, this one as long as the body
  if (!reduces_) co_return this->stop_accumulating();
  this->mark_the_rest();
  try {
    if (auto weights = weights_.take_collective()) {
      co_await *std::move(weights);
      weights_.heard();
    }
    co_await buckets_.finish(departure());
    if (size() == 0) co_await agree_on_step();
  } catch (...) {
    detail::tell_apart(detail::pass_of(weights_.mine()));
  }
  weights_.learn_from(arena_);
  if (conclude() == wish::replan) co_await replan_now();
  this->let_go();
  co_return step_;
}

template <class Comm, class Hook>
  requires reduction_hook<Hook, Comm>
void reducer<Comm, Hook>::give_up(std::uint64_t why) noexcept {
  world_->abort(why);
  buckets_.drop();
  weights_.forget();
  this->let_go();
}

}  // namespace tutti::grad
