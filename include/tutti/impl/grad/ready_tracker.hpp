#pragma once
#include <cstddef>
#include <string>
#include <utility>

#include <tutti/config.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/pass/ready_tracker.hpp>

namespace tutti::grad {

TUTTI_DECL std::string ready_tracker::label(std::size_t i) const {
  return "parameter " + std::to_string(i) + (shapes_[i].name.empty() ? "" : " (" + shapes_[i].name + ")");
}

TUTTI_DECL void ready_tracker::check(std::size_t i, const char* call) const {
  if (i >= size())
    throw usage_error(std::string(call) + ": there is no parameter " + std::to_string(i) + " among " +
                      std::to_string(size()));
}

TUTTI_DECL void ready_tracker::check_count(std::size_t i, const char* call, std::size_t given) const {
  if (given != shapes_[i].count)
    throw usage_error(std::string(call) + ": " + label(i) + " has " + std::to_string(shapes_[i].count) +
                      " elements, and was given " + std::to_string(given));
}

TUTTI_DECL void ready_tracker::put(std::size_t i, const char* call, mark by) {
  check(i, call);
  if (marked_[i] == mark::rest)
    throw usage_error(std::string(call) + ": " + label(i) +
                      " was marked by rest_unused() in this pass; call that after all other marks");
  if (has(i)) throw usage_error(std::string(call) + ": " + label(i) + " was marked twice in one pass");
  marked_[i] = by;
}

TUTTI_DECL void ready_tracker::refuse_change(std::size_t i, const char* call, const char* was) const {
  throw usage_error(std::string(call) + ": " + label(i) + " was " + was +
                    " in the first pass, and the graph is fixed; where passes differ it is dynamic");
}

TUTTI_DECL void ready_tracker::require_all() const {
  for (std::size_t i = 0; i < size(); ++i)
    if (!has(i)) throw usage_error("finish: " + label(i) + " was never marked ready in this pass");
}

TUTTI_DECL bool ready_tracker::learn_order() {
  if (arriving_.empty() || arriving_.size() < seen_) return false;
  seen_ = arriving_.size();
  for (const int i : order_)
    if (marked_[static_cast<std::size_t>(i)] != mark::arrived) arriving_.push_back(i);
  std::swap(order_, arriving_);
  return true;
}

}  // namespace tutti::grad
