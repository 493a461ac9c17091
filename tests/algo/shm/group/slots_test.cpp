#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/algo/shm/group/slots.hpp>

namespace {

using tutti::algo::shm_slots;

/// The slots of two ranks in memory of this process.
struct two_ranks : shm_slots {
  two_ranks() {
    for (auto& part : memory) add_part(part.data());
  }
  std::array<std::vector<std::byte>, 2> memory{std::vector<std::byte>(part_bytes), std::vector<std::byte>(part_bytes)};
};

TEST_CASE("slots: two for each rank, in turn, inside of its part") {
  const two_ranks s;
  for (int rank = 0; rank < 2; ++rank) {
    const auto& part = s.memory[static_cast<std::size_t>(rank)];
    CHECK(s.slot(rank, 0) >= part.data() + tutti::algo::shm_group_memory::slots_at);
    CHECK(s.slot(rank, 1) == s.slot(rank, 0) + shm_slots::slot_bytes);
    CHECK(s.slot(rank, 1) + shm_slots::slot_bytes <= part.data() + part.size());
    CHECK(s.slot(rank, 2) == s.slot(rank, 0));
  }
}

TEST_CASE("slots: messages of a few lines keep to one place, longer ones walk through the slot and come back") {
  const two_ranks s;
  for (std::uint64_t step = 0; step < 8; ++step) CHECK(s.slot(0, step, 2048) == s.slot(0, step % 2));
  constexpr std::size_t bytes = 5000, place = 8192, places = shm_slots::slot_bytes / place;
  for (std::uint64_t step = 0; step < 4 * places; ++step)
    CHECK(s.slot(0, step, bytes) == s.slot(0, step % 2) + step / 2 % places * place);
}

TEST_CASE("slots: what is staged arrives, by either kind of stores") {
  two_ranks s;
  std::vector<std::byte> message(shm_slots::slot_bytes);
  for (std::size_t i = 0; i < message.size(); ++i) message[i] = static_cast<std::byte>(i * 7 + i / 256);
  for (const auto how : {tutti::stores::ordinary, tutti::stores::streaming}) {
    s.use({.how = how});
    CHECK(s.staging_method().how == how);
    for (const std::size_t bytes : {std::size_t{1}, std::size_t{4097}, message.size()}) {
      std::byte* const to = s.slot(1, 3);
      s.stage(to, message.data(), bytes);
      CHECK(std::vector<std::byte>(to, to + bytes) == std::vector<std::byte>(message.data(), message.data() + bytes));
    }
  }
}

}  // namespace
