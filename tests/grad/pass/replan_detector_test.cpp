#include <doctest/doctest.h>

#include <tutti/grad/pass/replan_detector.hpp>
#include <vector>

namespace {
using tutti::grad::request;
const std::vector<tutti::grad::parameter_shape> four(4, {"w", 16});

/// Two to a bucket.
tutti::grad::plan plan_of(const std::vector<int>& order) {
  return tutti::grad::make_plan(four, {.first_bytes = 128, .cap_bytes = 128}, order);
}
struct watcher {
  tutti::grad::replan_detector watch;
  int asked = 0;

  explicit watcher(std::size_t passes) : watch(passes) { watch.follow(plan_of({3, 2, 1, 0})); }
  request after(const std::vector<int>& order) {
    watch.see(order, [&](const auto& o) { return ++asked, plan_of(o); });
    return watch.wants();
  }
};
}  // namespace

TEST_CASE("replan_detector: wants another plan after so many passes in a row that give one and the same other") {
  watcher w{3};
  const std::vector<int> planned{3, 2, 1, 0}, other{1, 0, 3, 2}, third{3, 1, 2, 0};
  for (int i = 0; i < 5; ++i) CHECK(w.after(planned) == request::none);
  CHECK(w.asked == 1);  // what is as in the pass before is not looked at again
  CHECK(w.after(other) == request::none);
  CHECK(w.after(other) == request::none);
  CHECK(w.after(planned) == request::none);  // an outlier or two
  CHECK(w.after(other) == request::none);
  CHECK(w.after(third) == request::none);  // neither one nor the other
  CHECK(w.after(other) == request::none);
  CHECK(w.after({0, 1, 2, 3}) == request::none);  // the same buckets
  CHECK(w.after(other) == request::replan);
  CHECK(w.after({0, 1, 3, 2}) == request::replan);  // and it stays so until it is heard
  w.watch.follow(plan_of(other));
  CHECK(w.watch.wants() == request::none);
  CHECK(w.after(other) == request::none);
  for (int i = 0; i < 2; ++i) CHECK(w.after(planned) == request::none);
  CHECK(w.after(planned) == request::replan);
}

TEST_CASE("replan_detector: of 0 passes looks at nothing") {
  watcher w{0};
  for (int i = 0; i < 5; ++i) CHECK(w.after({1, 0, 3, 2}) == request::none);
  CHECK(w.asked == 0);
}
