#include <doctest/doctest.h>

#include <array>
#include <list>
#include <span>
#include <string>
#include <vector>

#include <tutti/communicator/elements.hpp>

// What a communicator takes is decided by these; most of the test is that it compiles.

namespace {

using namespace tutti::detail;

struct largest {
  char bytes[4096];
};
struct too_large {
  char bytes[4097];
};
struct alignas(128) too_aligned {
  char byte;
};
struct not_trivial {
  std::string text;
};
static_assert(transferable<int> && transferable<largest> && !transferable<too_large> && !transferable<too_aligned> &&
              !transferable<not_trivial> && !transferable<int*>);

static_assert(elements<std::vector<int>&> && elements<const std::vector<int>&> && elements<std::span<int>> &&
              elements<std::array<int, 3>&> && elements<int (&)[3]>);
static_assert(!elements<std::vector<int>>, "a temporary is gone before the operation ends");
static_assert(!elements<std::list<int>&> && !elements<std::vector<bool>&> && !elements<int&>);

static_assert(writable_elements<std::span<int>> && !writable_elements<std::span<const int>> &&
              !writable_elements<const std::vector<int>&>);

struct small {
  double a, b, c, d, e, f, g, h;
};
static_assert(value<int> && value<small> && !value<largest> && !value<std::array<int, 2>>);
static_assert(same_element<std::vector<int>&, std::span<const int>> &&
              !same_element<std::vector<int>&, std::vector<float>&>);
static_assert(list_of_spans<std::vector<std::span<int>>&> && !list_of_spans<std::vector<std::span<const int>>&> &&
              !list_of_spans<std::vector<int>&>);

TEST_CASE("elements: every range becomes a span of what it holds") {
  std::vector<int> v{1, 2, 3};
  int raw[2] = {4, 5};
  CHECK(span_of(v).data() == v.data());
  CHECK(span_of(v).size() == 3);
  CHECK(read_only(raw).size() == 2);
  CHECK(read_only(raw)[1] == 5);
  static_assert(std::is_same_v<decltype(read_only(v))::element_type, const int>);
}

}  // namespace
