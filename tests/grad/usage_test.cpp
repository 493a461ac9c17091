#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/usage.hpp>
#include <vector>

using tutti::dtype;

TEST_CASE("usage: gradients that nobody uses get back what they held, to the byte") {
  tutti::run_threads(1, [](tutti::communicator<tutti::threads>& world) {
    const std::vector<tutti::grad::parameter_shape> list{
        {"a", 5, dtype::f32}, {"b", 3, dtype::f64}, {"c", 7, dtype::bf16}, {"d", 2, dtype::f32}};
    const tutti::grad::arena memory{list, tutti::grad::make_plan(list),
                                    [&](std::size_t n) { return world.allocate<std::byte>(n); }};
    const auto fill = [&](float with) {
      for (std::size_t i = 0; i < 4; ++i)
        tutti::grad::visit_gradient(list[i].type, [&]<class T>() {
          for (T& x : memory.gradient<T>(i)) x = T(with);
        });
    };
    const auto value = [&](std::size_t i) {
      return tutti::grad::visit_gradient(list[i].type,
                                         [&]<class T>() { return static_cast<float>(memory.gradient<T>(i).back()); });
    };
    tutti::grad::usage used{4};
    for (int pass = 0; pass < 2; ++pass) {
      used.clear();
      fill(9);
      used.use(3);
      used.keep(0, memory.gradient<float>(0));
      used.keep(1, memory.gradient<double>(1));
      used.keep(2, memory.gradient<tutti::bfloat16>(2));
      if (value(0) != 0 || value(1) != 0 || value(2) != 0 || value(3) != 9) throw std::logic_error("zeros");
      std::vector<float> map(16);
      used.put(std::span{map});
      if (map[0] != 0 || map[1] != 0 || map[2] != 0 || map[3] != 1) throw std::logic_error("map");
      map[1] += 3;  // of others
      fill(0.5f);
      used.take(std::span<const float>{map});
      used.restore(memory);
      if (value(0) != 9 || value(1) != 0.5f || value(2) != 9 || value(3) != 0.5f) throw std::logic_error("restored");
      if (used.used_anywhere(0) || !used.used_anywhere(1) || used.used_anywhere(2) || !used.used_anywhere(3) ||
          used.used_here(1) || !used.used_here(3))
        throw std::logic_error("who");
    }
  });
}
