#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include <tutti/os/shm_mapping.hpp>

namespace {

using tutti::os::shm_mapping;

constexpr std::size_t bytes = 4096;

shm_mapping fresh() {
  return {::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), bytes};
}
bool mapped(std::byte* p) { return ::msync(p, bytes, MS_ASYNC) == 0; }

}  // namespace

TEST_CASE("shm_mapping: memory has one owner, and is unmapped with it") {
  std::byte *first = nullptr, *second = nullptr;
  {
    shm_mapping a = fresh(), b = fresh();
    first = a.data(), second = b.data();
    CHECK((a && a.bytes() == bytes && a.span().size() == bytes));
    a.span().back() = std::byte{7};
    shm_mapping c{std::move(a)};
    CHECK((!a && a.span().empty()));
    CHECK((c.data() == first && c.span().back() == std::byte{7}));
    b = std::move(c);
    CHECK(!c);
    CHECK(b.data() == first);
    CHECK(!mapped(second));
    auto& same = b;
    b = std::move(same);
    CHECK((b.data() == first && mapped(first)));
  }
  CHECK(!mapped(first));
}

TEST_CASE("shm_mapping: it can be unmapped at any time, once") {
  shm_mapping a = fresh();
  std::byte* const p = a.data();
  a.unmap();
  CHECK((!a && a.bytes() == 0 && !mapped(p)));
  a.unmap();
  CHECK(!shm_mapping{});
}
