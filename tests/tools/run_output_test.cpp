#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "launcher.hpp"
#include "support/temporary_directory.hpp"
#include "tutti-run/line_splitter.hpp"

namespace {

using namespace tutti_test::launcher;

}  // namespace

TEST_CASE("run/output: lines of all ranks at once stay whole, long ones too") {
  // Each rank writes its lines in pieces, so that a launcher that passes on what it reads would mix them.
  const auto done = run(script({"-n", "4"},
                               "long=$(printf %20000s | tr ' ' $RANK)\n"
                               "for i in $(seq 50); do printf 'piece %s ' $i; printf 'and the rest\\n'; done\n"
                               "for i in 1 2 3 4 5; do printf '%s' $long; printf '%s\\n' $long; done"));
  CHECK(done.status == 0);
  CHECK(done.err.empty());
  std::multiset<std::string> expected;
  for (const char rank : {'0', '1', '2', '3'}) {
    const std::string prefix = std::string{"["} + rank + "] ";
    for (int i = 1; i <= 50; ++i) expected.insert(prefix + "piece " + std::to_string(i) + " and the rest");
    for (int i = 0; i < 5; ++i) expected.insert(prefix + std::string(40000, rank));
  }
  CHECK((sorted_lines(done.out) == expected));
}

TEST_CASE("run/output: the lines of one rank keep their order, empty ones and one without newline included") {
  const auto done = run(script({"-n", "2"}, "printf 'a\\n\\nb\\nlast'"));
  for (const char* prefix : {"[0] ", "[1] "}) {
    auto lines = lines_of(done.out);
    std::erase_if(lines, [&](const std::string& line) { return !line.starts_with(prefix); });
    const std::string start = prefix;
    CHECK(lines == std::vector<std::string>{start + "a", start, start + "b", start + "last"});
  }
  CHECK(done.out.back() == '\n');
}

TEST_CASE("run/output: stdout stays stdout and stderr stays stderr") {
  const auto done = run(script({"-n", "2"}, "echo out; echo err >&2"));
  CHECK(sorted_lines(done.out) == std::multiset<std::string>{"[0] out", "[1] out"});
  CHECK(sorted_lines(done.err) == std::multiset<std::string>{"[0] err", "[1] err"});
}

TEST_CASE("run/output: plain changes nothing") {
  const auto done = run(script({"-n", "2", "--output", "plain"}, "printf $RANK"));
  CHECK((done.out == "01" || done.out == "10"));
}

TEST_CASE("run/output: rank0 shows rank 0 alone, yet knows why another rank failed") {
  const auto done =
      run(script({"-n", "3", "--output", "rank0"}, "echo out $RANK; echo err $RANK >&2; [ $RANK != 2 ] || exit 5"));
  CHECK(done.status == 5);
  CHECK(done.out == "out 0\n");
  CHECK(contains(done.err, "err 0\n"));
  CHECK(contains(done.err, "  | err 2\n"));
  CHECK(!contains(done.err, "err 1"));
}

TEST_CASE("run/output: what a dead rank's last child wrote is still shown") {
  const tutti_test::temporary_directory folder;
  const auto done = run(script_with_ready(folder, {"-n", "2", "--grace", "50"},
                                          "(trap 'echo late; exit' TERM; ready; while :; do sleep 0.01; done) &\n"
                                          "await_ready 2"));
  CHECK(done.status == 0);
  CHECK(sorted_lines(done.out) == std::multiset<std::string>{"[0] late", "[1] late"});
}

TEST_CASE("run/output: the reader's departure reaches the ranks as SIGPIPE") {
  job running{script({"-n", "2"}, "exec yes")};
  running.await("[0] y\n");
  running.close_stream(0);
  const auto done = running.wait();
  CHECK(done.status == 128 + SIGPIPE);
  CHECK(contains(done.err, "killed by SIGPIPE"));
}

TEST_CASE("run/output: a reader that does not read holds up neither signals nor the end") {
  // Nothing here reads stdout until the end; the ranks tell their pids by a file.
  const tutti_test::temporary_directory folder;
  job running{
      script({"-n", "2", "--env", "DIR=" + folder.path().string()},
             "echo pid $$ >$DIR/new.$RANK; mv $DIR/new.$RANK $DIR/$RANK; exec yes 012345678901234567890123456789")};
  std::vector<pid_t> ranks;
  for (const char* rank : {"0", "1"}) {
    REQUIRE(eventually([&] { return std::filesystem::exists(folder.path() / rank); }));
    std::string word;
    pid_t pid = 0;
    std::ifstream{folder.path() / rank} >> word >> pid;
    ranks.push_back(pid);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds{200});  // long enough to fill every pipe
  running.signal(SIGTERM);
  CHECK(eventually([&] { return std::ranges::none_of(ranks, is_alive); }));
  CHECK(running.wait().status == 143);
}

TEST_CASE("run/line_splitter: cuts at newlines and at its limit, and nothing is lost") {
  tutti::launch::line_splitter lines;
  std::vector<std::string> taken;
  const auto take = [&](std::string_view line) { taken.emplace_back(line); };
  lines.feed("one\ntw", take);
  lines.feed("o\n\nthree", take);
  CHECK(taken == std::vector<std::string>{"one", "two", ""});
  lines.end(take);
  lines.end(take);
  CHECK(taken.back() == "three");
  CHECK(taken.size() == 4);

  taken.clear();
  const std::string endless(2 * lines.longest + 5, 'x');
  lines.feed(std::string_view{endless}.substr(0, 7), take);
  lines.feed(std::string_view{endless}.substr(7), take);
  lines.feed("\n", take);
  REQUIRE(taken.size() == 3);
  CHECK(taken[0].size() == lines.longest);
  CHECK(taken[1].size() == lines.longest);
  CHECK(taken[2] == "xxxxx");
}
