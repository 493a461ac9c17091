#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <tutti/async/engine.hpp>
#include <tutti/backend/driver.hpp>
#include <tutti/train/array_pool.hpp>
#include <utility>

namespace {

/// What a communicator allocates from.
struct heap {
  static constexpr bool has_heap = true;
  tutti::engine engine_;
  int made = 0, freed = 0;
  tutti::engine& engine() { return engine_; }
  std::byte* allocate(std::size_t bytes) {
    ++made;
    return new std::byte[bytes];
  }
  void deallocate(std::byte* at) {
    ++freed;
    delete[] at;
  }
};
struct allocating {
  std::shared_ptr<heap> from = std::make_shared<heap>();
  template <class T>
  tutti::mapped_array<T> allocate(std::size_t count) const {
    if (count == 99) throw std::bad_alloc();
    return {tutti::detail::allocate_shared(from, count * sizeof(T)), count};
  }
};

}  // namespace

TEST_CASE("array_pool: the smallest that is large enough comes back; else a new one replaces the largest") {
  allocating world;
  {
    tutti::train::array_pool<float> pool;
    auto a = pool.take(world, 10), b = pool.take(world, 20), c = pool.take(world, 15);
    const float *ten = a.data(), *twenty = b.data(), *fifteen = c.data();
    CHECK(pool.bytes() == 45 * sizeof(float));
    for (auto* array : {&b, &a, &c}) pool.give(std::move(*array));
    for (int round = 0; round < 3; ++round) {
      a = pool.take(world, 11);
      CHECK(a.data() == fifteen);
      b = pool.take(world, 12);
      CHECK(b.data() == twenty);
      c = pool.take(world, 10);
      CHECK(c.data() == ten);
      for (auto* array : {&a, &b, &c}) pool.give(std::move(*array));
    }
    CHECK_THROWS_AS((void)pool.take(world, 99), std::bad_alloc);
    CHECK(pool.bytes() == 25 * sizeof(float));  // without the 20, which went first
    CHECK(world.from->freed == 1);
    CHECK(pool.take(world, 21).size() == 21);  // never given back: it frees itself
    CHECK(pool.bytes() == 31 * sizeof(float));
    CHECK(world.from->made == 4);
    CHECK(world.from->freed == 3);
  }
  CHECK(world.from->freed == 4);
}
