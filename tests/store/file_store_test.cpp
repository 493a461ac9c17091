#include <doctest/doctest.h>
#include <sys/file.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <support/failure_of.hpp>
#include <support/forked_child.hpp>
#include <support/small_tmpfs.hpp>
#include <support/store_conformance.hpp>
#include <support/temporary_directory.hpp>
#include <thread>
#include <tutti/store/file_store.hpp>
#include <vector>

using namespace std::chrono_literals;
using tutti::after;
using tutti::bytes_of;
using tutti::errc;
using tutti::file_store;
using tutti::text_of;
using tutti_test::failure;
using tutti_test::failure_of;
using tutti_test::forked_child;
using tutti_test::temporary_directory;

namespace {

struct file_family {
  temporary_directory dir;

  template <class Body>
  void alone(Body body) {
    file_store s{dir.file("rendezvous")};
    body(s);
  }
  template <class Body>
  void run(int ranks, Body body) {
    tutti_test::on_threads(ranks, [&](int rank) {
      file_store s{dir.file("rendezvous"), {.world = ranks}};
      body(rank, s);
    });
    CHECK(std::filesystem::is_empty(dir.path()));
  }
};

failure failure_to_open(const std::string& path) {
  return failure_of([&] { file_store s{path, {.timeout = 3s}}; });
}

void write(const std::string& path, const std::string& content) { std::ofstream{path, std::ios::binary} << content; }

std::string read(const std::string& path) {
  std::ifstream in{path, std::ios::binary};
  return {std::istreambuf_iterator<char>{in}, {}};
}

// Changes the head of a file as if another machine had made it.
void move_to_another_machine(const std::string& path) {
  const std::string content = read(path);
  auto decoded = tutti::wire::decode_head(bytes_of(content));
  REQUIRE(decoded.kind == tutti::wire::head_kind::valid);
  decoded.head.domain = "another boot/1/2/0";
  decoded.head.host = "far-away";
  decoded.head.pid = 4242;
  const auto head = tutti::wire::encode_head(decoded.head);
  std::fstream out{path, std::ios::binary | std::ios::in | std::ios::out};
  out.write(reinterpret_cast<const char*>(head.data()), static_cast<std::streamsize>(head.size()));
}

}  // namespace

TEST_CASE("file_store is a store") { tutti_test::check_store_conformance<file_family>(); }

TEST_CASE("file_store: the last one removes the file, and not before all have come") {
  const temporary_directory dir;
  const std::string path = dir.file("f");
  {
    std::optional<file_store> a{std::in_place, path, tutti::file_store_options{.world = 2}};
    a->set("k", bytes_of("v"));
    a->finish();
    CHECK(std::filesystem::exists(path));
    CHECK_THROWS_AS(a->set("k", {}), tutti::usage_error);
    CHECK_THROWS_AS((void)a->get("k", after(1s)), tutti::usage_error);
    file_store b{path, {.world = 2}};
    CHECK(text_of(b.get("k", after(1s))) == "v");
  }
  CHECK(std::filesystem::is_empty(dir.path()));
  struct stat s{};
  const file_store c{path};
  REQUIRE(::stat(path.c_str(), &s) == 0);
  CHECK((s.st_mode & 0777) == 0600);
}

