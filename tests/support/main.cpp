#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <latch>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

// The main function of every test program, with a watchdog: a test that hangs must name itself and fail.
// TUTTI_TEST_LIMIT is the limit of a test case in seconds, or of one way through its subcases; 600 without it.

namespace {

class progress {
 public:
  void enter_test(const doctest::TestCaseData& test) {
    const std::lock_guard lock{mutex_};
    test_ = std::string{test.m_name} + " (" + test.m_file.c_str() + ":" + std::to_string(test.m_line) + ")";
    subcases_.clear();
    since_ = std::chrono::steady_clock::now();
  }
  void leave_test() {
    const std::lock_guard lock{mutex_};
    test_.clear();
    since_ = std::chrono::steady_clock::now();
  }
  void enter_subcase(const char* name) {
    const std::lock_guard lock{mutex_};
    subcases_.emplace_back(name);
  }
  void leave_subcase() {
    const std::lock_guard lock{mutex_};
    if (!subcases_.empty()) subcases_.pop_back();
  }

  std::chrono::steady_clock::time_point since() {
    const std::lock_guard lock{mutex_};
    return since_;
  }
  std::string describe() {
    const std::lock_guard lock{mutex_};
    if (test_.empty()) return "between two test cases";
    std::string text = "in test case " + test_;
    for (const auto& name : subcases_) text += " / " + name;
    const auto spent = std::chrono::steady_clock::now() - since_;
    return text + ", for " + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(spent).count()) + " s";
  }

 private:
  std::mutex mutex_;
  std::string test_;
  std::vector<std::string> subcases_;
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
};

progress& current() {
  static auto& instance = *new progress;  // the watchdog's thread uses it until the process ends
  return instance;
}

struct progress_listener : doctest::IReporter {
  explicit progress_listener(const doctest::ContextOptions&) {}
  void report_query(const doctest::QueryData&) override {}
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData& test) override { current().enter_test(test); }
  void test_case_reenter(const doctest::TestCaseData& test) override { current().enter_test(test); }
  void test_case_end(const doctest::CurrentTestCaseStats&) override { current().leave_test(); }
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature& subcase) override {
    current().enter_subcase(subcase.m_name.c_str());
  }
  void subcase_end() override { current().leave_subcase(); }
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

std::chrono::seconds limit() {
  const char* text = std::getenv("TUTTI_TEST_LIMIT");
  int seconds = 600;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), seconds);
  return std::chrono::seconds{seconds};
}

void print_stacks() {
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  const std::string gdb = "command -v gdb >/dev/null && timeout 40 gdb -p " + std::to_string(getpid()) +
                          " -batch -nx -ex 'thread apply all backtrace' >&2";
  if (std::system(gdb.c_str()) == 0) return;
  std::fputs("(no stacks: gdb is not installed or may not attach; the threads' states and system calls)\n", stderr);
  std::system("cd /proc/$PPID/task && grep -H . */wchan */syscall >&2 && grep -H State */status >&2");
}

/// Ends the child processes that tests have left: they would hold the output, for whose end whoever runs the tests
/// waits. Returns false if there was one.
bool end_children() {
  if (::waitpid(-1, nullptr, WNOHANG) < 0) return true;
  std::fputs("tests have left child processes:\n", stderr);
  std::ifstream children{"/proc/self/task/" + std::to_string(::getpid()) + "/children"};
  for (::pid_t child = 0; children >> child; ::kill(child, SIGKILL)) {
    std::ifstream status{"/proc/" + std::to_string(child) + "/status"};
    for (std::string line; std::getline(status, line) && !line.starts_with("PPid");)
      std::fprintf(stderr, "  %s\n", line.c_str());
  }
  return false;
}

[[noreturn]] void watch(std::chrono::seconds allowed) {
  for (auto end = current().since() + allowed; std::chrono::steady_clock::now() < end;
       end = current().since() + allowed)
    std::this_thread::sleep_until(end);
  const std::string where = current().describe();
  std::fprintf(stderr, "\nwatchdog: more than the %lld s of TUTTI_TEST_LIMIT %s\n",
               static_cast<long long>(allowed.count()), where.c_str());
  print_stacks();
  std::fprintf(stderr, "watchdog: giving up %s\n", where.c_str());
  end_children();
  std::abort();
}

}  // namespace

REGISTER_LISTENER("progress", 0, progress_listener);

int main(int argc, char** argv) {
  doctest::Context context{argc, argv};
  std::latch started{1};  // a test may leave the process without descriptors, which a sanitizer needs in a new thread
  std::thread{[&started] {
    started.count_down();
    watch(limit());
  }}.detach();  // it watches the end of the process, too
  started.wait();
  const int result = context.run();
  return end_children() ? result : 1;
}
