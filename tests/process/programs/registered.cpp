// One rank of a world that registers memory of its own: random registrations, collectives and ends, against a model.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/async/sync_wait.hpp>
#include <tutti/backend/driver.hpp>
#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/openssl.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/os/memory_areas.hpp>
#include <tutti/transport/host.hpp>

#include "process/programs/options.hpp"

namespace {

using numbers = std::span<float>;
using world_type = tutti::communicator<>;

void check(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what);
}

bool is_shared(const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  return tutti::os::areas_in(at, at + 1).at(0).permissions[3] == 's';
}

/// Arrays with the values that they must have. A collective on some elements must leave all others alone.
class arrays {
 public:
  arrays(std::size_t count, std::size_t elements) : real_(count), model_(count) {
    for (std::size_t i = 0; i < count; ++i) {
      real_[i].resize(elements);
      for (std::size_t k = 0; k < elements; ++k) real_[i][k] = static_cast<float>(k % 1000);
      model_[i] = real_[i];
    }
  }
  std::vector<float>& operator[](std::size_t i) { return real_[i]; }
  std::size_t size() const { return real_.size(); }

  /// Returns the value of rank r at element k of an operand.
  static float value(int r, std::size_t k, std::size_t salt) {
    return static_cast<float>((k * 7 + salt) % 101 + static_cast<std::size_t>(r) * 3);
  }
  float summed(std::size_t k, std::size_t salt, int up_to) const {
    float all = 0;
    for (int r = 0; r < up_to; ++r) all += value(r, k, salt);
    return all;
  }

  /// Elements of an array, in both.
  struct part {
    arrays* all;
    std::size_t array, first, count;
    numbers real() const { return numbers{all->real_[array]}.subspan(first, count); }
    void fill(std::size_t salt, int rank) const {
      for (std::size_t k = 0; k < count; ++k) set(k, real()[k] = value(rank, k, salt));
    }
    void set(std::size_t k, float to) const { all->model_[array][first + k] = to; }
  };
  part at(std::size_t array, std::size_t first, std::size_t count) { return {this, array, first, count}; }

  void compare(const std::string& what) const {
    for (std::size_t i = 0; i < real_.size(); ++i)
      for (std::size_t k = 0; k < real_[i].size(); ++k)
        if (real_[i][k] != model_[i][k])
          throw std::runtime_error(what + ": array " + std::to_string(i) + " element " + std::to_string(k) + " is " +
                                   std::to_string(real_[i][k]) + " where " + std::to_string(model_[i][k]) +
                                   " was expected");
  }
  void assign(std::vector<float> fresh, std::size_t i) {
    model_[i] = fresh;
    real_[i] = std::move(fresh);
  }

 private:
  std::vector<std::vector<float>> real_, model_;
};

constexpr int kinds = 15;

