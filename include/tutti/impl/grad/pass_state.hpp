#pragma once
#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include <tutti/config.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/layout.hpp>
#include <tutti/grad/pass/pass_state.hpp>
#include <tutti/grad/weight.hpp>

namespace tutti::grad::detail {

TUTTI_DECL pass_state::pass_state(std::span<const parameter_shape> shapes, reducer_options options, int rank)
    : options_(std::move(options)),
      marks_(shapes),
      usage_(shapes.size(), options_.unused, options_.graph),
      watch_(rank == 0 && options_.replan == replan::on_drift ? options_.drift_passes : 0),
      delayed_(shapes.size()) {}

TUTTI_DECL bool pass_state::used(std::size_t parameter) const {
  marks_.check(parameter, "used");
  return usage_.used_anywhere(parameter);
}

TUTTI_DECL plan pass_state::plan_for(std::span<const int> ready_order) const {
  return layout_of(marks_, options_, ready_order, own_);
}

TUTTI_DECL void pass_state::arrange(const plan& p) {
  marks_.expect(p.order());
  watch_.follow(p);
  for (std::size_t b = 0; b < p.buckets.size(); ++b)
    for (const bucket_slot& s : p.buckets[b].slots)
      delayed_[static_cast<std::size_t>(s.parameter)] = b + p.delayed >= p.buckets.size();
  ++plans_;
}

TUTTI_DECL void pass_state::require_idle(const char* call) const {
  if (rebuilding_) throw usage_error("reducer: " + std::string(call) + " during rebuild(); await it first");
  if (active()) throw usage_error("reducer: " + std::string(call) + " during a pass; finish it first");
}

TUTTI_DECL void pass_state::start(double weight) {
  weight_digits::check(weight);
  weight_digits::check(carried_weight_ + weight);
  require_idle("begin()");
  if (!carrying_) {
    usage_.clear();
    step_ = step::apply;
  }
  marks_.clear();
  committed_ = false;
}

TUTTI_DECL void pass_state::begin(double weight) {
  start(weight);
  reduces_ = true;
  weight_ = carried_weight_ + weight;
}

TUTTI_DECL void pass_state::begin_accumulating(double weight) {
  start(weight);
  reduces_ = false;
  weight_ = weight;
}

TUTTI_DECL pass_action pass_state::ready(std::size_t i) {
  if (marks_.skipped(i)) return pass_action::nothing;
  if (usage_.never(i)) marks_.refuse_change(i, "ready", "not used");
  marks_.put(i, "ready");
  usage_.use(i);
  if (!reduces_) return pass_action::nothing;
  marks_.arrive(i);
  return pass_action::reduce;
}

TUTTI_DECL pass_action pass_state::unused(std::size_t i, mark by) {
  if (marks_.skipped(i) || usage_.never(i)) return pass_action::nothing;  // never: known from the first pass
  if (reduces_ && weight_ > 0 && usage_.always(i) && !usage_.used_here(i)) marks_.refuse_change(i, "unused", "used");
  return leave_out(i, "unused", by);
}

TUTTI_DECL pass_action pass_state::leave_out(std::size_t i, const char* call, mark by) {
  marks_.put(i, call, by);
  if (!reduces_) return pass_action::nothing;
  return usage_.used_here(i) ? pass_action::reduce : pass_action::zero_and_reduce;  // used by an earlier pass
}

TUTTI_DECL pass_action pass_state::leave_out_never_used(std::size_t i) {
  return usage_.never(i) ? leave_out(i, "begin", mark::call) : pass_action::nothing;
}

TUTTI_DECL pass_action pass_state::leave_out_rest(std::size_t i) {
  return marks_.has(i) || delayed_[i] ? pass_action::nothing : unused(i, mark::rest);
}

TUTTI_DECL pass_action pass_state::skip_rest(std::size_t i) {
  if (!reduces_ || marks_.has(i) || delayed_[i]) return pass_action::nothing;
  marks_.put(i, "skip", mark::skipped);
  return pass_action::reduce;
}

TUTTI_DECL bool pass_state::mark_delayed(std::size_t i) {
  if (marks_.has(i) || !delayed_[i]) return false;
  marks_.put(i, "finish");
  if (weight_ > 0) usage_.use(i);
  return true;
}

TUTTI_DECL void pass_state::skip(step why) {
  if (why == step::apply) throw usage_error("skip: say why, by one of the other values of grad::step");
  if (committed_ && why > step_)
    throw usage_error("skip: all gradients are marked, and the peers have been told so; skip before the last mark");
  step_ = (std::max)(step_, why);
  if (!reduces_) carrying_ = true;  // even if this pass is dropped: the gradients that it has added stay
}

TUTTI_DECL void pass_state::finish() {
  forget_accumulated();
  if (marks_.learn_order()) watch_.see(marks_.order(), [&](const auto& order) { return plan_for(order); });
}

TUTTI_DECL step pass_state::finish_accumulating() noexcept {
  carried_weight_ += weight_;
  carrying_ = true;
  for (std::size_t i = 0; weight_ > 0 && i < size(); ++i)
    if (!marks_.has(i) && !usage_.never(i)) usage_.use(i);
  end();
  return step_;
}

TUTTI_DECL void pass_state::drop_accumulating() noexcept {
  step_ = (std::max)(step_, step::skip_failure);  // the gradients contain a part of this pass
  carrying_ = true;
  end();
}

TUTTI_DECL void pass_state::end() noexcept {
  rebuilding_ = false;
  if (link_) link_->release();
}

}  // namespace tutti::grad::detail
