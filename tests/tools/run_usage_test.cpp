#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "launcher.hpp"
#include "support/temporary_directory.hpp"

namespace {

using namespace tutti_test::launcher;

// One line that begins with the program's name, and that says what is asked for.
void check_refusal(const result& done, int status, std::string_view said) {
  CAPTURE(done.err);
  CHECK(done.status == status);
  CHECK(done.out.empty());
  CHECK(done.err.starts_with("tutti-run: "));
  CHECK(lines_of(done.err).size() == 1);
  CHECK(contains(done.err, said));
}

std::string make_file(const tutti_test::temporary_directory& folder, const char* name, const char* text, mode_t mode) {
  const auto path = folder.file(name);
  std::ofstream{path} << text;
  ::chmod(path.c_str(), mode);
  return path;
}

}  // namespace

TEST_CASE("run/usage: a mistake on the command line is one line and status 2") {
  check_refusal(run({"-n", "0", "true"}), 2, "got '0'");
  check_refusal(run({"-n", "-3", "true"}), 2, "got '-3'");
  check_refusal(run({"-n", "4x", "true"}), 2, "got '4x'");
  check_refusal(run({"-n", "", "true"}), 2, "got ''");
  check_refusal(run({"-n", "99999999999", "true"}), 2, "too large");
  check_refusal(run({"true"}), 2, "number of ranks is missing");
  check_refusal(run({}), 2, "number of ranks is missing");
  check_refusal(run({"-n", "2"}), 2, "program is missing");
  check_refusal(run({"-n", "2", "--"}), 2, "program is missing");
  check_refusal(run({"-n", "2", ""}), 2, "program is missing");
  check_refusal(run({"-n"}), 2, "-n wants a value");
  check_refusal(run({"-n", "2", "--loud", "true"}), 2, "unknown option --loud");
  check_refusal(run({"-n", "2", "-x", "true"}), 2, "unknown option -x");
  check_refusal(run({"-n", "2", "--output", "pink", "true"}), 2, "prefix, plain, rank0");
  check_refusal(run({"-n", "2", "--bind", "socket", "true"}), 2, "none, core, numa");
  check_refusal(run({"-n", "2", "--grace", "-1", "true"}), 2, "--grace wants a time");
  check_refusal(run({"-n", "2", "--settle", "nan", "true"}), 2, "--settle wants a time");
  check_refusal(run({"-n", "2", "--timeout", "soon", "true"}), 2, "--timeout wants a time");
  check_refusal(run({"-n", "2", "--env", "NAME", "true"}), 2, "NAME=VALUE");
  check_refusal(run({"-n", "2", "--env", "=x", "true"}), 2, "NAME=VALUE");
  check_refusal(run({"-n", "2", "--env", "RANK=1", "true"}), 2, "cannot set RANK");
  for (const char* list : {"", "4,", "4,,5", "-1", "4;5", "one", "GPU"}) {
    CAPTURE(list);
    check_refusal(run({"-n", "1", "--devices", list, "true"}), 2, "--devices wants numbers or UUIDs");
  }
  check_refusal(run({"-n", "2", "--devices", "4,5,04", "true"}), 2, "--devices 4,5,04 has 04 twice");
  check_refusal(run({"-n", "2", "--devices", "GPU-1234,GPU-12", "true"}), 2, "has GPU-12 twice");
  check_refusal(run({"-n", "4", "--devices", "0,1,2", "true"}), 2, "--devices names 3 GPUs for 4 ranks");
  const auto only = [](const char* list) { return [list] { ::setenv("CUDA_VISIBLE_DEVICES", list, 1); }; };
  check_refusal(run({"-n", "2", "--devices", "0,2", "true"}, only("6,7")), 2,
                "--devices 2 is not among the 2 of CUDA_VISIBLE_DEVICES='6,7'");
  check_refusal(run({"-n", "1", "--devices", "1", "true"}, only("6,-1,7")), 2, "not among the 1 of");
  check_refusal(run({"-n", "1", "--devices", "0", "true"}, only("")), 2, "not among the 0 of");
  check_refusal(run({"-n", "1", "--devices", "GPU-c", "true"}, only("GPU-a,GPU-b")), 2, "GPU-c is not among the 2");
}

TEST_CASE("run/usage: help goes to stdout and has an example") {
  const auto done = run({"--help"});
  CHECK(done.status == 0);
  CHECK(done.err.empty());
  CHECK(contains(done.out, "Example:  tutti-run -n 4"));
  CHECK(lines_of(done.out).size() < 45);
  for (const auto& line : lines_of(done.out)) CHECK(line.size() <= 80);
}

TEST_CASE("run/usage: options of the program are the program's") {
  CHECK(run({"-n", "1", "--output", "plain", "echo", "-n", "5", "--output"}).out == "5 --output");
  CHECK(run({"-n", "1", "--output=plain", "--", "printf", "%s", "-n"}).out == "-n");
}

TEST_CASE("run/usage: a program that cannot be run is reported once, and no rank starts") {
  const tutti_test::temporary_directory folder;
  check_refusal(run({"-n", "4", "no-such-program-anywhere"}), 127, "no such program in PATH");
  check_refusal(run({"-n", "4", folder.file("absent")}), 127, "no such file");
  check_refusal(run({"-n", "4", make_file(folder, "data", "text", 0644)}), 126, "not an executable file");
  check_refusal(run({"-n", "4", folder.path().string()}), 126, "not an executable file");
  check_refusal(run({"-n", "4", make_file(folder, "script", "#!/no/such/shell\n", 0755)}), 127, "interpreter");
  check_refusal(run({"-n", "4", "--env", "PATH=" + folder.path().string(), "script"}), 127, "interpreter");
}

TEST_CASE("run/usage: too few open files for so many ranks is known before any rank starts") {
  const auto limited = [] {
    const rlimit small{64, 100};
    ::setrlimit(RLIMIT_NOFILE, &small);
  };
  check_refusal(run({"-n", "64", "echo"}, limited), 2, "needs 352 open files, and the limit is 100");
  check_refusal(run({"-n", "64", "echo"}, limited), 2, "at most 13 ranks");
  CHECK(run({"-n", "13", "true"}, limited).status == 0);  // it raises its own soft limit
}

TEST_CASE("run/usage: too few processes for so many ranks is known before any rank starts") {
  const auto limited = [] {
    if (::geteuid() == 0 && ::setuid(65534) != 0) ::_exit(98);  // root has no such limit
    const rlimit small{20, 20};
    ::setrlimit(RLIMIT_NPROC, &small);
  };
  if (::geteuid() == 0 && run({"--help"}, limited).status != 0) return;  // the program is where only root can read
  check_refusal(run({"-n", "30", "echo"}, limited), 2, "ulimit -u");
}
