#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/os/cgroup.hpp>
#include <tutti/os/memory.hpp>
#include <tutti/os/memory_areas.hpp>
#include <tutti/os/shm_segment.hpp>
#include <tutti/transport/shm/heap.hpp>
#include <tutti/transport/shm/registrations.hpp>

#include <support/forked_child.hpp>
#include <support/grid.hpp>
#include <support/words.hpp>

namespace {

using tutti::shm_registration;
using tutti::shm_registrations;
using tutti_test::complaint;
using tutti_test::contains;
using tutti_test::in_child;

constexpr std::size_t heap_bytes = std::size_t{8} << 20;

/// One rank's heap, behind some pages of the segment that belong to others.
struct rank {
  tutti::os::shm_segment segment = tutti::os::shm_segment::create(heap_bytes + 65536);
  tutti::os::shm_mapping mapping = segment.map();
  std::byte* base = mapping.data() + 65536;
  tutti::detail::shm_heap heap{segment, base, 65536, heap_bytes};
  shm_registrations all{segment, heap, base, 65536};
};

std::span<std::byte> bytes_of(std::vector<int>& v) { return std::as_writable_bytes(std::span{v}); }
std::vector<int> numbers(std::size_t n) {
  std::vector<int> v(n);
  for (std::size_t i = 0; i < n; ++i) v[i] = static_cast<int>(i);
  return v;
}
bool is_shared(const void* p) {
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  return tutti::os::areas_in(at, at + 1).at(0).permissions[3] == 's';
}

TEST_CASE("shm registrations: the heap locates whole pages, and the image holds all of it") {
  auto data = numbers(100000);
  rank r;
  shm_registration* const one = r.all.add(bytes_of(data), "a test");
  REQUIRE(one);
  CHECK(data == numbers(100000));
  int* const middle = data.data() + 50000;
  const auto at = r.heap.locate(middle, 1000);
  REQUIRE(at);
  CHECK(*reinterpret_cast<int*>(r.base + *at) == 50000);
  CHECK(reinterpret_cast<std::byte*>(r.base + *at) == one->image_of(middle));
  *middle = -1;
  CHECK(*reinterpret_cast<int*>(r.base + *at) == -1);
  *middle = 50000;
  CHECK(r.heap.locate(one->whole.data(), one->whole.size()));
  CHECK_FALSE(r.heap.locate(one->whole.data(), one->whole.size() + 1));
  CHECK_FALSE(r.heap.locate(one->whole.data() - 1, 2));
  CHECK(r.heap.locate(one->image, data.size() * sizeof(int)));
  CHECK(one->holds(data.data(), data.size() * sizeof(int)));
  CHECK_FALSE(one->holds(data.data(), data.size() * sizeof(int) + 1));
  CHECK_FALSE(one->holds(bytes_of(data).data() - 1, 5));

  r.all.remove(*one);
  CHECK(r.all.empty());
  CHECK_FALSE(r.heap.locate(middle, 4));
  CHECK_FALSE(is_shared(middle));
  CHECK(data == numbers(100000));
}

TEST_CASE("shm registrations: the end gives the pages back, also between others, and the next one has zeros or data") {
  rank r;
  const auto pages = [&] {
    struct stat s{};
    REQUIRE(::fstat(r.segment.native(), &s) == 0);
    return static_cast<std::size_t>(s.st_blocks) * 512 / 4096;
  };
  auto first = numbers(500000), second = numbers(250000);
  shm_registration* const low = r.all.add(bytes_of(first), "low");
  std::byte* const array = r.heap.allocate(100000);
  shm_registration* const high = r.all.add(bytes_of(second), "high");
  REQUIRE(low);
  REQUIRE(high);
  const std::size_t most = pages();
  r.all.remove(*low);
  CHECK(pages() + 480 < most);
  std::byte* const between = r.heap.allocate(1 << 20);  // in the gap
  CHECK(between < array);
  CHECK(std::all_of(between, between + (1 << 20), [](std::byte b) { return b == std::byte{}; }));
  CHECK(pages() + 230 < most);
  CHECK(second == numbers(250000));
  r.all.remove(*high);
  CHECK(pages() + 470 < most);
  CHECK(r.all.add(bytes_of(first), "again"));
  CHECK(first == numbers(500000));
  r.all.end_all();
  CHECK(first == numbers(500000));
  CHECK(pages() + 470 < most);
}

TEST_CASE("shm registrations: any place in a page, any length") {
  rank r;
  for (std::size_t first = 0; first < 3000; first += 331)
    for (const std::size_t count : {std::size_t{1}, std::size_t{1024}, std::size_t{6000}, std::size_t{40000}}) {
      auto data = numbers(50000);
      const auto part = bytes_of(data).subspan(first, count * sizeof(int));
      shm_registration* const one = r.all.add(part, "a test");
      CHECK((one != nullptr) == (count >= 6000));
      if (!one) continue;
      CHECK(r.heap.locate(one->image, part.size()));
      CHECK(one->whole.data() >= part.data());
      CHECK(one->whole.data() + one->whole.size() <= part.data() + part.size());
      CHECK(reinterpret_cast<std::uintptr_t>(one->image) % 4096 ==
            reinterpret_cast<std::uintptr_t>(part.data()) % 4096);
      r.all.remove(*one);
      CHECK(data == numbers(50000));
    }
}

TEST_CASE("shm registrations: neighbours that meet in a page, found by any byte of theirs") {
  auto data = numbers(100000);
  rank r;
  const auto all = bytes_of(data);
  shm_registration* const low = r.all.add(all.first(150002), "low");
  shm_registration* const high = r.all.add(all.subspan(150002), "high");
  REQUIRE(low);
  REQUIRE(high);
  const auto touched = [&](std::size_t first, std::size_t n) {
    std::vector<const shm_registration*> found;
    r.all.for_each_touched(all.data() + first, n, [&](const shm_registration& x) { found.push_back(&x); });
    return found;
  };
  using list = std::vector<const shm_registration*>;
  CHECK(touched(0, 1) == list{low});
  CHECK(touched(150001, 1) == list{low});
  CHECK(touched(150002, 1) == list{high});
  CHECK(touched(150001, 2) == list{low, high});
  CHECK(touched(0, all.size()) == list{low, high});
  CHECK(touched(5, 0).empty());
  CHECK(touched(all.size(), 100).empty());
  r.all.end_all();
  CHECK(data == numbers(100000));
}

TEST_CASE("shm registrations: overlapping memory is refused with the words of the other, in another world too") {
  auto data = numbers(100000);
  rank r, other_world;
  shm_registration* const one = r.all.add(bytes_of(data), "rank 3 (train.cpp:12)");
  REQUIRE(one);
  const auto again = bytes_of(data).subspan(100, 200000);
  CHECK(contains(complaint([&] { (void)r.all.add(again, "x"); }), "overlaps memory that rank 3 (train.cpp:12) has"));
  CHECK(contains(complaint([&] { (void)other_world.all.add(again, "x"); }), "that rank 3 (train.cpp:12) has"));
  r.all.remove(*one);
  shm_registration* const late = other_world.all.add(again, "x");
  REQUIRE(late);
  CHECK(data == numbers(100000));
}

TEST_CASE("shm registrations: what cannot be registered is refused, and the next attempt works") {
  auto large = numbers(heap_bytes / sizeof(int));
  rank r;
  std::byte* const mine = r.heap.allocate(65536);
  const auto add = [&] { (void)r.all.add({mine, 65536}, "x"); };
  CHECK(contains(complaint(add), "shared memory already"));
  CHECK(contains(complaint(add), "shared memory already"));  // not: overlaps

  CHECK_THROWS_AS((void)r.all.add(bytes_of(large), "x"), tutti::error);
  CHECK(large == numbers(large.size()));
  CHECK_FALSE(is_shared(large.data() + 5000));
  CHECK(r.all.add(bytes_of(large).first(heap_bytes / 2), "x"));
  CHECK(large == numbers(large.size()));
}

TEST_CASE("shm registrations: the end of the rank ends them") {
  auto data = numbers(100000);
  {
    rank r;
    REQUIRE(r.all.add(bytes_of(data), "x"));
    CHECK(is_shared(data.data() + 5000));
  }
  CHECK_FALSE(is_shared(data.data() + 5000));
  CHECK(data == numbers(100000));
}

TEST_CASE("shm registrations: memory that could not become private is the program's for ever, also in a child") {
  if (tutti_test::slow) return;  // sanitizers end the process if they have no memory
  const auto registered_for_ever = [] {
    auto data = numbers(100000);
    {
      rank r;
      shm_registration* const one = r.all.add(bytes_of(data), "x");
      rlimit before{}, none{};
      if (!one || ::getrlimit(RLIMIT_AS, &before) != 0) return 2;
      none = {4096, before.rlim_max};
      if (::setrlimit(RLIMIT_AS, &none) != 0) return 3;
      r.all.remove(*one);
      if (::setrlimit(RLIMIT_AS, &before) != 0 || !r.all.empty()) return 4;
    }
    // Nothing is copied beside a program that may write now.
    if (!is_shared(data.data() + 5000) || data != numbers(100000)) return 5;
    return in_child([&] { return data == numbers(100000) && !is_shared(data.data() + 5000) ? 0 : 6; });
  };
  CHECK(in_child(registered_for_ever) == 0);
}

TEST_CASE("shm registrations: a child made by fork() may register its copy in a world of its own") {
  auto data = numbers(100000);
  rank r;
  REQUIRE(r.all.add(bytes_of(data), "x"));
  CHECK(in_child([&] {
          rank mine;
          const bool registered = mine.all.add(bytes_of(data), "y") != nullptr && is_shared(data.data() + 5000);
          return registered && data == numbers(100000) ? 0 : 1;
        }) == 0);
  CHECK(contains(complaint([&] { (void)r.all.add(bytes_of(data), "z"); }), "that x has"));
}

/// A control group of its own below that of this process, with a limit of memory.
class memory_group {
 public:
  explicit memory_group(std::size_t limit)
      : path_(tutti::os::detail::cgroup_directory("memory").first + "/tutti-" + std::to_string(::getpid())) {
    std::error_code why;
    std::filesystem::create_directory(path_, why);
    made_ = write("memory.limit_in_bytes", std::to_string(limit)) || write("memory.max", std::to_string(limit));
  }
  memory_group(const memory_group&) = delete;
  memory_group& operator=(const memory_group&) = delete;
  ~memory_group() {
    std::error_code why;
    std::filesystem::remove(path_, why);
  }
  bool made() const { return made_; }
  bool enter() const { return write("cgroup.procs", "0"); }

