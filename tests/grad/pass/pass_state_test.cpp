#include <doctest/doctest.h>

#include <cstddef>
#include <optional>
#include <string>
#include <tutti/core/error.hpp>
#include <tutti/grad/pass/pass_link.hpp>
#include <tutti/grad/pass/pass_state.hpp>
#include <utility>
#include <vector>

namespace {
using tutti::usage_error;
using tutti::grad::graph;
using tutti::grad::reducer_options;
using tutti::grad::request;
using tutti::grad::step;
using tutti::grad::unused_parameters;
using tutti::grad::detail::pass_action;
using tutti::grad::detail::pass_link;
using tutti::grad::detail::pass_state;

const std::vector<tutti::grad::parameter_shape> three(3, {"w", 4});

/// The state of a reducer of three parameters with its first plan.
struct one_state : pass_state {
  explicit one_state(reducer_options options = {}, int rank = 0) : pass_state(three, std::move(options), rank) {
    arrange(plan_for({}));
  }
};
}  // namespace

TEST_CASE(
    "pass_state: in a pass that reduces, each mark says what the reducer does; in one that accumulates, nothing") {
  one_state s;
  s.begin(2);
  CHECK(s.weight() == 2);
  CHECK(s.ready(1) == pass_action::reduce);
  CHECK_THROWS_AS((void)s.ready(1), usage_error);
  CHECK_THROWS_AS((void)s.unused(3), usage_error);
  CHECK(s.unused(0) == pass_action::zero_and_reduce);
  CHECK(s.leave_out_rest(0) == pass_action::nothing);
  CHECK(s.leave_out_rest(1) == pass_action::nothing);
  CHECK_THROWS_WITH_AS(s.require_all_marked(), "finish: parameter 2 (w) was never marked ready in this pass",
                       usage_error);
  CHECK(s.leave_out_rest(2) == pass_action::zero_and_reduce);
  s.require_all_marked();
  s.finish();

  s.begin_accumulating(3);
  CHECK_FALSE(s.reduces());
  CHECK(s.ready(0) == pass_action::nothing);
  CHECK(s.unused(1) == pass_action::nothing);
  CHECK(s.finish_accumulating() == step::apply);
  CHECK(s.has_accumulated());
  s.begin(4);
  CHECK(s.weight() == 7);
  CHECK(s.unused(0) == pass_action::reduce);           // the pass before has used it
  CHECK(s.unused(1) == pass_action::zero_and_reduce);  // neither has
  CHECK(s.unused(2) == pass_action::reduce);           // it needed no mark there
  s.finish();
  CHECK_FALSE(s.has_accumulated());
  s.begin(4);
  CHECK(s.weight() == 4);
}

TEST_CASE("pass_state: a skip marks the rest, may grow, and comes too late once the last bucket has left") {
  one_state s;
  s.begin(1);
  CHECK_THROWS_AS(s.skip(step::apply), usage_error);
  CHECK(s.ready(0) == pass_action::reduce);
  s.skip(step::skip_overflow);
  CHECK(s.skip_rest(0) == pass_action::nothing);
  CHECK(s.skip_rest(1) == pass_action::reduce);
  CHECK(s.skip_rest(2) == pass_action::reduce);
  CHECK(s.commit_step() == step::skip_overflow);
  s.skip(step::skip_overflow);  // says nothing new
  CHECK_THROWS_AS(s.skip(step::skip_failure), usage_error);
  CHECK(s.so_far() == step::skip_overflow);
  s.agree(step::skip_failure);
  CHECK(s.so_far() == step::skip_failure);
  s.finish();
  s.begin(1);
  CHECK(s.so_far() == step::apply);
  s.skip(step::skip_failure);
}

TEST_CASE("pass_state: a backward pass may go on after a skip, and marks after rest_unused() are refused by its name") {
  one_state s{{.unused = unused_parameters::tracked, .graph = graph::fixed}};
  for (int pass = 0; pass < 2; ++pass) {  // the second with a graph that is known
    s.begin(1);
    CHECK(s.ready(0) == pass_action::reduce);
    s.skip(step::skip_overflow);
    for (std::size_t i = 0; i < 3; ++i) CHECK(s.skip_rest(i) == (i == 0 ? pass_action::nothing : pass_action::reduce));
    CHECK(s.ready(1) == pass_action::nothing);
    CHECK(s.ready(1) == pass_action::nothing);
    CHECK(s.unused(2) == pass_action::nothing);
    CHECK(s.leave_out_rest(1) == pass_action::nothing);
    CHECK_THROWS_WITH_AS((void)s.ready(0), "ready: parameter 0 (w) was marked twice in one pass", usage_error);
    CHECK_THROWS_AS((void)s.ready(3), usage_error);
    s.require_all_marked();
    s.finish();
    CHECK(s.marks().order() == std::vector<int>{0, 2, 1});  // of what was ready before the skip
    if (pass == 0) {
      s.begin(1);
      for (std::size_t i = 0; i < 3; ++i) CHECK(s.ready(i) == pass_action::reduce);
      s.usage_map().learn(s.weight());
    }
  }
  one_state other;
  other.begin(1);
  for (std::size_t i = 0; i < 3; ++i) CHECK(other.leave_out_rest(i) == pass_action::zero_and_reduce);
  CHECK_THROWS_WITH_AS(
      (void)other.ready(1),
      "ready: parameter 1 (w) was marked by rest_unused() in this pass; call that after all other marks", usage_error);
  CHECK_THROWS_AS((void)other.unused(1), usage_error);
}

