#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include <tutti/algo/mismatch/other_length.hpp>
#include <tutti/algo/mismatch/signature_text.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/threads.hpp>

TEST_CASE("other_length: names both ranks by their numbers in the world, the call, and both lengths") {
  tutti::threads_transport link{std::make_shared<tutti::threads_hub>(1), 0};
  const tutti::group of{3, 0, 2, {5, 9}};
  std::array<float, 4> data{};
  const tutti::broadcast_args call{tutti::buffer{data.data(), data.size(), sizeof(float), tutti::dtype::f32}, 1};
  for (const std::size_t bytes : {std::size_t{40}, std::size_t{1} << 40}) {
    const tutti::status why = tutti::algo::detail::other_length(tutti::group_link{link, of, 41}, call, 1, bytes, 0, 16);
    CHECK(why.code == tutti::errc::mismatch);
    CHECK(why.peer == 9);
    CHECK(why.other == tutti::message_mismatch::finder_of(5));
    const auto odd = tutti::message_mismatch::in(why);
    CHECK(odd.bytes == (bytes == 40 ? 40 : tutti::message_mismatch::most_of_call));
    CHECK(odd.room == 16);
    CHECK(odd.number_near(40) == 41);
    CHECK(odd.sent == odd.expected);
    // Neither the root nor the reduction is told of calls that are the same.
    const auto short_id = static_cast<std::uint16_t>(odd.sent | tutti::algo::call_signature::plain_short_id);
    CHECK(tutti::algo::describe_short_id(short_id, std::numeric_limits<int>::max()) == "broadcast (float32)");
  }
}
