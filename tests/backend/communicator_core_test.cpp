#include <doctest/doctest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <thread>
#include <utility>

#include <tutti/algo/decision.hpp>
#include <tutti/async/engine.hpp>
#include <tutti/async/op.hpp>
#include <tutti/backend/communicator_core.hpp>
#include <tutti/core/args.hpp>
#include <tutti/impl/backend/communicator_core.hpp>

namespace {

using tutti::errc;
using tutti::loss;
using tutti::status;

/// Rank 1 of 4, whose operations end when the test says so.
struct stub {
  struct record {
    tutti::op_state* started = nullptr;
    tutti::status aborted{};
    std::uint64_t sequence = 0;
    std::string told;
    bool by_poll = false;  ///< an abort ends operations in the next poll, as transports do
    std::function<void()> while_described = [] {};
  };
  static constexpr tutti::space where = tutti::space::host;
  std::shared_ptr<record> r;

  [[nodiscard]] int rank() const noexcept { return 1; }
  [[nodiscard]] int size() const noexcept { return 4; }
  [[nodiscard]] int world_rank() const noexcept { return 11; }
  void start(const tutti::barrier_args&, tutti::op_state& s) noexcept {
    s.info.sequence = ++r->sequence;
    r->started = &s;
  }
  void abort(tutti::status why) noexcept {
    r->aborted = why;
    if (r->started && !r->by_poll) std::exchange(r->started, nullptr)->complete(why);
  }
  [[nodiscard]] tutti::status failure() const noexcept { return r->aborted; }
  [[nodiscard]] bool busy(const tutti::op_owner&) const noexcept { return r->started != nullptr; }
  [[nodiscard]] std::string describe(int rank) const {
    r->while_described();
    return "rank " + std::to_string(rank) + r->told;
  }
};
static_assert(tutti::backend<stub>);

struct issued {
  std::shared_ptr<stub::record> record = std::make_shared<stub::record>();
  std::shared_ptr<tutti::engine> home = std::make_shared<tutti::engine>();
  tutti::communicator_core<stub>* communicator_core =
      new tutti::communicator_core<stub>(stub{record}, home, std::chrono::seconds(9));

  tutti::op start(tutti::duration timeout = {}) {
    return tutti::op{communicator_core->issue(7, tutti::dtype::f32, timeout, std::source_location::current(),
                                              [](tutti::op_state&) { return tutti::barrier_args{}; })};
  }
  void end(tutti::status how) {
    auto guard = home->lock();
    std::exchange(record->started, nullptr)->complete(how);
  }
  std::string words(tutti::status how) {
    tutti::op running = start();
    end(how);
    try {
      running.wait();
    } catch (const tutti::error& e) {
      CHECK(e.rank() == 1);
      CHECK(e.collective() == std::string("barrier"));
      return e.what();
    }
    return "(nothing was thrown)";
  }
};

/// Sleeps until it is woken, whatever the engine asks for.
class sleeper final : public tutti::progress_source {
 public:
  sleeper(tutti::engine& home, stub::record& r) : home_(home), record_(r) { home_.attach(*this); }
  sleeper(const sleeper&) = delete;
  sleeper& operator=(const sleeper&) = delete;
  ~sleeper() { home_.detach(*this); }

  bool poll() noexcept override {
    if (record_.aborted.ok() || !record_.started) return false;
    std::exchange(record_.started, nullptr)->complete(record_.aborted);
    return true;
  }
  void tick(tutti::deadline) noexcept override {}
  void prepare_park() noexcept override {}
  void park(tutti::duration) noexcept override {
    std::unique_lock guard(mutex_);
    asleep_ = true;
    changed_.notify_all();
    in_time_ = changed_.wait_for(guard, std::chrono::seconds(20), [this] { return woken_; });
  }
  void finish_park() noexcept override {}
  void unpark() noexcept override {
    const std::scoped_lock guard(mutex_);
    woken_ = true;
    changed_.notify_all();
  }
  void await_sleep() {
    std::unique_lock guard(mutex_);
    changed_.wait(guard, [this] { return asleep_; });
  }
  [[nodiscard]] bool in_time() const noexcept { return in_time_; }