TEST_CASE("pass_state: what an accumulating pass has skipped or dropped, the next one that reduces skips") {
  one_state s;
  s.begin_accumulating(1);
  s.skip(step::skip_overflow);
  CHECK(s.skip_rest(0) == pass_action::nothing);
  CHECK(s.finish_accumulating() == step::skip_overflow);
  s.begin_accumulating(1);
  s.drop_accumulating();
  s.begin(1);
  CHECK(s.so_far() == step::skip_failure);
  CHECK(s.weight() == 2);  // the one that was dropped has none
  s.finish();
  s.begin_accumulating(1);
  s.skip(step::skip_overflow);
  CHECK(s.finish_accumulating() == step::skip_overflow);
  s.forget_accumulated();
  s.begin(1);
  CHECK(s.so_far() == step::apply);
  CHECK(s.weight() == 1);
}

TEST_CASE("pass_state: delayed parameters are marked at the end, unless they were before") {
  one_state s{{.limits = {1, 1}, .delayed = {0, 2}}};
  s.begin(1);
  CHECK(s.ready(2) == pass_action::reduce);
  CHECK_FALSE(s.mark_delayed(1));  // is not delayed, and needs a mark
  CHECK(s.leave_out_rest(0) == pass_action::nothing);
  CHECK(s.leave_out_rest(1) == pass_action::zero_and_reduce);
  CHECK(s.mark_delayed(0));
  CHECK_FALSE(s.mark_delayed(1));
  CHECK_FALSE(s.mark_delayed(2));
  s.require_all_marked();
  CHECK(s.usage_map().used_here(0));
}

TEST_CASE("pass_state: a fixed graph leaves out what the first pass did not use, and refuses what differs") {
  one_state s{{.unused = unused_parameters::tracked, .graph = graph::fixed}};
  s.begin(1);
  for (std::size_t i = 0; i < 3; ++i) CHECK(s.leave_out_never_used(i) == pass_action::nothing);
  CHECK(s.ready(0) == pass_action::reduce);
  CHECK(s.ready(1) == pass_action::reduce);
  CHECK(s.unused(2) == pass_action::zero_and_reduce);
  s.finish();
  s.usage_map().learn(s.weight());
  s.begin(1);
  CHECK(s.leave_out_never_used(0) == pass_action::nothing);
  CHECK(s.leave_out_never_used(2) == pass_action::zero_and_reduce);
  CHECK(s.unused(2) == pass_action::nothing);
  CHECK_THROWS_AS((void)s.ready(2), usage_error);
  CHECK_THROWS_AS((void)s.unused(0), usage_error);
  CHECK(s.ready(0) == pass_action::reduce);
  CHECK(s.ready(1) == pass_action::reduce);
  s.require_all_marked();
  s.finish();
  s.begin(0);  // without samples it uses nothing
  CHECK(s.unused(0) == pass_action::zero_and_reduce);
}

TEST_CASE("pass_state: one pass at a time, which ends for both sides of the link") {
  one_state s;
  s.begin(1);
  std::optional<pass_link> link{std::in_place, s.link()};
  CHECK(s.active());
  pass_link moved{std::move(*link)};
  CHECK_FALSE(link->holds());
  link.reset();
  CHECK(s.active());
  CHECK_THROWS_WITH_AS(s.begin(1), "reducer: begin() during a pass; finish it first", usage_error);
  s.end();
  CHECK_FALSE(moved.holds());
  CHECK_FALSE(s.active());
  s.begin_rebuild();
  CHECK_THROWS_WITH_AS(s.begin_accumulating(1), "reducer: begin() during rebuild(); await it first", usage_error);
  CHECK(s.reduces());
  s.end();
  s.require_idle("begin()");
  {
    const pass_link dropped{s.link()};
    CHECK(s.active());
  }
  CHECK_FALSE(s.active());
}

TEST_CASE("pass_state: rank 0 asks for another plan after passes in another order, and counts the plans") {
  one_state s{{.limits = {1, 1}, .replan = tutti::grad::replan::on_drift, .drift_passes = 2}};
  CHECK(s.replans() == 0);
  for (int pass = 0; pass < 2; ++pass) {
    CHECK(s.wants() == request::none);
    s.begin(1);
    for (std::size_t i = 0; i < 3; ++i)
      CHECK(s.ready(i) == pass_action::reduce);  // the plan expects the last one first
    s.finish();
  }
  CHECK(s.wants() == request::replan);
  s.arrange(s.plan_for(s.marks().order()));
  CHECK(s.wants() == request::none);
  CHECK(s.replans() == 1);
}
