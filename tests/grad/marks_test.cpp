#include <doctest/doctest.h>

#include <string>
#include <tutti/core/error.hpp>
#include <tutti/grad/marks.hpp>
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

TEST_CASE("marks: each once per pass; complaints name the call and the parameter") {
  const std::vector<tutti::grad::parameter_shape> shapes{{"w", 3, tutti::dtype::f32}, {"", 1, tutti::dtype::f64}};
  tutti::grad::marks m{shapes};
  CHECK(m.size() == 2);
  CHECK(m.shapes()[1].count == 1);
  for (int pass = 0; pass < 2; ++pass) {
    m.mark(0, "ready");
    CHECK(m.has(0));
    CHECK_FALSE(m.has(1));
    CHECK(complaint([&] { m.mark(0, "unused"); }) == "unused: parameter 0 (w) was marked twice in one pass");
    CHECK(complaint([&] { m.mark(2, "ready"); }) == "ready: there is no parameter 2 among 2");
    CHECK(complaint([&] { m.require_all(); }) == "finish: parameter 1 was never marked ready in this pass");
    m.mark(1, "ready");
    CHECK(complaint([&] { m.require_all(); }) == "");
    m.clear();
  }
  m.arrive(1), m.arrive(0);
  m.clear();
  CHECK(m.arrival() == std::vector<int>{1, 0});
  m.forget_arrival();
  CHECK(m.arrival().empty());
}
