#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <string>
#include <tutti-bench/exercise.hpp>
#include <vector>

#include <tutti/bootstrap/threads.hpp>

namespace {

using bench::placements;

/// Runs the collective among three ranks; the wrong elements that rank 1 then counts, once as it is and once with the
/// last element of its own block changed.
struct counts {
  std::uint64_t as_it_is = 0, changed = 0;
};

counts count(const std::string& collective, placements where) {
  bench::options o;
  o.collective = collective;
  o.root = 1;
  o.max_bytes = 3 * 8 * sizeof(float);  // blocks of 8, or of 4, 15 and 5
  counts found;
  tutti::run_threads(3, [&](auto& world) {
    bench::exercise<float> what(o, world.rank(), world.size(), 0);
    std::vector<float> in(what.most()), out(what.most());
    std::vector<tutti::op> flights;
    what.fill(in, where);
    what.begin(world, {}, std::span{in}, std::span{out}, where, [&](auto f) { flights.push_back(std::move(f)); });
    for (auto& f : flights) f.wait();
    if (world.rank() != 1) return;
    std::vector<float>& result = where == placements::in_place ? in : out;
    found.as_it_is = what.wrong(result, where);
    const bool one_block = collective.starts_with("reduce_scatter") || collective.starts_with("scatter");
    result[one_block && where == placements::out_of_place ? 7 : 15] += 1;
    found.changed = what.wrong(result, where);
  });
  return found;
}

TEST_CASE("exercise: each collective's results are right where they are, and one that is not is counted") {
  for (const bench::collective& what : bench::collectives) {
    if (what.name == "barrier") continue;
    for (const placements where : {placements::in_place, placements::out_of_place}) {
      if (what.where != placements::both && what.where != where) continue;
      CAPTURE(what.name);
      CAPTURE(where);
      const counts found = count(std::string(what.name), where);
      CHECK(found.as_it_is == 0);
      CHECK(found.changed == 1);
    }
  }
}

TEST_CASE("exercise: every name of a type stands for it") {
  for (const std::string name : {"int8", "uint8", "int32", "uint32", "int64", "uint64", "half", "bfloat16", "float",
                                 "double", "f8e4m3", "f8e5m2"}) {
    CAPTURE(name);
    std::size_t bytes = 0;
    bench::with_type(name, [&]<class T>(const T*) { bytes = sizeof(T); });
    const bool eight = name.ends_with("int8") || name.starts_with("f8"), sixteen = name == "half" || name == "bfloat16";
    CHECK(bytes == (eight ? 1U : sixteen ? 2U : name == "double" || name.ends_with("64") ? 8U : 4U));
  }
}

}  // namespace