 private:
  bool write(const char* file, const std::string& text) const {
    if (!std::filesystem::exists(path_ / file)) return false;
    std::ofstream out{path_ / file};
    out << text << std::flush;
    return out.good();
  }
  std::filesystem::path path_;
  bool made_ = false;
};

TEST_CASE("shm registrations: a full memory control group is an error, which changes nothing and kills nobody") {
  constexpr std::size_t mib = std::size_t{1} << 20;
  const memory_group group{64 * mib};
  if (tutti_test::slow || !group.made()) {
    MESSAGE("skipped: " << (tutti_test::slow ? "a sanitizer needs more memory than the group has"
                                             : "this user cannot make memory control groups"));
    return;
  }
  constexpr int no_entry = 77;
  const int code = in_child([&] {
    if (!group.enter()) return no_entry;
    auto large = numbers(7 * mib / sizeof(int));
    const auto left = tutti::os::cgroup_memory_headroom();
    if (!left || *left > 64 * mib || *left < 8 * mib) return 2;
    const std::vector<char> ballast(*left - 4 * mib, 1);
    const auto is_as_before = [&large] {
      for (std::size_t i = 0; i < large.size(); ++i)
        if (large[i] != static_cast<int>(i)) return false;
      return true;
    };
    rank r;
    const std::string said = tutti_test::words_of<tutti::error>([&] { (void)r.all.add(bytes_of(large), "x"); });
    if (!contains(said, "memory")) return 3;
    if (is_shared(large.data() + 5000) || !is_as_before()) return 4;
    if (!r.all.add(bytes_of(large).first(mib), "x")) return 5;
    return is_as_before() ? 0 : 6;
  });
  if (code == no_entry)
    MESSAGE("skipped: no process may enter a memory control group here");
  else
    CHECK(code == 0);
}

}  // namespace
