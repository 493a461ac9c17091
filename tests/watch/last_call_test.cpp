#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <source_location>
#include <string>

#include <tutti/os/process.hpp>
#include <tutti/watch/flight_recorder.hpp>
#include <tutti/watch/last_call.hpp>

#include "support/temporary_directory.hpp"

namespace {

using namespace tutti::watch;
using tutti::dtype;

std::uint64_t issue(flight_recorder& r, const issued_operation& o) {
  return r.issue(o, std::source_location::current());
}
std::string text_of(const flight_recorder& r) {
  return last_call_text(copy_of(r.memory(), tutti::os::read_clocks(), true));
}

TEST_CASE("last_call: the operation in flight, else the last one, with its place and what it was called with") {
  flight_recorder r{0, 3};
  CHECK(text_of(r) == "it has made no call");
  const auto reduce = issue(r, issued_operation{call_kind::of("all_reduce"), 1000, 4, dtype::f32}
                                   .reduction(tutti::reduction_kind::max)
                                   .place(20, 0, tutti::algorithm::ring));
  const std::string in_it = text_of(r);
  CAPTURE(in_it);
  CHECK(in_it.starts_with("it has been in all_reduce #20 (last_call_test.cpp:"));
  CHECK(in_it.find(", 1000 x float32, max) for ") != std::string::npos);
  r.ended(reduce, {});
  const auto receive =
      issue(r, issued_operation{call_kind::of("recv"), 8, 1, dtype::u8}.other(2).tag(7).place(3, 0, {}));
  issue(r, issued_operation{call_kind::of("broadcast"), 8, 1, dtype::u8}.other(1).place(21, 5, {}));
  CHECK(text_of(r).find("8 x uint8, from rank 2, tag 7) for ") != std::string::npos);
  r.ended(receive, {});
  CHECK(text_of(r).starts_with("it has been in broadcast #21 of split 5 (last_call_test.cpp:"));
  CHECK(text_of(r).find(", root 1) for ") != std::string::npos);
  const flight f = copy_of(r.memory(), tutti::os::read_clocks(), true);
  CHECK(last_collective(f, 0) == 20);
  CHECK(last_collective(f, 5) == 21);
  CHECK(last_collective(f, 6) == 0);
  r.ended(receive + 1, {});
  const std::string after = text_of(r);
  CAPTURE(after);
  CHECK(after.starts_with("its last call, broadcast #21 of split 5 ("));
  CHECK(after.ends_with(" ago"));
}

TEST_CASE("last_call: the recording of another rank is found in its process, and in the folder") {
  const tutti_test::temporary_directory home;
  for (const std::string& folder : {std::string(), home.path().string()}) {
    CAPTURE(folder);
    flight_recorder mine{0, 3}, theirs{1, 3}, of_another_world{1, 3}, nowhere{2, 3};
    mine.keep_in({folder, "job", 42, 1});
    of_another_world.keep_in({"", "job", 43, 1});
    theirs.keep_in({folder, "job", 42, 1});
    theirs.ended_at_once(issue(theirs, issued_operation{call_kind::of("barrier"), 0, 1, dtype::u8}.place(9, 0, {})));
    const auto f = mine.recording_of(1, ::getpid());
    REQUIRE(f);
    CHECK(f->rank == 1);
    CHECK(f->pid == ::getpid());
    CHECK(last_call_text(*f).starts_with("its last call, barrier #9 (last_call_test.cpp:"));
    CHECK_FALSE(mine.recording_of(2, ::getpid()).has_value());
    CHECK(mine.recording_of(1, 0).has_value() == !folder.empty());  // of a process that cannot be seen
    CHECK_FALSE(mine.recording_of(2, 1).has_value());
  }
}

TEST_CASE("last_call: the recording of a rank that has joined another number of worlds is found in the folder") {
  const tutti_test::temporary_directory home;
  const std::string folder = home.path().string();
  flight_recorder mine{0, 2}, theirs{1, 2}, of_another_world{1, 2};
  mine.keep_in({folder, "job", 42, 1});
  of_another_world.keep_in({folder, "job", 43, 1});
  theirs.keep_in({folder, "job", 42, 3});
  const auto f = mine.recording_of(1, 0);
  REQUIRE(f);
  CHECK(f->number == 3);
  CHECK(f->world == 42);
}

}  // namespace