/// Calls one collective of `n` elements a block. `place(count)` returns elements for an operand or result.
template <class Place>
std::string collective(world_type& w, arrays& all, int kind, std::size_t n, std::size_t salt, Place place) {
  const int size = w.size(), me = w.rank(), root = static_cast<int>(salt % static_cast<std::size_t>(size));
  const auto ranks = static_cast<std::size_t>(size), mine = static_cast<std::size_t>(me);
  const auto sums = [&](const arrays::part& out, int up_to, std::size_t first = 0) {
    for (std::size_t k = 0; k < out.count; ++k) out.set(k, all.summed(first + k, salt, up_to));
  };
  switch (kind) {
    case 0: {
      const auto x = place(n);
      x.fill(salt, me);
      sums(x, size);
      w.all_reduce(x.real()).wait();
      return "all_reduce in place";
    }
    case 1: {
      const auto in = place(n), out = place(n);
      in.fill(salt, me);
      sums(out, size);
      w.all_reduce(in.real(), out.real()).wait();
      return "all_reduce";
    }
    case 2: {
      const auto x = place(n);
      x.fill(salt, me);
      for (std::size_t k = 0; k < n; ++k) x.set(k, arrays::value(root, k, salt));
      w.broadcast(x.real(), root).wait();
      return "broadcast";
    }
    case 3: {
      const auto in = place(n), out = place(n * ranks);
      in.fill(salt, me);
      for (std::size_t k = 0; k < n * ranks; ++k) out.set(k, arrays::value(static_cast<int>(k / n), k % n, salt));
      w.all_gather(in.real(), out.real()).wait();
      return "all_gather";
    }
    case 4: {
      const auto x = place(n * ranks);
      const auto in = all.at(x.array, x.first + mine * n, n);
      in.fill(salt, me);
      for (std::size_t k = 0; k < n * ranks; ++k) x.set(k, arrays::value(static_cast<int>(k / n), k % n, salt));
      w.all_gather(in.real(), x.real()).wait();
      return "all_gather in place";
    }
    case 5: {
      const auto in = place(n * ranks), out = place(n);
      in.fill(salt, me);
      sums(out, size, mine * n);
      w.reduce_scatter(in.real(), out.real()).wait();
      return "reduce_scatter";
    }
    case 6: {
      const auto in = place(n), out = place(n);
      in.fill(salt, me);
      if (me == root) sums(out, size);
      w.reduce(in.real(), out.real(), root).wait();
      return "reduce";
    }
    case 7: {
      const auto x = place(n);
      x.fill(salt, me);
      sums(x, me + 1);
      w.scan(x.real()).wait();
      return "scan";
    }
    case 8: {
      const auto in = place(n), out = place(n * ranks);
      in.fill(salt, me);
      if (me == root)
        for (std::size_t k = 0; k < n * ranks; ++k) out.set(k, arrays::value(static_cast<int>(k / n), k % n, salt));
      w.gather(in.real(), out.real(), root).wait();
      return "gather";
    }
    case 9: {
      const auto in = place(n * ranks), out = place(n);
      in.fill(salt, me);
      for (std::size_t k = 0; k < n; ++k) out.set(k, arrays::value(root, mine * n + k, salt));
      w.scatter(in.real(), out.real(), root).wait();
      return "scatter";
    }
    case 10: {
      const auto in = place(n * ranks), out = place(n * ranks);
      in.fill(salt, me);
      for (std::size_t k = 0; k < n * ranks; ++k)
        out.set(k, arrays::value(static_cast<int>(k / n), mine * n + k % n, salt));
      w.all_to_all(in.real(), out.real()).wait();
      return "all_to_all";
    }
    case 11: {
      const auto a = place(n), b = place(n / 3 + 1);
      a.fill(salt, me);
      b.fill(salt, me);
      sums(a, size);
      sums(b, size);
      const std::vector<numbers> list{a.real(), b.real()};
      w.all_reduce_coalesced(list).wait();
      return "all_reduce_coalesced";
    }
    case 12: {  // a part of the operand is elsewhere
      const auto x = place(n);
      x.fill(salt, me);
      sums(x, size);
      const std::vector<float> elsewhere(x.real().begin() + static_cast<std::ptrdiff_t>(n / 4), x.real().end());
      std::fill(x.real().begin() + static_cast<std::ptrdiff_t>(n / 4), x.real().end(), -1.0F);
      const tutti::external_segment part{n / 4, elsewhere.size(), elsewhere.data()};
      w.all_reduce(x.real(), tutti::external_segments{&part, 1}, tutti::sum).wait();
      return "all_reduce with an external segment";
    }
    case 13: {  // an operand is prepared, in a copy
      const auto in = place(n), out = place(n);
      in.fill(salt, me);
      for (std::size_t k = 0; k < n; ++k) out.set(k, 2 * all.summed(k, salt, size));
      auto prepared = w.prepare().all_reduce(in.real(), out.real(), tutti::premul_sum(2.0F));
      prepared.start().wait();
      return "a prepared all_reduce by premul_sum";
    }
    default: {  // blocks of different lengths, with a gap before each
      std::vector<std::size_t> counts, offsets;
      std::size_t end = 0;
      for (std::size_t r = 0; r < ranks; ++r) {
        counts.push_back(n / 2 + r * n / (2 * ranks));
        offsets.push_back(end + 3);
        end += 3 + counts.back();
      }
      const auto in = place(counts[mine]), out = place(end);
      in.fill(salt, me);
      for (std::size_t r = 0; r < ranks; ++r)
        for (std::size_t k = 0; k < counts[r]; ++k)
          out.set(offsets[r] + k, arrays::value(static_cast<int>(r), k, salt));
      w.all_gather_v(in.real(), out.real(), tutti::layout{counts, offsets}).wait();
      return "all_gather_v";
    }
  }
}

