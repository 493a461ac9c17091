#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <source_location>
#include <string>
#include <utility>

#include <tutti/async/engine.hpp>
#include <tutti/async/op.hpp>
#include <tutti/backend/issuer.hpp>
#include <tutti/core/args.hpp>

namespace {

using tutti::errc;

/// Rank 1 of 4, whose operations end when the test says so.
struct stub {
  struct record {
    tutti::op_state* started = nullptr;
    tutti::status aborted{};
    std::uint64_t sequence = 0;
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
    if (r->started) std::exchange(r->started, nullptr)->complete(why);
  }
  [[nodiscard]] tutti::status failure() const noexcept { return r->aborted; }
  [[nodiscard]] bool busy(const tutti::op_owner&) const noexcept { return r->started != nullptr; }
  [[nodiscard]] static std::string describe(int rank) { return "rank " + std::to_string(rank); }
};
static_assert(tutti::backend<stub>);

struct issued {
  std::shared_ptr<stub::record> record = std::make_shared<stub::record>();
  std::shared_ptr<tutti::engine> home = std::make_shared<tutti::engine>();
  tutti::issuer<stub>* issuer = new tutti::issuer<stub>(stub{record}, home, std::chrono::seconds(9));

  tutti::op start(tutti::duration timeout = {}) {
    return tutti::op{issuer->issue(7, tutti::dtype::f32, timeout, std::source_location::current(),
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

TEST_CASE_FIXTURE(issued, "issuer: a call's own timeout goes before that of the communicator") {
  tutti::op a = start();
  CHECK(record->started->info.expires - record->started->info.issued == std::chrono::seconds(9));
  end({});
  a.wait();
  tutti::op b = start(std::chrono::seconds(2));
  CHECK(record->started->info.expires - record->started->info.issued == std::chrono::seconds(2));
  end({});
  b.wait();
  issuer->set_timeout(tutti::duration::max());
  tutti::op c = start();
  CHECK(record->started->info.expires == tutti::deadline::max());
  end({});
  c.wait();
  issuer->drop();
}

TEST_CASE_FIXTURE(issued, "issuer: errors say which call it was, who failed it, and what to do") {
  const std::string call = "barrier #1 (issuer_test.cpp:";
  const std::string lost = words({errc::peer_lost, 0, 3, 0});
  CHECK(lost.substr(0, call.size()) == call);
  CHECK(lost.find("7 x float32) failed: rank 3 died") != std::string::npos);
  CHECK(words({errc::timed_out, 0, -1, 0}).find("a rank that could not be determined") != std::string::npos);
  CHECK(words({errc::aborted, 0, 11, 0}).find("aborted by this rank") != std::string::npos);
  CHECK(words({errc::aborted, 0, 2, 0}).find("aborted by rank 2") != std::string::npos);
  CHECK(words({errc::aborted, 0, 2, tutti::status::pass_dropped}).find("aborted by rank 2: a pass") !=
        std::string::npos);
  CHECK(words({errc::mismatch, 0, 11, 0}).find("this rank called another collective here") != std::string::npos);
  issuer->drop();
}

TEST_CASE_FIXTURE(issued, "issuer: what only this rank has run out of is told in its name") {
  tutti::op running = start();
  end({errc::out_of_resources});
  CHECK(tutti::nothrow(std::move(running)).wait().code == errc::out_of_resources);
  CHECK(record->aborted.code == errc::out_of_resources);
  CHECK(record->aborted.peer == 11);
  issuer->drop();
}

TEST_CASE_FIXTURE(issued, "issuer: it lives until its last handle is gone, and closing ends what is in flight") {
  const std::weak_ptr<stub::record> watched = record;
  tutti::op running = start();
  issuer->close();
  CHECK(record->aborted.code == errc::aborted);
  issuer->drop();
  record.reset();
  CHECK_FALSE(watched.expired());
  CHECK(tutti::nothrow(std::move(running)).wait().code == errc::aborted);
  CHECK(watched.expired());
}

TEST_CASE_FIXTURE(issued, "issuer: closing while nothing is in flight tells nobody anything") {
  tutti::op ended = start();
  end({});
  ended.wait();
  issuer->close();
  CHECK(record->aborted.ok());
  issuer->drop();
}

}  // namespace
