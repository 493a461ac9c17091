#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

#include <tutti/algo/shm/claim_choice.hpp>

using tutti::stores;
using tutti::algo::claim_choice;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20, piece = std::size_t{256} << 10;

/// Folds so many pieces of `bytes` by a kernel where a claiming one takes `claimed` and another `unclaimed`
/// nanoseconds; how many claimed.
int fold(claim_choice& c, int pieces, std::size_t bytes, std::uint64_t claimed, std::uint64_t unclaimed,
         std::uintptr_t kernel = 1) {
  int claims = 0;
  for (int i = 0; i < pieces; ++i) {
    const stores how = c.next({kernel, bytes}, stores::own_first);
    CHECK((how == stores::own_first || how == stores::unclaimed));
    claims += how == stores::own_first ? 1 : 0;
    c.took({kernel, bytes}, piece, how == stores::own_first ? claimed : unclaimed);
  }
  return claims;
}

}  // namespace

TEST_CASE("claim_choice: both ways are tried, then the faster one is kept, and the other looked at now and then") {
  claim_choice near, far;
  CHECK(fold(near, 16, 4 * mib, 300, 200) == 8);
  CHECK(fold(near, 320, 4 * mib, 300, 200) == 10);
  CHECK(fold(far, 16, 4 * mib, 200, 300) == 8);
  CHECK(fold(far, 320, 4 * mib, 200, 300) == 310);
}

TEST_CASE("claim_choice: it follows cores that move") {
  claim_choice c;
  fold(c, 64, 4 * mib, 300, 200);
  fold(c, 320, 4 * mib, 200, 300);
  CHECK(fold(c, 320, 4 * mib, 200, 300) == 310);
}

TEST_CASE("claim_choice: lengths are apart, up to those that no cache holds") {
  claim_choice c;
  fold(c, 16, mib, 300, 200);
  CHECK(fold(c, 16, 8 * mib, 200, 300) == 8);  // not known from 1 MiB
  CHECK(fold(c, 32, mib, 300, 200) == 1);
  CHECK(fold(c, 32, 8 * mib, 200, 300) == 31);
  fold(c, 16, std::size_t{1} << 33, 300, 200);
  CHECK(fold(c, 32, std::size_t{1} << 34, 300, 200) == 1);
}

TEST_CASE("claim_choice: kernels are apart, also where they take turns") {
  claim_choice c;
  for (int i = 0; i < 400; ++i) {
    fold(c, 1, 4 * mib, 200, 300, 0x401000);
    fold(c, 1, 4 * mib, 30'000, 20'000, 0x402340);
  }
  CHECK(fold(c, 32, 4 * mib, 200, 300, 0x401000) == 31);
  CHECK(fold(c, 32, 4 * mib, 30'000, 20'000, 0x402340) == 1);
}

TEST_CASE("claim_choice: neither the first pieces, whose pages there are not yet, nor one that was held up decide") {
  claim_choice c;
  fold(c, 2, 4 * mib, 5'000'000, 40'000);
  fold(c, 14, 4 * mib, 20'000, 30'000);
  CHECK(fold(c, 32, 4 * mib, 20'000, 30'000) == 31);
  c.took({1, 4 * mib}, piece, 9'000'000);  // 48 came before, so that this one claimed, as do all of the next 32 but one
  CHECK(fold(c, 32, 4 * mib, 20'000, 30'000) == 31);
}
