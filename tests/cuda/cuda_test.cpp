#include <doctest/doctest.h>

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <support/fakes/fake_cuda.hpp>
#include <tutti/communicator/elements.hpp>
#include <tutti/cuda/device_guard.hpp>
#include <tutti/cuda/device_memory.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/event_pool.hpp>
#include <tutti/cuda/stream.hpp>

namespace {

using event = tutti::cuda::basic_event<fake::cuda>;
using stream = tutti::cuda::basic_stream<fake::cuda>;
using pool = tutti::cuda::basic_event_pool<fake::cuda>;
using guard = tutti::cuda::basic_device_guard<fake::cuda>;
template <class T>
using memory = tutti::cuda::basic_device_memory<T, fake::cuda>;
using tutti::cuda::device_span;
using tutti::cuda::result;

static_assert(!std::copy_constructible<event> && std::movable<event> && !std::copy_constructible<stream>);
static_assert(tutti::detail::writable_elements<device_span<float>>);
static_assert(tutti::detail::elements<device_span<const float>>);
static_assert(!tutti::detail::writable_elements<device_span<const float>>);
static_assert(std::convertible_to<device_span<int>, device_span<const int>>);
static_assert(!std::convertible_to<device_span<const int>, device_span<int>>);
static_assert(std::convertible_to<stream, tutti::stream_ref>);

TEST_CASE("cuda: a stream waits for another's event, and the host asks") {
  fake::machine machine;
  {
    stream producer{1}, consumer{1};
    event mark{1};
    bool open = false, consumed = false;
    CHECK(mark.done());  // nothing recorded yet
    machine.launch(producer.native(), [&] { return open; });
    mark.record(producer.native());
    mark.join(consumer.native());
    machine.launch(consumer.native(), [&] { return consumed = true; });
    CHECK(!mark.done());
    CHECK(!producer.done());
    CHECK(!consumed);
    open = true;
    CHECK(mark.done());
    CHECK(consumed);
    CHECK(consumer.done());
    event moved = std::move(mark);
    CHECK(!mark);
    CHECK(moved.device() == 1);
  }
  CHECK(machine.left() == 0);
  CHECK(machine.misuses == 0);
}

TEST_CASE("cuda: what is made on a device leaves the thread on the one it had") {
  fake::machine machine;
  fake::current_device = 0;
  {
    const event e{2};
    const memory<double> m{3, 7};
    CHECK(fake::current_device == 0);
    CHECK(e.native()->device == 2);
    CHECK(m.span().size_bytes() == 56);
    const guard there{1};
    CHECK(fake::current_device == 1);
  }
  CHECK(fake::current_device == 0);
  CHECK_THROWS_AS(guard{9}, tutti::error);
  CHECK(machine.left() == 0);
}

TEST_CASE("cuda: a pool makes as many events as are out at once") {
  fake::machine machine;
  {
    pool events{0};
    for (int i = 0; i < 50; ++i) {
      event a = events.acquire(), b = events.acquire();
      events.release(std::move(a));
      events.release(std::move(b));
      events.release(event{});  // nothing
    }
    CHECK(events.made() == 2);
    machine.fail("cudaEventCreateWithFlags", {2});
    event a = events.acquire(), b = events.acquire();
    CHECK_THROWS_AS((void)events.acquire(), tutti::error);
    CHECK(events.made() == 2);
  }
  CHECK(machine.left() == 0);
}

TEST_CASE("cuda: errors say which call failed where, and what to do") {
  fake::machine machine;
  machine.fail("cudaEventCreateWithFlags", {700});
  try {
    const event e{2};
    FAIL("no error");
  } catch (const tutti::error& e) {
    CHECK(e.kind() == tutti::errc::device);
    CHECK(e.cause().detail == 700);
    CHECK(std::string(e.what()).find(
              "cudaEventCreateWithFlags failed on device 2: cudaErrorIllegalAddress (an illegal ") == 0);
    CHECK(std::string(e.what()).find("compute-sanitizer") != std::string::npos);
  }
  CHECK(tutti::cuda::status_of(result::success).ok());
  CHECK(tutti::cuda::status_of(result::out_of_memory).code == tutti::errc::out_of_resources);
  const auto words = [](result r) { return tutti::cuda::describe<fake::cuda>(r, "f", 0); };
  CHECK(words(result::no_device).find("CUDA_VISIBLE_DEVICES") != std::string::npos);
  CHECK(words(result::insufficient_driver).find("driver") != std::string::npos);
  CHECK(words(result{906}).find("graph") != std::string::npos);
}

TEST_CASE("cuda: spans of device memory are cut without being touched") {
  const device_span<const float> none;
  CHECK(none.empty());
  float* const somewhere = reinterpret_cast<float*>(std::uintptr_t{4096});
  const device_span<float> s{somewhere, 10};
  CHECK(s.subspan(2, 3).data() == somewhere + 2);
  CHECK(s.first(4).size() == 4);
  CHECK(s.end() - s.begin() == 10);
}

}  // namespace
