#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/sim.hpp>

#include <transport/sim_program.hpp>

namespace {

using namespace tutti;

using world_type = communicator<sim>;
/// A collective; false when its result is wrong.
using action = std::function<bool(world_type&)>;

bool all_equal(const std::vector<long>& v, long wanted) { return v == std::vector<long>(v.size(), wanted); }
action all_reduce(std::size_t count, algorithm via = algorithm::automatic) {
  return [=](world_type& w) {
    std::vector<long> v(count, w.rank() + 1);
    w.all_reduce(v, sum, {.via = via}).wait();
    return all_equal(v, w.size() * (w.size() + 1) / 2);
  };
}
action largest(std::size_t count) {
  return [=](world_type& w) {
    std::vector<long> v(count, w.rank() + 1);
    w.all_reduce(v, max).wait();
    return all_equal(v, w.size());
  };
}
action broadcast(std::size_t count) {
  return [=](world_type& w) {
    std::vector<long> v(count, w.rank() + 1);
    w.broadcast(v, 0).wait();
    return all_equal(v, 1);
  };
}
action barrier() {
  return [](world_type& w) {
    w.barrier().wait();
    return true;
  };
}

struct mistake {
  const char* name;
  std::vector<action> right, wrong;  // what one rank does instead
};

const std::vector<mistake>& mistakes() {
  static const std::vector<mistake> all{
      {"two sizes swapped", {all_reduce(100), all_reduce(200)}, {all_reduce(200), all_reduce(100)}},
      {"a large and a small one swapped", {all_reduce(20'000), all_reduce(10)}, {all_reduce(10), all_reduce(20'000)}},
      {"two collectives swapped", {all_reduce(100), broadcast(100)}, {broadcast(100), all_reduce(100)}},
      {"another reduction", {all_reduce(100)}, {largest(100)}},
      {"swapped with a barrier", {all_reduce(100), barrier()}, {barrier(), all_reduce(100)}},
      {"two broadcasts swapped", {broadcast(100), broadcast(20)}, {broadcast(20), broadcast(100)}},
      {"one skipped", {barrier(), all_reduce(100), barrier()}, {barrier(), barrier()}},
      {"one of three equal ones skipped",
       {all_reduce(100), all_reduce(100), all_reduce(100)},
       {all_reduce(100), all_reduce(100)}},
      {"a broadcast skipped", {all_reduce(100), broadcast(100), all_reduce(100)}, {all_reduce(100), all_reduce(100)}},
      {"another algorithm", {all_reduce(100, algorithm::ring)}, {all_reduce(100, algorithm::recursive_doubling)}},
      {"gone too early", {all_reduce(100), barrier()}, {all_reduce(100)}}};
  return all;
}

struct outcome {
  std::map<errc, int> ends;
  bool wrong = false;
};

outcome make(const mistake& m, std::uint64_t seed, sim_memory memory) {
  outcome o;
  const int size = 2 + static_cast<int>(seed % 4), who = static_cast<int>(seed / 4) % size;
  run_sim(size, {.seed = seed, .memory = memory}, [&](world_type& world) {
    try {
      for (const action& a : world.rank() == who ? m.wrong : m.right)
        if (!a(world)) o.wrong = true;
      ++o.ends[errc::ok];
    } catch (const error& e) {
      ++o.ends[e.kind()];
    }
  });
  return o;
}

TEST_CASE("sim: a rank that makes other calls than the others is noticed on every schedule") {
  for (const auto memory : {sim_memory::separate, sim_memory::shared})
    for (const mistake& m : mistakes())
      for_seeds(0, sim_program::seeds / 10, [&](std::uint64_t seed) {
        const outcome o = make(m, seed, memory);
        if (o.wrong) throw std::runtime_error(std::string(m.name) + ": a wrong result");
        for (const auto& [code, count] : o.ends)
          if (code != errc::ok && code != errc::mismatch && code != errc::timed_out && code != errc::peer_left)
            throw std::runtime_error(std::string(m.name) + ": " + category().message(static_cast<int>(code)));
        if (o.ends.size() == 1 && o.ends.contains(errc::ok))
          throw std::runtime_error(std::string(m.name) + ": unnoticed");
      });
}

// A rank that sends takes itself for the root, one that would be sent to does not. Of more than three, some wait.
TEST_CASE("sim: roots that differ are noticed, also where nobody waits for another rank") {
  using rooted = std::function<void(world_type&, int root, std::size_t count)>;
  const std::vector<std::pair<const char*, rooted>> all{
      {"broadcast",
       [](world_type& w, int root, std::size_t count) {
         std::vector<long> v(count);
         w.broadcast(v, root).wait();
       }},
      {"reduce",
       [](world_type& w, int root, std::size_t count) {
         std::vector<long> v(count);
         w.reduce(v, v, 1 - root).wait();
       }},
      {"gather",
       [](world_type& w, int root, std::size_t count) {
         std::vector<long> in(count), out(count * static_cast<std::size_t>(w.size()));
         w.gather(in, out, 1 - root).wait();
       }},
      {"scatter", [](world_type& w, int root, std::size_t count) {
         std::vector<long> out(count), in(count * static_cast<std::size_t>(w.size()));
         w.scatter(in, out, root).wait();
       }}};
  for (const auto& each : all)
    for_seeds(0, sim_program::seeds / 5, [&](std::uint64_t seed) {
      const std::string name = each.first;
      std::map<errc, int> ends;
      std::string text;
      const std::size_t count = seed % 3 == 0 ? 5'000 : 100;
      const int size = 2 + static_cast<int>(seed / 3 % 4);
      run_sim(size, {.seed = seed}, [&](world_type& world) {
        try {
          barrier()(world);
          each.second(world, world.rank() % 2, count);
          for (int i = 0; i < world.size(); ++i) barrier()(world);
          ++ends[errc::ok];
        } catch (const error& e) {
          ++ends[e.kind()];
          if (e.kind() == errc::mismatch) text = e.what();
        }
      });
      if (size > 3) ends.erase(errc::timed_out);
      if (size > 3 ? ends.contains(errc::ok) : !ends.contains(errc::mismatch) || ends.size() != 1)
        throw std::runtime_error(name + ": " + std::to_string(ends[errc::mismatch]) + " noticed, " + text);
      for (const std::string& said : {name, std::string("#2"), std::string("root 0"), std::string("root 1")})
        if (!text.empty() && text.find(said) == std::string::npos) throw std::runtime_error(text);
    });
}

// Beyond a whole number of chunks one rank has more, which no other waits for.
TEST_CASE("sim: messages that nobody has waited for are noticed") {
  using sized = std::function<void(world_type&, std::vector<long>&)>;
  const std::vector<std::pair<const char*, sized>> all{
      {"broadcast", [](world_type& w, std::vector<long>& v) { w.broadcast(v, 0).wait(); }},
      {"reduce", [](world_type& w, std::vector<long>& v) { w.reduce(v, v, w.size() - 1).wait(); }},
      {"scan", [](world_type& w, std::vector<long>& v) { w.scan(v).wait(); }},
      {"exclusive_scan", [](world_type& w, std::vector<long>& v) { w.exclusive_scan(v, v).wait(); }}};
  for (const auto& each : all)
    for_seeds(0, 40, [&](std::uint64_t seed) {
      const int size = 2 + static_cast<int>(seed % 3), odd = static_cast<int>(seed / 3) % size;
      int noticed = 0;
      run_sim(size, {.seed = seed}, [&](world_type& world) {
        std::vector<long> v(32'768 + (world.rank() == odd ? 1 : 0));
        try {
          each.second(world, v);
          for (int i = 0; i <= world.size(); ++i) barrier()(world);
        } catch (const error& e) {
          noticed += e.kind() == errc::mismatch || e.kind() == errc::timed_out;
        }
      });
      if (noticed != size)
        throw std::runtime_error(std::string(each.first) + " of " + std::to_string(size) + ": " +
                                 std::to_string(noticed) + " noticed the count of rank " + std::to_string(odd));
    });
}

TEST_CASE("sim: elements of other sizes are noticed, also where the bytes are as many") {
  constexpr auto fold = [](const void*, void*, std::size_t, std::size_t) {};
  for (const auto memory : {sim_memory::separate, sim_memory::shared})
    for_seeds(0, 40, [&](std::uint64_t seed) {
      int noticed = 0;
      run_sim(3, {.seed = seed, .memory = memory}, [&](world_type& world) {
        std::vector<std::byte> v(800);
        try {
          world.all_reduce(v, raw_reduction{fold, world.rank() == 1 ? std::size_t{4} : std::size_t{8}}).wait();
        } catch (const error& e) {
          noticed += e.kind() == errc::mismatch;
        }
      });
      if (noticed != 3) throw std::runtime_error(std::to_string(noticed) + " noticed");
    });
}

TEST_CASE("sim: whoever is not there is named") {
  for_seeds(0, 100, [](std::uint64_t seed) {
    int named = 0;
    run_sim(4, {.seed = seed}, [&](world_type& world) {
      std::vector<int> v(10);
      try {
        if (world.rank() == 2)
          world.recv(v, 3, 7).wait();  // rank 3 does not send
        else
          world.barrier().wait();
      } catch (const error& e) {
        named += e.kind() == errc::timed_out && e.peer() == 2;
      }
    });
    if (named != 4) throw std::runtime_error(std::to_string(named) + " ranks name rank 2");
  });
}

}  // namespace