 private:
  tutti::engine& home_;
  stub::record& record_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool asleep_ = false, woken_ = false, in_time_ = false;
};

TEST_CASE_FIXTURE(issued, "communicator_core: closing wakes a thread that sleeps in the wait of what it ends") {
  record->by_poll = true;
  {
    sleeper source{*home, *record};
    tutti::op running = start();
    errc ended = errc::ok;
    std::thread waiting{[&] { ended = tutti::nothrow(std::move(running)).wait().code; }};
    source.await_sleep();
    communicator_core->close();
    waiting.join();
    CHECK(source.in_time());
    CHECK(ended == errc::aborted);
  }
  communicator_core->drop();
}

TEST_CASE_FIXTURE(issued, "communicator_core: what an error tells is read under the engine's lock") {
  std::atomic<bool> in{false};
  bool inline_path = false;
  std::thread other;
  record->while_described = [&] {
    other = std::thread{[&] {
      const auto guard = home->lock();
      in = true;
    }};
    for (int i = 0; i < 20 && !in; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    inline_path = in;
  };
  CHECK(words({errc::peer_lost, 0, 3, 0}).find("rank 3 died") != std::string::npos);
  other.join();
  CHECK_FALSE(inline_path);
  communicator_core->drop();
}

/// Ends calls while they are issued, if the test says so.
struct quick : stub {
  std::shared_ptr<bool> inline_path = std::make_shared<bool>(true);
  tutti::algo::decision begin(const tutti::barrier_args&) noexcept {
    return {tutti::algorithm::automatic, *inline_path ? tutti::algo::progress::all : tutti::algo::progress::nothing};
  }
  using stub::start;
  void start(const tutti::barrier_args& a, tutti::op_state& s, tutti::algo::decision) noexcept { start(a, s); }
};
static_assert(tutti::backend<quick>);

TEST_CASE("communicator_core: calls that end while they are issued need no slot, unless their arguments lie in it") {
  auto record = std::make_shared<stub::record>();
  quick backend{{record}};
  const auto inline_path = backend.inline_path;
  auto home = std::make_shared<tutti::engine>();
  auto* const communicator_core =
      new tutti::communicator_core<quick>(std::move(backend), home, std::chrono::seconds(9));
  const auto here = std::source_location::current();
  const tutti::barrier_args args;
  const auto issue = [&]() -> tutti::op_state& {
    return communicator_core->issue(7, tutti::dtype::f32, {}, here, [&]() -> auto& { return args; });
  };
  tutti::op_state& a = issue();
  tutti::op_state& b = issue();
  CHECK(&a == &b);
  CHECK(a.owner == nullptr);
  tutti::op first{a}, second{b};
  CHECK(first.done());
  first.wait();
  CHECK(second.done());
  CHECK(tutti::nothrow(std::move(second)).wait().ok());

  bool slot = false;
  tutti::op in_slot{communicator_core->issue(7, tutti::dtype::f32, {}, here, [&](tutti::op_state& s) {
    slot = &s != &a && !s.done();
    return args;
  })};
  CHECK(slot);
  CHECK(in_slot.done());
  in_slot.wait();
  CHECK(record->sequence == 0);  // none was started

  *inline_path = false;
  tutti::op running{issue()};
  CHECK_FALSE(running.done());
  CHECK(record->started->owner == communicator_core);
  CHECK(record->started->info.count == 7);
  {
    auto guard = home->lock();
    std::exchange(record->started, nullptr)->complete({});
  }
  running.wait();
  communicator_core->drop();
}

TEST_CASE_FIXTURE(issued, "communicator_core: a call's own timeout goes before that of the communicator") {
  tutti::op a = start();
  CHECK(record->started->info.expires - record->started->info.issued == std::chrono::seconds(9));
  end({});
  a.wait();
  tutti::op b = start(std::chrono::seconds(2));
  CHECK(record->started->info.expires - record->started->info.issued == std::chrono::seconds(2));
  end({});
  b.wait();
  communicator_core->set_timeout(tutti::duration::max());
  tutti::op c = start();
  CHECK(record->started->info.expires == tutti::deadline::max());
  end({});
  c.wait();
  communicator_core->drop();
}

TEST_CASE_FIXTURE(issued, "communicator_core: errors say which call it was, who failed it, and what to do") {
  const std::string call = "barrier #1 (communicator_core_test.cpp:";
  const std::string lost = words({errc::peer_lost, 0, 3, 0});
  CHECK(lost.substr(0, call.size()) == call);
  CHECK(lost.find("7 x float32) failed: rank 3 died") != std::string::npos);
  CHECK(words({errc::timed_out, 0, -1, 0}).find("a rank that could not be determined") != std::string::npos);
  CHECK(words({errc::timed_out, 0, 11, 0}).find("failed: another rank timed out, waiting for this rank") !=
        std::string::npos);
  CHECK(
      words({errc::timed_out, 4, 11, 0}).find("failed: rank 3 timed out, waiting for this rank; what kept this rank") !=
      std::string::npos);
  record->told = " (host b, pid 7), last seen at #39 31 s ago";
  const std::string rank_3 = "rank 3" + record->told;
  CHECK(words({errc::peer_left, 0, 3, 0}).find("failed: " + rank_3 + ", destroyed its") != std::string::npos);
  CHECK(words({errc::peer_lost, 0, 3, 0}).find("failed: " + rank_3 + ", died, left") != std::string::npos);
  CHECK(words(status::lost(3, loss::died)).find("failed: " + rank_3 + ", died; see") != std::string::npos);
  CHECK(words(status::lost(3, loss::broken, 5, ECONNRESET))
            .find(rank_3 + ", lost its connection (Connection reset by peer): its process died, or the network") !=
        std::string::npos);
  CHECK(words(status::lost(3, loss::cut, 5)).find(rank_3 + ", lost its connection, though its process lives") !=
        std::string::npos);
  CHECK(words({errc::timed_out, 4, 11, 0}).find("failed: " + rank_3 + ", timed out") != std::string::npos);
  CHECK(words({errc::timed_out, 0, 3, 0}).find("waiting for " + rank_3 + "; is that rank") != std::string::npos);
  record->told.clear();
  CHECK(words({errc::aborted, 0, 11, 0}).find("aborted by this rank") != std::string::npos);
  for (const std::uint64_t why : {0U, 1U, 2U, 3U})  // a user's
    CHECK(words({errc::aborted, 0, 2, why}).ends_with("aborted by rank 2"));
  CHECK(words({errc::system, 0, 2, EPERM}).find("Operation not permitted on rank 2; the kernel copies long messages") !=
        std::string::npos);
  CHECK(words({errc::aborted, 0, 2, tutti::status::pass_dropped}).find("aborted by rank 2: a pass") !=
        std::string::npos);
  CHECK(words({errc::mismatch, 0, 11, 0}).find("this rank called another collective here") != std::string::npos);
  communicator_core->drop();
}

TEST_CASE_FIXTURE(
    issued, "communicator_core: what only this rank has run out of, or done, is told in its name, here as there") {
  for (const errc code : {errc::out_of_resources, errc::system, errc::aborted}) {
    const tutti::status by_this_rank{code, 0, 11, 7};
    record->aborted = {};
    tutti::op running = start();
    end({code, 0, -1, 7});
    CHECK(tutti::nothrow(std::move(running)).wait() == by_this_rank);
    CHECK(record->aborted == by_this_rank);
  }
  CHECK(words({errc::aborted}).ends_with("aborted by this rank"));
  communicator_core->drop();
}

TEST_CASE_FIXTURE(issued, "communicator_core: a rank that others have lost does not report itself, but who lost it") {
  tutti::op running = start();
  end(status::lost(11, loss::died, 3, ECONNRESET));  // as rank 3 saw it
  CHECK(tutti::nothrow(std::move(running)).wait() == status::lost(3, loss::cut, 11, ECONNRESET));
  communicator_core->drop();
}

TEST_CASE_FIXTURE(issued,
                  "communicator_core: it lives until its last handle is gone, and closing ends what is in flight") {
  const std::weak_ptr<stub::record> watched = record;
  tutti::op running = start();
  communicator_core->close();
  CHECK(record->aborted == tutti::status{errc::aborted, 0, 11, tutti::status::destroyed});
  communicator_core->drop();
  record.reset();
  CHECK_FALSE(watched.expired());
  CHECK(tutti::nothrow(std::move(running)).wait().code == errc::aborted);
  CHECK(watched.expired());
}

TEST_CASE_FIXTURE(issued, "communicator_core: closing while nothing is in flight tells nobody anything") {
  tutti::op ended = start();
  end({});
  ended.wait();
  communicator_core->close();
  CHECK(record->aborted.ok());
  communicator_core->drop();
}

}  // namespace
