#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <tutti/algo/message/all_reduce.hpp>
#include <tutti/algo/selection/supported.hpp>

#include <algo/links.hpp>

namespace {

using links::expect;
using tutti::algorithm;

/// A link that counts what this rank sends to whom.
template <class L>
struct counting : L {
  std::map<int, std::size_t>* bytes;
  auto send(int peer, std::uint64_t step, std::span<const std::byte> out) const noexcept {
    (*bytes)[peer] += out.size();
    return L::send(peer, step, out);
  }
};

TEST_CASE("message all_reduce: the algorithm that is named is the one that runs") {
  links::run(4, [](auto& me) {
    constexpr std::size_t count = 400, whole = count * sizeof(std::int32_t);
    const int r = me.number(), right = (r + 1) % 4;
    using sent = std::map<int, std::size_t>;
    const auto sent_by = [&](algorithm via) {
      std::vector<std::int32_t> v(count, r + 1);
      sent bytes;
      me.run([&](auto link) {
        const tutti::all_reduce_args a{links::in(v), links::out(v), tutti::erase_type<std::int32_t>(tutti::sum)};
        return tutti::algo::run_messages(counting<decltype(link)>{link, &bytes}, a, via);
      });
      expect(v == std::vector<std::int32_t>(count, 10), std::string("the sum by ") + tutti::name(via));
      return bytes;
    };
    const sent ring{{right, 2 * 3 * whole / 4}}, doubling{{r ^ 1, whole}, {r ^ 2, whole}},
        halving{{r ^ 1, whole}, {r ^ 2, whole / 2}};
    sent pairs;  // a block to each, and those around the ring
    for (int peer = 0; peer < 4; ++peer)
      if (peer != r) pairs[peer] = whole / 4;
    pairs[right] += 3 * whole / 4;
    expect(sent_by(algorithm::ring) == ring, "not a ring");
    expect(sent_by(algorithm::recursive_doubling) == doubling, "not recursive doubling");
    expect(sent_by(algorithm::halving_doubling) == halving, "not halving and doubling");
    expect(sent_by(algorithm::pairwise) == pairs, "not pairwise");
    expect(sent_by(algorithm::automatic) == doubling, "what is not named");
  });
}

}  // namespace
