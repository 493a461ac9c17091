#include <doctest/doctest.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/backend/driver.hpp>
#include <tutti/backend/mapped_array.hpp>
#include <tutti/transport/threads.hpp>

namespace {

using tutti::mapped_array;

static_assert(!std::is_copy_constructible_v<mapped_array<int>> && !std::is_copy_assignable_v<mapped_array<int>>);
static_assert(std::is_nothrow_move_constructible_v<mapped_array<int>> &&
              std::is_nothrow_move_assignable_v<mapped_array<int>>);

/// Counts what is allocated and not yet freed.
class counting_transport : public tutti::threads_transport {
 public:
  using threads_transport::threads_transport;
  [[nodiscard]] std::byte* allocate(std::size_t bytes) {
    ++alive;
    return threads_transport::allocate(bytes);
  }
  void deallocate(std::byte* p) noexcept {
    --alive;
    threads_transport::deallocate(p);
  }
  static inline int alive = 0;
};

using driver = tutti::driver<counting_transport>;
std::shared_ptr<driver> alone() {
  return std::make_shared<driver>(std::make_shared<tutti::engine>(),
                                  std::make_unique<counting_transport>(std::make_shared<tutti::threads_hub>(1), 0));
}

template <class T>
mapped_array<T> elements(const std::shared_ptr<driver>& world, std::size_t count) {
  return {tutti::detail::allocate_shared(world, count * sizeof(T)), count};
}

TEST_CASE("mapped_array: holds zeroed elements, and frees them once") {
  const auto world = alone();
  {
    auto a = elements<int>(world, 100);
    CHECK(counting_transport::alive == 1);
    CHECK(a.size() == 100);
    CHECK(a.span().size() == 100);
    for (const int x : a) CHECK(x == 0);
    a[99] = 7;
    CHECK(a.end()[-1] == 7);
    auto b = std::move(a);
    CHECK(a.size() == 0);  // NOLINT: what is left behind
    CHECK(a.data() == nullptr);
    CHECK(b[99] == 7);
    b = elements<int>(world, 5);
    CHECK(counting_transport::alive == 1);
    mapped_array<int> c;
    c = std::move(b);
    CHECK(b.size() == 0);  // NOLINT: assigned from, too
    CHECK(b.data() == nullptr);
    CHECK(c.size() == 5);
  }
  CHECK(counting_transport::alive == 0);
}

TEST_CASE("mapped_array: keeps its world together until it is gone") {
  auto world = alone();
  const std::weak_ptr<driver> watched = world;
  auto a = elements<double>(world, 3);
  world.reset();
  CHECK_FALSE(watched.expired());
  a = {};
  CHECK(watched.expired());
  CHECK(counting_transport::alive == 0);
}

}  // namespace