/// A length that makes small calls, calls of a chunk, or long ones.
std::size_t some_length(std::mt19937_64& random, std::size_t most) {
  const std::size_t limit = std::array<std::size_t, 3>{200, 20000, most}[random() % 3];
  return 1 + random() % std::min(limit, most);
}

/// All ranks make the same calls; each registers and ends what it likes, and places the operands where it likes.
void fuzz(world_type& w, unsigned seed, int rounds) {
  std::mt19937_64 common{seed}, own{seed * 1000 + static_cast<unsigned>(w.rank())};
  const std::size_t elements = 400000;
  arrays all{4, elements};
  std::map<std::size_t, std::vector<tutti::registration>> held;
  const auto toggle = [&] {
    const std::size_t i = own() % all.size();
    if (!held[i].empty()) return held[i].clear();
    switch (own() % 3) {
      case 0:
        held[i].push_back(w.register_buffer(all[i]));
        break;
      case 1: {  // a part
        const std::size_t first = own() % (elements / 2);
        held[i].push_back(w.register_buffer(numbers{all[i]}.subspan(first, 1 + own() % (elements - first))));
        break;
      }
      default: {  // two neighbours, which meet in a page or anywhere
        const std::size_t cut = own() % elements;
        held[i].push_back(w.register_buffer(numbers{all[i]}.first(cut)));
        held[i].push_back(w.register_buffer(numbers{all[i]}.subspan(cut)));
      }
    }
  };
  for (int i = 0; i < rounds; ++i) {
    if (own() % 3 == 0) toggle();
    const int kind = static_cast<int>(common() % kinds);
    const std::size_t n = some_length(common, elements / static_cast<std::size_t>(w.size()) - 100),
                      salt = common() % 97;
    std::size_t next = own() % all.size();
    const std::string what = collective(w, all, kind, n, salt, [&](std::size_t count) {
      next = (next + 1) % all.size();
      return all.at(next, own() % (elements - count + 1), count);
    });
    all.compare(what + " of " + std::to_string(n) + " in round " + std::to_string(i));
  }
  held.clear();
  all.compare("after the last end");
  for (std::size_t i = 0; i < all.size(); ++i) check(!is_shared(all[i].data() + elements / 2), "still shared");
}

/// Every collective, on all, on parts and beside the registered memory, where some ranks or all have registered.
void every_collective(world_type& w, const std::function<bool(int)>& registers) {
  const std::size_t elements = 300001;
  arrays all{2, elements};
  std::vector<tutti::registration> held;
  if (registers(w.rank()))
    for (std::size_t i = 0; i < 2; ++i) held.push_back(w.register_buffer(all[i]));
  for (const tutti::registration& r : held) check(r.registered(), "not registered");
  for (const std::size_t before : {std::size_t{0}, std::size_t{1}, std::size_t{1021}, std::size_t{5000}})
    for (int kind = 0; kind < kinds; ++kind) {
      const std::size_t n = (elements - before) / static_cast<std::size_t>(w.size()) / 2;
      std::size_t next = 0;
      const std::string what = collective(w, all, kind, n, before + 1, [&](std::size_t count) {
        return all.at(next++ % 2, before == 0 ? elements - count : before, count);
      });
      all.compare(what);
    }
}

/// Returns the place in the heap of what is allocated next, behind all else.
std::uint64_t next_place(world_type& w) {
  const auto probe = w.allocate<std::byte>(32 << 20);
  return w.backend().shared_driver()->link().locate(probe.data(), 1).value();
}

/// A vector begins and ends inside of pages. If it were staged where ranks have cores of their own, the group would
/// first choose how, which takes slots of 4 MiB.
void whole_array(world_type& w) {
  arrays all{1, 1 << 20};
  const auto mine = w.register_buffer(all[0]);
  check(mine.registered() && is_shared(all[0].data() + 5000), "not registered");
  w.barrier().wait();  // the group's first call takes its memory
  const std::uint64_t before = next_place(w);
  for (const int kind : {0, 12}) {
    const std::string what =
        collective(w, all, kind, all[0].size(), 5, [&](std::size_t count) { return all.at(0, 0, count); });
    all.compare(what);
    check(next_place(w) == before, what + " on registered memory has staged");
  }
}

