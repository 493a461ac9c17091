#include <doctest/doctest.h>

#include <cstddef>
#include <span>
#include <vector>

#include <tutti/algo/message/prepared_operand.hpp>
#include <tutti/core/reduction.hpp>

#include <algo/links.hpp>

namespace {

const auto doubling = tutti::erase_type<int>(tutti::premul_sum(2));

TEST_CASE("prepared_operand: a routine sees a prepared copy, and the input stays as it was") {
  links::run(2, [](auto& me) {
    const std::vector<int> in{1, 2, 3};
    std::vector<int> out(3);
    const int* seen = nullptr;
    bool prepares = true;
    const auto way = [&](auto, const tutti::reduce_args& a) -> tutti::routine {
      seen = static_cast<const int*>(a.in.data);
      prepares = a.op.prepare != nullptr;
      tutti::copy_bytes(a.out.data, a.in.data, a.in.bytes());
      co_return;
    };
    me.run([&](auto link) {
      return tutti::algo::over_prepared_operand(link, tutti::reduce_args{links::in(in), links::out(out), doubling, 0},
                                                way);
    });
    links::expect(out == std::vector<int>{2, 4, 6}, "what the routine saw");
    links::expect(in == std::vector<int>{1, 2, 3} && seen != in.data(), "the input");
    links::expect(!prepares, "it would be prepared again");
  });
}

TEST_CASE("prepared_operand: into the output, which then is both") {
  const std::vector<int> in{1, 2, 3};
  std::vector<int> out(3);
  const auto a = tutti::algo::prepare_into_output(tutti::all_reduce_args{links::in(in), links::out(out), doubling});
  CHECK(out == std::vector<int>{2, 4, 6});
  CHECK(in == std::vector<int>{1, 2, 3});
  CHECK(a.in.data == out.data());
  CHECK((a.op.prepare == nullptr));
}

TEST_CASE("prepared_operand: buffers in place, each of them") {
  std::vector<int> one{1, 2}, none, two{5};
  const std::vector<std::span<int>> all{one, none, two};
  const tutti::buffer_list list{
      all.data(), all.size(), 3, sizeof(int), tutti::dtype::i32, [](const void* items, std::size_t i) noexcept {
        return std::as_writable_bytes(static_cast<const std::span<int>*>(items)[i]);
      }};
  const auto a = tutti::algo::prepare_in_place(tutti::all_reduce_coalesced_args{list, doubling});
  CHECK(one == std::vector<int>{2, 4});
  CHECK(two == std::vector<int>{10});
  CHECK((a.op.prepare == nullptr));
}

}  // namespace
