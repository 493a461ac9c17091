#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string_view>
#include <type_traits>

#include <tutti/core/options.hpp>

namespace {

using namespace std::chrono_literals;
using tutti::algorithm;
using tutti::call_options;

static_assert(std::is_aggregate_v<call_options> && std::is_trivially_copyable_v<call_options>);
static_assert(sizeof(algorithm) == 1 && !std::is_convertible_v<int, algorithm>);
static_assert(std::string_view{name(algorithm::ring)} == "ring");

TEST_CASE("call_options: by default the communicator decides") {
  constexpr call_options i;
  CHECK(i.timeout == 0ns);
  CHECK(i.via == algorithm::automatic);
  CHECK_FALSE(static_cast<bool>(i.stream));
}

TEST_CASE("call_options: one field can be named and the others keep their defaults") {
  constexpr call_options timeout{.timeout = 5s};
  CHECK(timeout.timeout == 5'000'000'000ns);
  CHECK(timeout.via == algorithm::automatic);
  constexpr call_options via{.via = algorithm::tree};
  CHECK(via.timeout == 0ns);
  CHECK(via.via == algorithm::tree);
  constexpr call_options stream{.stream = nullptr};
  CHECK(stream.stream.native() == nullptr);
}

TEST_CASE("algorithm: names are the enumerators") {
  CHECK(std::string_view{name(algorithm::automatic)} == "automatic");
  CHECK(std::string_view{name(algorithm::direct)} == "direct");
  CHECK(std::string_view{name(algorithm::ring)} == "ring");
  CHECK(std::string_view{name(algorithm::recursive_doubling)} == "recursive_doubling");
  CHECK(std::string_view{name(algorithm::tree)} == "tree");
  CHECK(std::string_view{name(algorithm::linear)} == "linear");
  CHECK(std::string_view{name(algorithm::pairwise)} == "pairwise");
  CHECK(std::string_view{name(algorithm::halving_doubling)} == "halving_doubling");
  CHECK(std::string_view{name(algorithm::bruck)} == "bruck");
  CHECK(std::string_view{name(algorithm::chain)} == "chain");
  CHECK(std::string_view{name(algorithm::hierarchical)} == "hierarchical");
  CHECK(tutti::algorithm_of("ring") == algorithm::ring);
  CHECK(tutti::algorithm_of("hierarchical") == algorithm::hierarchical);
  CHECK(tutti::algorithm_of("unknown") == algorithm::automatic);
  CHECK(tutti::algorithm_of("") == algorithm::automatic);
}

TEST_CASE("algorithm: a value from elsewhere has a name, too") {
  for (const unsigned value : {20u, 128u, 255u})
    CHECK(std::string_view{name(static_cast<algorithm>(value))} == "unknown");
}

}  // namespace