TEST_CASE("file_store: processes meet in it") {
  const temporary_directory dir;
  const std::string path = dir.file("f");
  std::vector<forked_child> children;
  for (int rank = 0; rank < 4; ++rank) {
    children.emplace_back([&, rank] {
      file_store s{path, {.world = 4}};
      s.set("rank" + std::to_string(rank), bytes_of("here"));
      for (int other = 0; other < 4; ++other) (void)s.get("rank" + std::to_string(other), after(30s));
      return static_cast<int>(s.add("n", 1) > 0 ? 0 : 1);
    });
  }
  for (auto& c : children) CHECK(c.wait() == 0);
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("file_store: 100 races to make the file, every other time over a dead one, end in one file") {
  const temporary_directory dir;
  const std::string path = dir.file("f");
  for (int trial = 0; trial < 100; ++trial) {
    if (trial % 2 == 1) {
      forked_child dead{[&] {
        file_store s{path};
        s.set("stale", bytes_of("value"));
        s.add("n", 1000);
        ::kill(::getpid(), SIGKILL);
        return 0;
      }};
      REQUIRE(dead.wait() == -SIGKILL);
      REQUIRE(std::filesystem::exists(path));
    }
    std::atomic<std::int64_t> sum{0};
    tutti_test::on_threads(4, [&](int) {
      file_store s{path, {.world = 4}};
      sum += s.add("n", 1);
      if (s.add("arrived", 1) == 4) s.set("all", {});
      (void)s.get("all", after(30s));
      if (s.try_get("stale")) sum += 1000000;
    });
    REQUIRE(sum.load() == 1 + 2 + 3 + 4);
    REQUIRE(std::filesystem::is_empty(dir.path()));
  }
}

TEST_CASE("file_store: a file of a killed process is replaced by the next job") {
  const temporary_directory dir;
  const std::string path = dir.file("f");
  forked_child child{[&] {
    file_store s{path};
    s.set("k", bytes_of("stale"));
    ::kill(::getpid(), SIGKILL);
    return 0;
  }};
  REQUIRE(child.wait() == -SIGKILL);
  REQUIRE(read(path).find("stale") != std::string::npos);
  file_store s{path};
  CHECK_FALSE(s.try_get("k").has_value());
}

TEST_CASE("file_store: a rank whose file was replaced is told by whom") {
  const temporary_directory dir;
  const std::string path = dir.file("f");
  int ready[2] = {-1, -1};
  REQUIRE(::pipe(ready) == 0);
  forked_child maker{[&] {
    file_store s{path};
    static_cast<void>(::write(ready[1], "x", 1));
    for (;;) ::pause();
    return 0;
  }};
  char c = 0;
  REQUIRE(::read(ready[0], &c, 1) == 1);
  ::close(ready[0]);
  ::close(ready[1]);
  file_store old{path};
  const int old_pid = maker.pid();
  maker.signal(SIGKILL);
  maker.wait();
  const file_store next{path};
  for (const auto& f : {failure_of([&] { (void)old.get("k", after(20s)); }), failure_of([&] { old.set("k", {}); }),
                        failure_of([&] { (void)old.try_get("k"); }), failure_of([&] { old.add("k", 1); })}) {
    CHECK(f.kind == errc::rendezvous);
    CHECK(f.mentions("was replaced"));
    CHECK(f.mentions("pid " + std::to_string(old_pid)));
    CHECK(f.mentions("pid " + std::to_string(::getpid())));
  }
  std::filesystem::remove(path);
  CHECK(failure_of([&] { old.set("k", {}); }).mentions("was removed"));
}

TEST_CASE("file_store: a silent file from another machine is replaced, one with a heartbeat is joined") {
  const temporary_directory dir;
  const std::string path = dir.file("f");
  tutti::file_store_options quick;
  quick.stale_after = 150ms;
  {
    file_store maker{path};
    maker.set("k", bytes_of("v"));
    move_to_another_machine(path);
    std::atomic<bool> stop{false};
    std::thread waiting{[&] {
      while (!stop.load()) CHECK_THROWS_AS((void)maker.get("nothing", after(5ms)), tutti::error);
    }};
    // Beats come with every get that waits, so the file is alive.
    file_store joiner{path, quick};
    CHECK(text_of(joiner.get("k", after(5s))) == "v");
    stop.store(true);
    waiting.join();

    file_store replacing{path, quick};
    CHECK_FALSE(replacing.try_get("k").has_value());
    const auto f = failure_of([&] { (void)maker.try_get("k"); });
    CHECK(f.kind == errc::rendezvous);
  }
}

TEST_CASE("file_store: a record that was cut off by a crash at any byte is as if it had never been") {
  const temporary_directory dir;
  const std::string path = dir.file("f");
  file_store a{path};
  a.set("first", bytes_of("1"));
  const auto before = std::filesystem::file_size(path);
  a.set("torn", bytes_of("some value"));
  const std::string whole = read(path);
  a.erase("torn");
  for (auto size = before; size < whole.size(); ++size) {
    write(path, whole.substr(0, size));
    file_store b{path};
    CHECK(text_of(b.get("first", after(5s))) == "1");
    CHECK_FALSE(b.try_get("torn").has_value());
    b.set("next", bytes_of("2"));
    file_store c{path};
    CHECK(text_of(c.get("next", after(5s))) == "2");
    CHECK_FALSE(c.try_get("torn").has_value());
  }
}

TEST_CASE("file_store: what a crash left behind is never read again, not even where it looks like a record") {
  const temporary_directory dir;
  const std::string path = dir.file("f");
  const auto record = [](std::string_view key, std::string_view value) {
    tutti::wire::rendezvous_record r;
    r.key = key;
    r.value = bytes_of(value);
    return text_of(tutti::wire::encode_record_head(r)) + std::string{key} + std::string{value};
  };
  file_store s{path};
  const std::string next = record("next", "2");
  const std::string bait = std::string(next.size() - 17, 'x') + record("bait", "1") + "end";
  const std::string torn = record("t", bait);
  std::ofstream{path, std::ios::binary | std::ios::app} << torn.substr(0, torn.size() - 1);
  s.set("next", bytes_of("2"));
  file_store t{path};
  CHECK(text_of(t.get("next", after(5s))) == "2");
  CHECK_FALSE(t.try_get("bait").has_value());
}

TEST_CASE("file_store: bytes that are no records never do harm") {
  const temporary_directory dir;
  const std::string path = dir.file("f");
  const file_store keeper{path};
  const std::string head = read(path);
  std::string garbage;
  for (int i = 0; i < 5000; ++i) garbage += static_cast<char>(i * 7919 >> 3);
  write(path, head + garbage);
  file_store s{path};
  CHECK_FALSE(s.try_get("k").has_value());
  s.set("k", bytes_of("v"));
  file_store t{path};
  CHECK(text_of(t.get("k", after(5s))) == "v");
}

TEST_CASE("file_store: what cannot be a rendezvous file is a clear error and left alone") {
  const temporary_directory dir;
  const auto f = failure_to_open(dir.path().string());
  CHECK(f.kind == errc::rendezvous);
  CHECK(f.mentions("a file is needed"));

  for (const std::string content : {"#!/bin/sh\n", "x", "tuttx", "important data of somebody"}) {
    write(dir.file("foreign"), content);
    const auto g = failure_to_open(dir.file("foreign"));
    CHECK(g.kind == errc::rendezvous);
    CHECK(g.mentions("some other file"));
    CHECK(read(dir.file("foreign")) == content);
  }

  auto head = tutti::wire::encode_head({});
  head[8] = std::byte{9};
  write(dir.file("newer"), std::string{reinterpret_cast<const char*>(head.data()), head.size()});
  const auto version = failure_to_open(dir.file("newer"));
  CHECK(version.mentions("version 9"));
  CHECK(version.mentions("version 1"));

  CHECK(failure_to_open(dir.file("missing/f")).mentions("No such file"));
  REQUIRE(::mkfifo(dir.file("fifo").c_str(), 0600) == 0);
  CHECK(failure_to_open(dir.file("fifo")).mentions("not a regular file"));

  write(dir.file("empty"), "");
  CHECK(failure_to_open(dir.file("empty")).kind == errc::ok);
}

TEST_CASE("file_store: own links are followed, others' links and files are not") {
  const temporary_directory dir;
  write(dir.file("target"), "");
  REQUIRE(::symlink(dir.file("target").c_str(), dir.file("link").c_str()) == 0);
  {
    file_store a{dir.file("link")}, b{dir.file("target")};
    a.set("k", bytes_of("v"));
    CHECK(text_of(b.get("k", after(5s))) == "v");
  }
  CHECK(failure_to_open(dir.file("link")).mentions("leads nowhere"));
  if (::geteuid() != 0) {
    MESSAGE("left out: only root can make files of another user");
    return;
  }
  write(dir.file("target"), "");
  REQUIRE(::lchown(dir.file("link").c_str(), 65534, 65534) == 0);
  CHECK(failure_to_open(dir.file("link")).mentions("symbolic link of another user"));
  REQUIRE(::chown(dir.file("target").c_str(), 65534, 65534) == 0);
  CHECK(failure_to_open(dir.file("target")).mentions("belongs to another user"));
}

TEST_CASE("file_store: a directory that cannot be written is a clear error") {
  const temporary_directory dir;
  ::chmod(dir.path().c_str(), 0555);
  forked_child child{[&] {
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) return 77;
    const auto f = failure_to_open(dir.file("f"));
    return f.kind == errc::rendezvous && f.mentions("Permission denied") && f.mentions(dir.file("f")) ? 0 : 1;
  }};
  const int code = child.wait();
  ::chmod(dir.path().c_str(), 0755);
  if (code == 77) {
    MESSAGE("left out: cannot become another user");
  } else {
    CHECK(code == 0);
  }
}