enum class share { all, some };
/// A reducer leaves means in registered memory of the program's, with the bits that they have in its own memory, where
/// a bucket is one range and where it is several. Where all ranks share memory nothing is staged.
void gradients(world_type& w, share memory) {
  std::vector<tutti::grad::parameter_shape> shapes;
  std::size_t elements = 0;
  for (const std::size_t n : {70001U, 3U, 200000U, 0U, 5000U, 1023U, 90000U}) {
    shapes.push_back({"", n});
    elements += n;
  }
  std::vector<float> block(elements + 1);
  const numbers mine = numbers{block}.subspan(1);
  const auto held = w.register_buffer(mine);
  check(memory == share::some || (held.registered() && is_shared(block.data() + 5000)), "not registered");
  const tutti::grad::sum_hook hook{{.order = tutti::reduction_order::rank}};
  for (const std::vector<int>& order : {std::vector<int>{6, 5, 4, 3, 2, 1, 0}, std::vector<int>{0, 2, 4, 6, 1, 3, 5}}) {
    const tutti::grad::reducer_options how{.limits = {1 << 18, 1 << 19}, .ready_order = order};
    tutti::grad::reducer expected{w, shapes, how, hook}, got{w, shapes, mine, how, hook};
    w.barrier().wait();
    const std::uint64_t before = memory == share::all ? next_place(w) : 0;
    const auto pass = [&](auto& r, int n) {
      auto p = r.begin(1 + w.rank() * n);
      for (const int i : order) {
        const auto g = r.template gradient<float>(static_cast<std::size_t>(i));
        for (std::size_t k = 0; k < g.size(); ++k) g[k] = arrays::value(w.rank(), k, static_cast<std::size_t>(n + i));
        p.ready(static_cast<std::size_t>(i));
      }
      tutti::sync_wait(w, p.finish());
    };
    for (int n = 0; n < 3; ++n) {
      pass(got, n);
      check(memory == share::some || next_place(w) == before, "gradients in registered memory were staged");
      pass(expected, n);
      for (std::size_t i = 0; i < shapes.size(); ++i) {
        const auto a = expected.gradient<float>(i), b = got.gradient<float>(i);
        check(std::equal(a.begin(), a.end(), b.begin(), b.end()), "other bits than in the reducer's memory");
      }
    }
  }
}

/// Ends beside an operation in flight, which they wait for.
void end_beside_operations(world_type& w) {
  std::vector<float> data(1 << 19, 1);
  for (int i = 0; i < 20; ++i) {
    auto held = w.register_buffer(data);
    std::fill(data.begin(), data.end(), 1.0F);
    auto reduced = w.all_reduce(data);
    held.release();
    reduced.wait();
    check(data.front() == static_cast<float>(w.size()) && data.back() == data.front() && !held.registered(),
          "a wrong sum beside an end");
    check(!is_shared(data.data() + 5000), "still shared");
  }
}

// AddressSanitizer reports that an end copies memory that has been freed, which it should.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool reports_freed = true;
#elif defined(__has_feature)
constexpr bool reports_freed = __has_feature(address_sanitizer);
#else
constexpr bool reports_freed = false;
#endif

/// Checks registered memory that the program frees, moves or unmaps without ending the registration.
void freed_while_registered(world_type& w) {
  for (int i = 0; i < 10; ++i) {
    auto* data = static_cast<float*>(std::malloc(4 << 20));
    std::fill(data, data + (1 << 20), 3.0F);
    auto held = w.register_buffer(numbers{data, 1 << 20});
    data = static_cast<float*>(std::realloc(data, 64 << 20));
    check(data && std::all_of(data, data + (1 << 20), [](float f) { return f == 3; }), "realloc lost the content");
    held.release();
    check(std::all_of(data, data + (1 << 20), [](float f) { return f == 3; }), "the end lost the content");
    check(!is_shared(data + 5000), "moved memory is still shared");
    held = w.register_buffer(numbers{data, 16 << 20});
    std::free(data);
    std::vector<float> other(16 << 20, 7);  // likely to lie there now
    held.release();
    check(other.front() == 7 && other[5000] == 7 && other.back() == 7, "another's memory was touched");
    w.barrier().wait();
  }
}

