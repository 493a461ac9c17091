#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include <tutti/core/args.hpp>

namespace {

using tutti::algorithm;

// A collective is a value: it is copied into the slab of operations and outlives the call that made it.
template <class Args>
constexpr bool is_a_value =
    std::is_trivially_copyable_v<Args> && std::is_aggregate_v<Args> && std::is_nothrow_default_constructible_v<Args>;
static_assert(is_a_value<tutti::barrier_args> && is_a_value<tutti::all_reduce_args> &&
              is_a_value<tutti::broadcast_args> && is_a_value<tutti::broadcast_sized_args> &&
              is_a_value<tutti::reduce_scatter_args> && is_a_value<tutti::all_gather_args> &&
              is_a_value<tutti::send_args> && is_a_value<tutti::recv_args>);

static_assert(std::string_view{tutti::barrier_args::name} == "barrier");
static_assert(std::string_view{tutti::all_reduce_args::name} == "all_reduce");
static_assert(std::string_view{tutti::broadcast_args::name} == "broadcast");
static_assert(std::string_view{tutti::broadcast_sized_args::name} == "broadcast");
static_assert(std::string_view{tutti::reduce_scatter_args::name} == "reduce_scatter");
static_assert(std::string_view{tutti::all_gather_args::name} == "all_gather");
static_assert(std::string_view{tutti::send_args::name} == "send");
static_assert(std::string_view{tutti::recv_args::name} == "recv");

// What is only read must not be writable through the arguments.
static_assert(std::is_same_v<decltype(tutti::all_reduce_args::in), tutti::const_buffer>);
static_assert(std::is_same_v<decltype(tutti::reduce_scatter_args::in), tutti::const_buffer>);
static_assert(std::is_same_v<decltype(tutti::all_gather_args::in), tutti::const_buffer>);
static_assert(std::is_same_v<decltype(tutti::send_args::data), tutti::const_buffer>);

TEST_CASE("args: defaults are empty and leave the algorithm to the library") {
  const tutti::all_reduce_args reduce{};
  CHECK(reduce.in.count == 0);
  CHECK(reduce.out.data == nullptr);
  CHECK_FALSE(static_cast<bool>(reduce.op.fold));
  CHECK_FALSE(static_cast<bool>(reduce.op.fold_all_to));
  CHECK_FALSE(static_cast<bool>(reduce.op.finish));
  CHECK(reduce.via == algorithm::automatic);
  CHECK(tutti::broadcast_args{}.root == 0);
  CHECK(tutti::broadcast_args{}.via == algorithm::automatic);
  CHECK(tutti::reduce_scatter_args{}.via == algorithm::automatic);
  CHECK(tutti::all_gather_args{}.via == algorithm::automatic);
  CHECK_FALSE(static_cast<bool>(tutti::broadcast_sized_args{}.resize));
  CHECK(tutti::broadcast_sized_args{}.bytes == 0);
  CHECK(tutti::send_args{}.tag == 0);
  CHECK(tutti::recv_args{}.peer == 0);
}

TEST_CASE("args: a copy is complete without the original") {
  std::array<int, 3> in{1, 2, 3}, out{};
  tutti::all_reduce_args copy;
  {
    const int offset = in[0] * 100;
    const auto op = [offset](int a, int b) { return a + b + offset; };
    const tutti::all_reduce_args original{.in = tutti::erase_type(std::span<const int>{in}),
                                          .out = tutti::erase_type(std::span<int>{out}),
                                          .op = tutti::erase_type<int>(op),
                                          .via = algorithm::ring};
    copy = original;
  }
  CHECK(copy.via == algorithm::ring);
  CHECK(copy.in.count == 3);
  const std::array<const void*, 2> inputs{copy.in.data, copy.in.data};
  copy.op.fold_all(inputs.data(), 2, copy.out.data, copy.out.count, copy.op.context.data());
  CHECK(out == std::array{102, 104, 106});
}

TEST_CASE("args: a sized broadcast grows any container through one function") {
  std::vector<std::uint16_t> container;
  const tutti::broadcast_sized_args args{.container = &container,
                                         .resize = [](void* c, std::uint64_t bytes) noexcept -> std::byte* {
                                           auto& v = *static_cast<std::vector<std::uint16_t>*>(c);
                                           try {
                                             v.resize(static_cast<std::size_t>(bytes / sizeof(std::uint16_t)));
                                           } catch (const std::bad_alloc&) {
                                             return nullptr;
                                           }
                                           return reinterpret_cast<std::byte*>(v.data());
                                         }};
  std::byte* const storage = args.resize(args.container, 10);
  CHECK(container.size() == 5);
  CHECK(storage == reinterpret_cast<std::byte*>(container.data()));
}

}  // namespace
