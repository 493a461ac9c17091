#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <random>
#include <span>
#include <tutti/train/permutation.hpp>
#include <vector>

#include "train/golden/sampler.hpp"

TEST_CASE("permutation: bit for bit torch.randperm, of which the lower 32 bits of the seed count") {
  for (const auto& p : golden::permutations) {
    CAPTURE(p.count);
    CAPTURE(p.seed);
    std::vector<std::uint64_t> numbers(p.count);
    tutti::train::permute(std::span{numbers}, p.seed);
    CHECK(numbers == p.numbers);
    std::vector<std::uint16_t> narrow(p.count);
    tutti::train::permute(std::span{narrow}, p.seed + (std::uint64_t{3} << 32));
    CHECK(std::equal(narrow.begin(), narrow.end(), p.numbers.begin(), p.numbers.end()));
  }
}

TEST_CASE("permutation: of a span of a fixed length") {
  std::array<int, 10> numbers{};
  std::vector<int> same(10);
  tutti::train::permute(std::span{numbers}, 1);
  tutti::train::permute(std::span{same}, 1);
  CHECK(std::ranges::equal(numbers, same));
}

TEST_CASE("permutation: of 100003 numbers, by the hash of what torch gave") {
  std::vector<std::uint32_t> numbers(100003);
  tutti::train::permute(std::span{numbers}, 2024);
  std::uint64_t hash = 0;
  for (const std::uint64_t x : numbers) hash = hash * 31 + x;
  CHECK(hash == golden::hash_of_100003_by_2024);
}

TEST_CASE("permutation: that of very many numbers has each once, and takes two draws for each") {
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{1000}}) {
    std::vector<std::uint32_t> numbers(n), sorted(n);
    std::mt19937 random(7), count(7);
    tutti::train::detail::shuffle_many(std::span{numbers}, random);
    count.discard(2 * n);
    CHECK(random() == count());
    std::iota(sorted.begin(), sorted.end(), 0u);
    CHECK((n < 3 || numbers != sorted));
    std::sort(numbers.begin(), numbers.end());
    CHECK(numbers == sorted);
  }
}