void refusals(world_type& w) {
  const auto refused = [](auto call, const std::string& part) {
    try {
      const auto held = call();
    } catch (const tutti::usage_error& e) {
      check(std::string{e.what()}.find(part) != std::string::npos, std::string{"other words: "} + e.what());
      return;
    }
    throw std::runtime_error("not refused: " + part);
  };
  std::vector<float> data(1 << 18);
  const auto first = w.register_buffer(data);
  const std::string me = "that rank " + std::to_string(w.rank()) + " (registered.cpp:";
  refused([&] { return w.register_buffer(data); }, me);
  refused([&] { return w.register_buffer(numbers{data}.subspan(1000, 50000)); }, "it overlaps memory " + me);
  {
    auto half = w.split(0);
    refused([&] { return half.register_buffer(data); }, me);
  }
  const auto allocated = w.allocate<float>(1 << 18);
  refused([&] { return w.register_buffer(allocated.span()); }, "shared memory already");
  std::array<float, 40000> on_stack;
  refused([&] { return w.register_buffer(on_stack); }, "stack");
  std::vector<float> small(100);
  check(!w.register_buffer(small).registered(), "a small buffer is registered");
  check(!w.register_buffer(numbers{}).registered(), "nothing is registered");
}

void out_of_memory(world_type& w) {
  std::vector<float> data(30 << 20, 2);  // more than the heap of this world
  try {
    const auto held = w.register_buffer(data);
    throw std::runtime_error("registered more than the heap");
  } catch (const tutti::error& e) {
    check(e.kind() == tutti::errc::out_of_resources, e.what());
    check(std::string{e.what()}.find("register_buffer on rank") != std::string::npos, e.what());
  }
  check(std::all_of(data.begin(), data.end(), [](float f) { return f == 2; }), "the content was touched");
  check(!is_shared(data.data() + 5000), "pages were replaced");
  auto held = w.register_buffer(numbers{data}.first(1 << 20));
  check(held.registered(), "a smaller buffer is not registered");
}

std::size_t count_of(const char* what) {
  if (std::string{what} == "maps") return tutti::os::areas_that([](const auto&) { return true; }).size();
  if (std::string{what} == "descriptors")
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator{"/proc/self/fd"}, {}));
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  unsigned long all = 0, resident = 0;
  const bool read = f && std::fscanf(f, "%lu %lu", &all, &resident) == 2;
  if (f) std::fclose(f);
  check(read, "no statm");
  return resident;
}

/// A world that has failed registers nothing: peers may be in an operation yet.
void after_a_failure(world_type& w) {
  std::vector<float> data(1 << 18, 6);
  auto before = w.register_buffer(data);
  if (w.rank() == 0) {
    w.recv(std::span{&data[7], 1}, 1).wait();  // the other has registered
    w.abort();
  } else {
    w.send(std::span{&data[7], 1}, 0).wait();
    try {
      w.barrier().wait();
    } catch (const tutti::error&) {
    }
  }
  std::vector<float> other(1 << 18, 7);
  const auto after = w.register_buffer(other);
  check(before.registered() && !after.registered(), "registered in a world that has failed");
  before.release();
  check(!is_shared(data.data() + 5000) && data[5000] == 6, "a wrong end in a world that has failed");
}

void many_times(world_type& w) {
  std::vector<float> data(1 << 17, 1);
  std::size_t maps = 0, resident = 0, descriptors = 0;
  for (int i = 0; i < 1000; ++i) {
    auto held = w.register_buffer(data);
    if (i % 50 == 0) w.all_reduce(data, tutti::max).wait();
    if (i == 100) {
      maps = count_of("maps");
      resident = count_of("pages");
      descriptors = count_of("descriptors");
    }
  }
  auto held = w.register_buffer(data);
  check(count_of("maps") <= maps + 4, "more mappings after each registration");
  check(count_of("descriptors") == descriptors, "more descriptors after each registration");
  check(count_of("pages") <= resident + 300, "more memory after each registration");
}

