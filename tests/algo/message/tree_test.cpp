#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/algo/message/tree.hpp>
#include <tutti/core/args.hpp>

#include <algo/links.hpp>
#include <support/grid.hpp>

namespace {

using links::expect;

TEST_CASE("tree: every rank gets the root's data, whoever the root is") {
  for (const int size : tutti_test::grid<int>({1, 2, 3, 5, 8, 9}, {2, 5}))
    links::run(size, [](auto& me) {
      for (int root = 0; root < me.size(); ++root)
        for (const std::size_t count : std::vector<std::size_t>{0, 1, 1000, 200000}) {
          std::vector<std::uint32_t> v(count, 0xffffffff);
          if (me.number() == root)
            for (std::size_t i = 0; i < count; ++i)
              v[i] = static_cast<std::uint32_t>(i * 3) + static_cast<unsigned>(root);
          me.run(
              [&](auto link) { return tutti::algo::tree_broadcast(link, tutti::broadcast_args{links::out(v), root}); });
          for (std::size_t i = 0; i < count; ++i) expect(v[i] == i * 3 + static_cast<unsigned>(root), "element", i);
        }
    });
}

TEST_CASE("tree: where only the root knows the size") {
  constexpr auto resize = [](void* container, std::uint64_t bytes) noexcept -> std::byte* {
    auto& v = *static_cast<std::vector<std::byte>*>(container);
    v.resize(bytes);
    return v.data();
  };
  for (const int size : {1, 2, 5})
    links::run(size, [resize](auto& me) {
      for (const std::size_t bytes : std::vector<std::size_t>{0, 1, 65536, 1000000}) {
        const int root = me.size() - 1;
        std::vector<std::byte> v(me.number() == root ? bytes : 17, me.number() == root ? std::byte{9} : std::byte{1});
        me.run([&](auto link) {
          return tutti::algo::tree_broadcast_sized(link,
                                                   tutti::broadcast_sized_args{&v, resize, v.data(), v.size(), root});
        });
        expect(v == std::vector<std::byte>(bytes, std::byte{9}), "another text of", v.size());
      }
    });
}

TEST_CASE("tree: a rank without memory for the data fails the operation everywhere") {
  std::vector<tutti::errc> seen(3);
  links::run(3, [&](auto& me) {
    std::vector<std::byte> v(me.number() == 0 ? 32 << 20 : 0);  // more than the links hold
    constexpr auto refuse = [](void*, std::uint64_t) noexcept -> std::byte* { return nullptr; };
    auto running = me.start([&](auto link) {
      return tutti::algo::tree_broadcast_sized(link, tutti::broadcast_sized_args{&v, refuse, v.data(), v.size(), 0});
    });
    seen[static_cast<std::size_t>(me.number())] = tutti::nothrow(std::move(running)).wait().code;
  });
  for (const auto code : seen) CHECK(code == tutti::errc::out_of_resources);
}

}  // namespace
