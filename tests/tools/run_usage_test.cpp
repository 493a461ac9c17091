#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>

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
  check_refusal(run({"-n", "2", "-y", "true"}), 2, "unknown option -y");
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

TEST_CASE("run/usage: a mistake about machines is one line and status 2") {
  check_refusal(run({"--hosts", "", "true"}), 2, "name of the machine is missing");
  check_refusal(run({"--hosts", "a:4,", "true"}), 2, "name of the machine is missing");
  check_refusal(run({"--hosts", "a:4;b:4", "true"}), 2, "an IPv6 address needs brackets");
  check_refusal(run({"--hosts", "a:0", "true"}), 2, "must be 1 or more");
  check_refusal(run({"--hosts", "-oProxyCommand=x:1", "true"}), 2, "does not begin with '-'");
  check_refusal(run({"--hosts", "a:2,b:2", "-n", "5", "true"}), 2, "-n 5 is more than the 4 places");
  check_refusal(run({"--hosts", "a:2", "--hosts", "b:2", "true"}), 2, "given twice");
  check_refusal(run({"--hosts", "a:2", "--nnodes", "2", "true"}), 2, "leave --nnodes");
  check_refusal(run({"--hosts", "a:2", "--rdzv", "tcp://a:1", "true"}), 2, "leave --rdzv out");
  check_refusal(run({"--hosts", "a:2", "--wdir", "here", "true"}), 2, "absolute path");
  check_refusal(run({"--hosts", "a:2", "--ssh", " ", "true"}), 2, "--ssh wants a command");
  check_refusal(run({"--hosts", "a:2", "-x", "A=b", "true"}), 2, "--env sets one");
  check_refusal(run({"--hosts", "a:2", "-x", "RANK", "true"}), 2, "cannot hand over RANK");
  check_refusal(run({"--hosts", "a:2", "-x", "PMI_RANK", "true"}), 2, "cannot hand over PMI_RANK, by which a rank");
  check_refusal(run({"--hosts", "a:2", "--master-port", "65536", "true"}), 2, "too large");
  check_refusal(run({"--nnodes", "2", "--rdzv", "node1:29500", "true"}), 2, "the scheme is not known");
  check_refusal(run({"--nnodes", "2", "--rdzv", "unix:@name", "true"}), 2, "that all machines reach");
  check_refusal(run({"--hostfile", "/nowhere/hosts", "true"}), 2, "/nowhere/hosts");
  check_refusal(run({"--nnodes", "2", "--nproc-per-node", "2", "true"}), 2, "wants --node-rank");
  check_refusal(run({"--nnodes", "2", "--node-rank", "2", "--master-addr", "a", "true"}), 2, "is not below --nnodes 2");
  check_refusal(run({"--nnodes", "2", "--node-rank", "1", "true"}), 2, "wants where the ranks meet");
  check_refusal(run({"--node-rank", "1", "-n", "2", "true"}), 2, "add --nnodes");
  check_refusal(run({"-n", "2", "--nproc-per-node", "2", "true"}), 2, "keep one");
  check_refusal(run({"--hosts", "a:2", "--master-addr", "a/b", "true"}), 2, "--master-addr wants the name or address");
}

TEST_CASE("run/usage: on one machine, an option that has nothing to act on is refused") {
  check_refusal(run({"-n", "1", "--ssh", "ssh -v", "true"}), 2, "--ssh is for machines that are reached by ssh: add");
  check_refusal(run({"-n", "1", "--remote-tutti-run", "/a", "true"}), 2, "--remote-tutti-run is for machines");
  check_refusal(run({"-n", "1", "--master-addr", "a", "true"}), 2, "--master-addr says where the ranks of several");
  check_refusal(run({"-n", "1", "--master-port", "1", "true"}), 2, "--master-port says where the ranks of several");
  check_refusal(run({"-n", "1", "--rdzv", "tcp://a:1", "true"}), 2, "--rdzv says where the ranks of several machines");
  // Scripts that take any number of machines.
  CHECK(run({"--nnodes", "1", "--node-rank", "0", "--master-addr", "a", "--master-port", "1", "true"}).status == 0);
  CHECK(run({"-n", "1", "true"}, [] { ::setenv("TUTTI_SSH", "ssh -v", 1); }).status == 0);
}

TEST_CASE("run/usage: the working directory of the ranks, and variables that they have anyway") {
  const tutti_test::temporary_directory folder;
  make_file(folder, "where", "#!/bin/sh\necho $PWD $(pwd) $MINE\n", 0755);
  const std::string path = std::filesystem::canonical(folder.path()).string();
  const auto done = run({"-n", "2", "--wdir", path, "-x", "MINE", "./where"}, [] { ::setenv("MINE", "yes", 1); });
  CHECK(sorted_lines(done.out) ==
        std::multiset<std::string>{"[0] " + path + ' ' + path + " yes", "[1] " + path + ' ' + path + " yes"});
  check_refusal(run({"-n", "1", "--wdir", "/no/such/folder", "true"}), 1, "working directory /no/such/folder: No such");
}

TEST_CASE("run/usage: torchrun's words, with underscores, too") {
  const auto done =
      run(script({"--nnodes=2", "--node_rank=1", "--nproc_per_node=2", "--master_addr=node0", "--master_port=29501"},
                 "echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $MASTER_ADDR $MASTER_PORT "
                 "$TUTTI_RENDEZVOUS ${TUTTI_SECRET_FILE-none}"));
  CAPTURE(done.err);
  CHECK(done.status == 0);
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  const std::string host = name.data();
  const std::string rest = " 4 2 1 node0 29502 tcp://node0:29501 none";  // 29502: for a server of the program's own
  CHECK(sorted_lines(done.out) ==
        std::multiset<std::string>{"[2 " + host + "] 2 0" + rest, "[3 " + host + "] 3 1" + rest});
  const auto alone = run(script({"--nproc-per-node", "2"}, "echo $RANK $WORLD_SIZE"));
  CHECK(sorted_lines(alone.out) == std::multiset<std::string>{"[0] 0 2", "[1] 1 2"});
  const auto url = run(script({"--nnodes", "2", "--node-rank", "0", "--rdzv", "file:///shared/job"},
                              "echo $TUTTI_RENDEZVOUS ${MASTER_ADDR-none} $WORLD_SIZE"));
  CHECK(url.out == "[0 " + host + "] file:///shared/job none 2\n");
}

TEST_CASE("run/usage: help goes to stdout and has an example") {
  const auto done = run({"--help"});
  CHECK(done.status == 0);
  CHECK(done.err.empty());
  CHECK(contains(done.out, "Example:  tutti-run -n 4"));
  CHECK(lines_of(done.out).size() < 75);
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
  check_refusal(run({"-n", "64", "echo"}, limited), 2, "64 ranks need 352 open files, and the limit is 100");
  check_refusal(run({"-n", "64", "echo"}, limited), 2, "at most 13");
  std::string hosts = "node1:1";
  for (int i = 2; i <= 64; ++i) hosts += ",node" + std::to_string(i) + ":1";
  check_refusal(run({"--hosts", hosts, "echo"}, limited), 2, "64 machines need 352 open files");
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