void forked(world_type& w) {
  std::vector<float> data(1 << 18, 4);
  auto held = w.register_buffer(data);
  w.all_reduce(data, tutti::max).wait();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const bool right = data[0] == 4 && data[100000] == 4 && !is_shared(data.data() + 5000);
    std::fill(data.begin(), data.end(), 9.0F);
    held.release();
    ::_exit(right && data[100000] == 9 ? 0 : 3);
  }
  int status = 0;
  check(::waitpid(child, &status, 0) == child && status == 0, "the child saw other numbers");
  check(data[0] == 4 && data[100000] == 4, "the child's numbers came here");
  w.all_reduce(data).wait();
  check(data[100000] == 4.0F * static_cast<float>(w.size()), "a wrong sum after fork()");
}

/// Ends the world on one thread, and registrations on others, which free the memory at once.
void end_on_many_threads(std::optional<world_type>& w) {
  struct array {
    explicit array(world_type& with) : data(1 << 20, 5), held(with.register_buffer(data)) {}
    std::vector<float> data;
    tutti::registration held;
  };
  std::vector<std::unique_ptr<array>> all;
  for (int i = 0; i < 16; ++i) all.push_back(std::make_unique<array>(*w));
  std::atomic<bool> go{false};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      while (!go) std::this_thread::yield();
      for (std::size_t i = 4 * static_cast<std::size_t>(t), end = i + 4; i < end; ++i) {
        all[i]->held.release();
        check(!is_shared(all[i]->data.data() + 5000) && all[i]->data[5000] == 5, "not private after its end");
        all[i].reset();
      }
    });
  go = true;
  w.reset();
}

}  // namespace

int main(int argc, char** argv) try {
  const tutti_test::words words{argc, argv};
  auto options = tutti_test::options_from(words);
  const std::string what = words.text("what", "all");
  if (what == "short") {  // a heap of 32 MiB
    const rlimit files{std::size_t{128} << 20, RLIM_INFINITY};
    check(::setrlimit(RLIMIT_FSIZE, &files) == 0, "no limit");
  }
  std::optional world{tutti::init(options)};
  std::vector<float> kept(1 << 18, 5);
  if (what == "fuzz") {
    fuzz(*world, static_cast<unsigned>(words.number("seed", 1)), words.number("rounds", 100));
  } else if (what == "short") {
    out_of_memory(*world);
  } else if (what == "stream") {  // until somebody dies
    const auto held = world->register_buffer(kept);
    std::printf("streaming\n");
    std::fflush(stdout);
    try {
      for (;;) world->all_reduce(kept, tutti::max).wait();
    } catch (const tutti::error& e) {
      check(e.kind() == tutti::errc::peer_lost, e.what());
    }
    check(std::all_of(kept.begin(), kept.end(), [](float f) { return f == 5; }), "other numbers after a death");
  } else if (what == "race") {
    end_on_many_threads(world);
  } else if (what == "failed") {
    after_a_failure(*world);
  } else if (what == "gradients") {
    gradients(*world, share::some);
  } else if (what == "none") {  // a world in which nobody shares memory
    const auto held = world->register_buffer(kept);
    check(!held.registered(), "registered without shared memory");
    world->all_reduce(kept).wait();
    check(kept[5000] == 5.0F * static_cast<float>(world->size()), "a wrong sum");
  } else {
    whole_array(*world);
    gradients(*world, share::all);
    every_collective(*world, [](int) { return true; });
    every_collective(*world, [](int r) { return r == 0; });
    every_collective(*world, [](int r) { return r != 0; });
    auto alone = world->split(world->rank());
    every_collective(alone, [](int) { return true; });
    end_beside_operations(*world);
    if (!reports_freed) freed_while_registered(*world);
    refusals(*world);
    forked(*world);
    many_times(*world);
  }
  if (what == "all") {
    auto held = world->register_buffer(kept);
    world->barrier().wait();
    world.reset();  // ends the registration
    check(!is_shared(kept.data() + 5000) && kept[5000] == 5, "shared after the end of the world");
    held.release();
    check(kept[5000] == 5, "changed after the end of the world");
  }
  std::printf("all well\n");
  return 0;
} catch (const std::exception& e) {
  std::printf("failed: %s\n", e.what());
  return 1;
}
