#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "launcher.hpp"
#include "support/temporary_directory.hpp"
#include "tutti-run/output/line_splitter.hpp"
#include "tutti-run/output/prefixed_lines.hpp"

namespace {

using namespace tutti_test::launcher;

}  // namespace

TEST_CASE("run/output: lines of all ranks at once stay whole, long ones too") {
  // Each rank writes its lines in pieces, so that a launcher that passes on what it reads would mix them.
  // In a file lines are whole however long a rank takes for one.
  const tutti_test::temporary_directory folder;
  const std::string file = folder.file("out");
  const auto done = run(script({"-n", "4"},
                               "long=$(printf %20000s | tr ' ' $RANK)\n"
                               "for i in $(seq 50); do printf 'piece %s ' $i; printf 'and the rest\\n'; done\n"
                               "printf 'slow '; sleep 0.2; echo end\n"
                               "for i in 1 2 3 4 5; do printf '%s' $long; printf '%s\\n' $long; done"),
                        [&] { ::dup2(::open(file.c_str(), O_WRONLY | O_CREAT, 0600), STDOUT_FILENO); });
  CHECK(done.status == 0);
  CHECK(done.err.empty());
  std::multiset<std::string> expected;
  for (const char rank : {'0', '1', '2', '3'}) {
    const std::string prefix = std::string{"["} + rank + "] ";
    for (int i = 1; i <= 50; ++i) expected.insert(prefix + "piece " + std::to_string(i) + " and the rest");
    expected.insert(prefix + "slow end");
    for (int i = 0; i < 5; ++i) expected.insert(prefix + std::string(40000, rank));
  }
  std::ifstream written{file};
  CHECK((sorted_lines({std::istreambuf_iterator<char>{written}, {}}) == expected));
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

TEST_CASE("run/output: the beginning of a line is shown after a moment, not when the line ends") {
  job running{script({"-n", "2"}, "[ $RANK = 0 ] || exit 0\nprintf 'Continue? [y/N] '; sleep 1000")};
  running.await("[0] Continue? [y/N] ");
  CHECK(running.out() == "[0] Continue? [y/N] ");
  running.signal(SIGTERM);
  CHECK(running.wait().status == 143);
  CHECK(running.out() == "[0] Continue? [y/N] \n");
}

TEST_CASE("run/output: with a full disk behind it the job ends with an error, and says so") {
  const auto done = run(script({"-n", "2"}, "echo something"),
                        [] { ::dup2(::open("/dev/full", O_WRONLY | O_CLOEXEC), STDOUT_FILENO); });
  CHECK(done.status == 1);
  CHECK(contains(done.err, "output was lost: No space left on device"));
  const auto failed = run(script({"-n", "2"}, "echo something; exit 7"),
                          [] { ::dup2(::open("/dev/full", O_WRONLY | O_CLOEXEC), STDOUT_FILENO); });
  CHECK(failed.status == 7);
}

TEST_CASE("run/prefixed_lines: whole lines at once, the rest when it is due") {
  using tutti::launch::prefixed_lines;
  const tutti::launch::clock::time_point now{std::chrono::hours{1}};
  prefixed_lines lines;
  CHECK(lines.due() == tutti::launch::clock::time_point::max());
  lines.feed("a\n\nb", now);
  CHECK(lines.take_lines("> ", now) == "> a\n> \n");
  CHECK(lines.due() == now + prefixed_lines::patience);
  CHECK_FALSE(lines.open());
  CHECK(lines.take_all("> ") == "> b");
  CHECK(lines.open());
  lines.feed("c\nd", now);
  CHECK(lines.take_lines("> ", now) == "c\n");
  CHECK(lines.take_rest("> ") == "> d\n");
  CHECK(lines.take_rest("> ").empty());
}

TEST_CASE("run/prefixed_lines: a carriage return begins the line anew, with the prefix") {
  const tutti::launch::clock::time_point now{};
  tutti::launch::prefixed_lines leading, trailing, windows;
  leading.feed("\r10%\r20%\n", now);
  CHECK(leading.take_lines("> ", now) == "\r> 10%\r> 20%\n");
  trailing.feed("10%\r20%\rdone\n", now);
  CHECK(trailing.take_lines("> ", now) == "> 10%\r> 20%\r> done\n");
  windows.feed("a\r\nb\r\n", now);
  CHECK(windows.take_lines("> ", now) == "> a\r\n> b\r\n");
}

TEST_CASE("run/prefixed_lines: a line that another stream has cut goes on behind a prefix of its own") {
  const tutti::launch::clock::time_point now{};
  tutti::launch::prefixed_lines one, two;
  one.feed("half ", now);
  CHECK(one.take_all("> ") == "> half ");
  one.interrupt();
  CHECK_FALSE(one.open());
  one.feed("line\n", now);
  CHECK(one.take_lines("> ", now) == "> line\n");
  two.feed("prompt: ", now);
  CHECK(two.take_all("> ") == "> prompt: ");
  two.interrupt();
  two.feed("\nnext\n", now);
  CHECK(two.take_lines("> ", now) == "> next\n");
}

TEST_CASE("run/prefixed_lines: a line without end is passed on in pieces") {
  const tutti::launch::clock::time_point now{};
  tutti::launch::prefixed_lines lines;
  const std::string piece(tutti::launch::prefixed_lines::longest + 1, 'x');
  lines.feed(piece, now);
  CHECK((lines.take_lines("> ", now) == "> " + piece));
  lines.feed("y\n", now);
  CHECK(lines.take_lines("> ", now) == "y\n");
}
