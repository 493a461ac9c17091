#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include <tutti/core/reduction/raw_reduction.hpp>

namespace {

using bytes = std::vector<unsigned char>;

/// a, b -> a * 10 + b in each byte: not commutative, so that the order shows.
void digits(const void* in, void* inout, std::size_t element, std::size_t n) {
  CHECK(n % element == 0);
  for (std::size_t i = 0; i < n; ++i) {
    auto& a = static_cast<unsigned char*>(inout)[i];
    a = static_cast<unsigned char>(a * 10 + static_cast<const unsigned char*>(in)[i]);
  }
}

TEST_CASE("raw_reduction: folds ranks from the lowest to the highest, into any of the inputs") {
  for (const std::size_t element : std::initializer_list<std::size_t>{1, 3, 12, 4096}) {
    const auto r = tutti::erase_type(tutti::raw_reduction{&digits, element});
    CHECK(r.kind == tutti::reduction_kind::raw);
    for (const std::size_t count : std::initializer_list<std::size_t>{0, 1, 2, 1000}) {
      for (int into = -1; into < 3; ++into) {
        std::array<bytes, 3> in{bytes(element * count, 1), bytes(element * count, 2), bytes(element * count, 0)};
        bytes apart(element * count), second(element * count);
        const void* const inputs[] = {in[0].data(), in[1].data(), in[2].data()};
        bytes& out = into < 0 ? apart : in[static_cast<std::size_t>(into)];
        void* const outputs[] = {out.data(), second.data()};
        r.fold_all_to(inputs, 3, outputs, 2, count, tutti::stores::ordinary, r.context.data());
        CHECK(out == bytes(element * count, 120));
        CHECK(second == out);
      }
      bytes left(element * count, 3);
      const bytes right(element * count, 4);
      r.fold(right.data(), left.data(), count, r.context.data());
      CHECK(left == bytes(element * count, 34));
    }
  }
}

TEST_CASE("raw_reduction: knows what cannot be called") {
  CHECK(tutti::raw_reduction{&digits, 1}.valid());
  CHECK(tutti::raw_reduction{&digits, 4096}.valid());
  CHECK_FALSE(tutti::raw_reduction{&digits, 4097}.valid());
  CHECK_FALSE(tutti::raw_reduction{&digits, 0}.valid());
  CHECK_FALSE(tutti::raw_reduction{nullptr, 4}.valid());
}

}  // namespace
