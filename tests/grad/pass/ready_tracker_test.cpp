#include <doctest/doctest.h>

#include <string>
#include <tutti/core/error.hpp>
#include <tutti/grad/pass/ready_tracker.hpp>
#include <vector>

namespace {
template <class Call>
std::string complaint(Call call) {
  try {
    call();
    return "";
  } catch (const tutti::usage_error& e) {
    return e.what();
  }
}
}  // namespace

TEST_CASE("ready_tracker: each once per pass; complaints name the call and the parameter") {
  const std::vector<tutti::grad::parameter_shape> shapes{{"w", 3, tutti::dtype::f32}, {"", 1, tutti::dtype::f64}};
  tutti::grad::ready_tracker m{shapes};
  CHECK(m.size() == 2);
  CHECK(m.shapes()[1].count == 1);
  for (int pass = 0; pass < 2; ++pass) {
    m.put(0, "ready");
    CHECK(m.has(0));
    CHECK_FALSE(m.has(1));
    CHECK(complaint([&] { m.put(0, "unused"); }) == "unused: parameter 0 (w) was marked twice in one pass");
    CHECK(complaint([&] { m.put(2, "ready"); }) == "ready: there is no parameter 2 among 2");
    CHECK(complaint([&] { m.require_all(); }) == "finish: parameter 1 was never marked ready in this pass");
    m.put(1, "ready");
    CHECK(complaint([&] { m.require_all(); }) == "");
    m.clear();
  }
}

TEST_CASE("ready_tracker: the order of the last pass in which as many became ready as ever is kept") {
  const std::vector<tutti::grad::parameter_shape> shapes(3, {"w", 3, tutti::dtype::f32});
  tutti::grad::ready_tracker m{shapes};
  m.expect({0, 1, 2});
  CHECK(m.order() == std::vector<int>{0, 1, 2});
  CHECK(m.ready_order().empty());
  const auto pass = [&](const std::vector<std::size_t>& ready) {
    for (const std::size_t i : ready) m.put(i, "ready"), m.arrive(i);
    m.learn_order();
    m.clear();
    return m.order();
  };
  CHECK(pass({2, 0}) == std::vector<int>{2, 0, 1});
  CHECK(m.ready_order().size() == 3);
  CHECK(pass({1}) == std::vector<int>{2, 0, 1});
  CHECK(pass({}) == std::vector<int>{2, 0, 1});
  CHECK(pass({1, 2, 0}) == std::vector<int>{1, 2, 0});
  m.expect({0, 1, 2});
  CHECK(m.order() == std::vector<int>{1, 2, 0});
}