TEST_CASE("file_store: a full disk is a typed error, and the store goes on with what it has") {
  const temporary_directory dir;
  forked_child child{[&] {
    if (!tutti_test::mount_small_tmpfs(dir.path().string(), "256k")) return 77;
    file_store s{dir.file("f")};
    s.set("small", bytes_of("v"));
    const std::vector<std::byte> large(1 << 19);
    const auto f = failure_of([&] { s.set("large", large); });
    if (f.kind != errc::out_of_resources || !f.mentions("No space left")) return 1;
    s.set("again", bytes_of("w"));
    file_store t{dir.file("f")};
    if (t.try_get("large") || text_of(t.get("again", after(5s))) != "w") return 2;
    return text_of(t.get("small", after(5s))) == "v" ? 0 : 3;
  }};
  const int code = child.wait();
  if (code == 77) {
    MESSAGE("left out: mounting a tmpfs is not permitted here, not even in a user namespace");
  } else {
    CHECK(code == 0);
  }
}

TEST_CASE("file_store: a lock that is never given back is a timeout, not a hang") {
  const temporary_directory dir;
  const std::string path = dir.file("f");
  file_store s{path, {.timeout = 30ms}};
  const tutti::os::fd other{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
  REQUIRE(::flock(other.native(), LOCK_EX) == 0);
  const auto f = failure_of([&] { s.set("k", {}); });
  CHECK(f.kind == errc::timed_out);
  CHECK(f.mentions("lock"));
  CHECK_FALSE(s.try_get("k").has_value());
  REQUIRE(::flock(other.native(), LOCK_UN) == 0);
  s.set("k", {});
  CHECK(s.try_get("k").has_value());
}

TEST_CASE("file_store: a child made by fork() does not finish for its parent") {
  const temporary_directory dir;
  const std::string path = dir.file("f");
  std::optional<file_store> s{path};
  forked_child child{[&] {
    s.reset();
    return 0;
  }};
  CHECK(child.wait() == 0);
  CHECK(std::filesystem::exists(path));
  s->set("k", {});
}
