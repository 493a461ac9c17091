#pragma once
#include <algorithm>
#include <cstddef>
#include <string>

#include <tutti/core/error.hpp>
#include <tutti/core/status.hpp>
#include <tutti/grad/layout.hpp>
#include <tutti/grad/pass/pass_state.hpp>

namespace tutti::grad::detail {

template <class Reducer>
double pass_state<Reducer>::start(double weight) {
  weight_digits::check(weight);
  weight_digits::check(carried_weight_ + weight);
  require_idle("begin()");
  if (!carrying_) {
    usage_.clear();
    step_ = step::apply;
  }
  marks_.clear();
  return carried_weight_ + weight;
}

template <class Reducer>
void pass_state<Reducer>::start_accumulating(double weight) {
  (void)start(weight);
  reduces_ = false;
  more_weight_ = weight;
}

template <class Reducer>
void pass_state<Reducer>::leave_out_never_used() {
  for (std::size_t i = 0; i < size(); ++i)
    if (usage_.never(i)) leave_out(i, "begin");
}

template <class Reducer>
void pass_state<Reducer>::ready(std::size_t i) {
  marks_.check(i, "ready");
  if (usage_.never(i)) marks_.refuse_change(i, "ready", "not used");
  marks_.mark(i, "ready");
  usage_.use(i);
  if (reduces_) marks_.arrive(i), self().complete(i);
}

template <class Reducer>
void pass_state<Reducer>::unused(std::size_t i) {
  marks_.check(i, "unused");
  if (usage_.never(i)) return;  // known from the first pass
  if (reduces_ && self().weights_.mine() > 0 && usage_.always(i) && !usage_.used_here(i))
    marks_.refuse_change(i, "unused", "used");
  if (reduces_)
    leave_out(i, "unused");
  else
    marks_.mark(i, "unused");
}

template <class Reducer>
void pass_state<Reducer>::rest_unused() {
  for (std::size_t i = 0; i < size(); ++i)
    if (!marks_.has(i) && !self().arena_.is_delayed(i)) unused(i);
}

template <class Reducer>
void pass_state<Reducer>::skip(step why) {
  if (why == step::apply) throw usage_error("skip: say why, by one of the other values of grad::step");
  if (reduces_ && size() != 0 && self().buckets_.all_left() && why > step_)
    throw usage_error("skip: all gradients are marked, and the peers have been told so; skip before the last mark");
  step_ = (std::max)(step_, why);
  if (!reduces_) carrying_ = true;  // even if this pass is dropped: the gradients that it has added stay
  for (std::size_t i = 0; reduces_ && i < size(); ++i) {
    if (marks_.has(i) || self().arena_.is_delayed(i)) continue;
    marks_.mark(i, "skip");
    self().complete(i);
  }
}

template <class Reducer>
step pass_state<Reducer>::stop_accumulating() {
  carried_weight_ += more_weight_;
  carrying_ = true;
  for (std::size_t i = 0; more_weight_ > 0 && i < size(); ++i)
    if (!marks_.has(i) && !usage_.never(i)) usage_.use(i);
  let_go();
  return step_;
}

template <class Reducer>
void pass_state<Reducer>::mark_the_rest() {
  for (std::size_t i = 0; i < size(); ++i) {
    if (marks_.has(i) || !self().arena_.is_delayed(i)) continue;
    marks_.mark(i, "finish");
    if (self().weights_.mine() > 0) usage_.use(i);
    self().count_in(i);
  }
  marks_.require_all();
}

template <class Reducer>
void pass_state<Reducer>::finish_accounts() {
  forget_carried();
  if (marks_.learn_order())
    watch_.see(marks_.order(), [&](const auto& order) { return layout_of(marks_, options_, order); });
}

template <class Reducer>
void pass_state<Reducer>::drop() noexcept {
  if (reduces_) return self().give_up(status::pass_dropped);
  step_ = (std::max)(step_, step::skip_failure);  // the gradients contain a part of this pass
  carrying_ = true;
  let_go();
}

template <class Reducer>
void pass_state<Reducer>::prepare_buckets() {
  marks_.expect(layout().order());
  self().weights_.arrange(layout(), options_.order);
  watch_.follow(layout());
  self().buckets_.arrange(layout());
  ++plans_;
}

template <class Reducer>
void pass_state<Reducer>::require_idle(const char* call) const {
  if (rebuilding_) throw usage_error("reducer: " + std::string(call) + " during rebuild(); await it first");
  if (current_) throw usage_error("reducer: " + std::string(call) + " during a pass; finish it first");
}

template <class Reducer>
void pass_state<Reducer>::leave_out(std::size_t i, const char* call) {
  marks_.mark(i, call);
  try {
    if (!usage_.used_here(i)) self().zero(i);
  } catch (...) {
    self().give_up();
    throw;
  }
  self().complete(i);
}

}  // namespace tutti::grad::detail
