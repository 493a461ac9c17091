#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <tutti/bootstrap/threads.hpp>
#include <tutti/transport/threads.hpp>

#include <communicator/ranks.hpp>

namespace {

using ranks::expect;

constexpr std::size_t eager = 65536;

/// Rank 1 has sent more than its ring of 1 MiB holds and then does nothing: on rank 0 message 15 is there in part.
template <class F>
void with_half_a_message(F receive) {
  ranks::gate sent, go_on;
  tutti::run_threads(2, [&](auto& world) {
    constexpr std::uint32_t messages = 40;
    if (world.rank() == 1) {
      std::vector<std::vector<std::uint8_t>> data;
      std::vector<tutti::op> sends;
      for (std::uint32_t i = 0; i < messages; ++i) data.emplace_back(eager, static_cast<std::uint8_t>(i));
      data.emplace_back(10, std::uint8_t{99});
      for (std::uint32_t i = 0; i < messages; ++i) sends.push_back(world.send(data[i], 0, i));
      sends.push_back(world.send(data[messages], 0, 15));  // a small one with the tag of the one that is cut
      sent.open();
      go_on.pass();
      for (auto& s : sends) s.wait();
    } else {
      sent.pass();
      while (world.engine().poll()) continue;
      receive(world, go_on, messages);
    }
    world.barrier().wait();
  });
}

template <class World>
void receive_one(World& world, std::uint32_t tag) {
  std::vector<std::uint8_t> in(eager);
  world.recv(in, 1, tag).wait();
  expect(in == std::vector<std::uint8_t>(eager, static_cast<std::uint8_t>(tag)), "message", tag);
}

TEST_CASE("messaging: receiving one while another is half there, in any order") {
  with_half_a_message([](auto& world, ranks::gate& go_on, std::uint32_t messages) {
    for (const std::uint32_t tag : {12u, 1u, 8u, 14u, 0u})
      receive_one(world, tag);  // from the middle and from the ends
    go_on.open();
    for (std::uint32_t tag = messages; tag-- > 0;)
      if (tag != 12 && tag != 1 && tag != 8 && tag != 14 && tag != 0) receive_one(world, tag);
    std::vector<std::uint8_t> last(10);
    world.recv(last, 1, 15).wait();
    expect(last == std::vector<std::uint8_t>(10, 99), "the last message");
  });
}

TEST_CASE("messaging: a receive beside one whose message is half there waits for the next of its tag") {
  with_half_a_message([](auto& world, ranks::gate& go_on, std::uint32_t messages) {
    std::vector<std::uint8_t> big(eager), small(10);
    auto first = world.recv(big, 1, 15);
    auto second = world.recv(small, 1, 15);
    go_on.open();
    first.wait();
    second.wait();
    expect(big == std::vector<std::uint8_t>(eager, 15) && small == std::vector<std::uint8_t>(10, 99), "mixed up");
    for (std::uint32_t tag = 0; tag < messages; ++tag)
      if (tag != 15) receive_one(world, tag);
  });
}

TEST_CASE("messaging: who receives in a world of one, and from whom it cannot be") {
  auto alone = tutti::join(std::make_shared<tutti::threads_hub>(1), 0);
  std::vector<int> v(3);
  const auto complaint = [](auto call) { return ranks::words_of<tutti::usage_error>(call); };
  CHECK(complaint([&] { alone.send(v, 0).wait(); }) == "send: a rank cannot exchange messages with itself");
  CHECK(complaint([&] { (void)alone.recv_any(v).wait(); }) ==
        "recv_any: this communicator has no other rank to receive from");
}

TEST_CASE("messaging: another count than was sent is an error of the receiver") {
  std::string words;
  tutti::run_threads(2, [&](auto& world) {
    std::vector<int> v(world.rank() == 0 ? 3 : 4);
    if (world.rank() == 0)
      static_cast<void>(tutti::nothrow(world.send(v, 1, 5)).wait());
    else
      words = ranks::words_of<tutti::error>([&] { world.recv(v, 0, 5).wait(); });
  });
  CHECK(words.find("recv #1 (messaging_test.cpp") == 0);
  CHECK(ranks::contains(words, ", 4 x int32, from rank 0, tag 5) failed: "));
}

/// What rank 1 is told in a group that it is rank 0 of, where nobody answers.
template <class F>
std::string unanswered(F start) {
  std::string words;
  tutti::run_threads(3, [&](auto& world) {
    auto group = world.split(world.rank() == 0 ? 1 : 0);
    if (world.rank() == 1)
      words = ranks::error_of(start(group))->what();
    else
      static_cast<void>(tutti::nothrow(world.barrier()).wait());
  });
  return words;
}

TEST_CASE("messaging: errors name the other rank, as in the world, and the tag") {
  using namespace std::chrono_literals;
  std::vector<int> few(2), many(100000);
  const auto in_time = ranks::within(30ms);
  CHECK(ranks::contains(unanswered([&](auto& group) { return group.send(many, 1, 7, in_time); }),
                        ", 100000 x int32, to rank 2, tag 7) timed out after 30 ms"));
  CHECK(ranks::contains(unanswered([&](auto& group) { return group.recv(few, 1, 4000000000, in_time); }),
                        ", 2 x int32, from rank 2, tag 4000000000) timed out after 30 ms"));
  CHECK(ranks::contains(unanswered([&](auto& group) { return group.recv_any(few, 3, in_time); }),
                        ", 2 x int32, tag 3) timed out after 30 ms: waiting for a message with this tag from any rank; "
                        "has one been sent? The communicator"));
  CHECK_FALSE(ranks::contains(unanswered([&](auto& group) { return group.barrier(in_time); }), "tag"));
}

TEST_CASE("messaging: who waits for a rank that has left is told for which message") {
  std::string words;
  tutti::run_threads(2, [&](auto& world) {
    std::vector<int> v(2);
    if (world.rank() == 0) words = ranks::error_of(world.recv(v, 1))->what();
  });
  CHECK(ranks::contains(words, ", 2 x int32, from rank 1, tag 0) failed: "));
}

}  // namespace
