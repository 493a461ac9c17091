#include "tutti-run/options.hpp"

#include <getopt.h>

#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include <tutti/bootstrap/rendezvous/url.hpp>
#include <tutti/os/host.hpp>

#include "tutti-run/posix.hpp"
#include "tutti-run/ranks/devices.hpp"
#include "tutti-run/ranks/environment.hpp"

namespace tutti::launch {
namespace {

constexpr std::string_view help =
    R"(usage: tutti-run -n RANKS [options] [--] program [argument ...]
       tutti-run --hosts node1:4,node2:4 [options] [--] program [argument ...]
       tutti-run --status [PID] [--json]

Starts copies of a program on this machine or, by ssh, on several, shows what
they print as "[rank] line" or "[rank host] line", and leaves no process behind
on any machine, however the job ends.

  -n RANKS            how many ranks to start
  --output MODE       prefix  "[rank] line" (default; but a single rank on a
                              terminal writes to it directly)
                      plain   ranks write to this terminal or file themselves
                      rank0   only rank 0 is shown, as in plain
  --env NAME=VALUE    set a variable in every rank; may be repeated
  --wdir FOLDER       the working directory of the ranks (default: this one)
  --bind HOW          none    (default)
                      core    rank r runs on the r-th of the CPUs allowed here
                              and begins again when there are no more
                      numa    ranks are spread over the NUMA nodes, neighbours
                              together, each on all CPUs of its node that are
                              allowed here; on one node the same as none
  --devices LIST      the GPUs of the ranks, as in 4,5,6,7 or GPU-8d4f...: each
                      rank sees its own only (CUDA_VISIBLE_DEVICES), as device 0
  --flight FOLDER     every rank keeps its last calls there, for tutti-flight,
                      which says which rank is stuck (TUTTI_FLIGHT_DIR)
  --trace FOLDER      every rank writes its operations there, as a trace for
                      Perfetto (TUTTI_TRACE_DIR)
  --metrics FOLDER    every rank writes metrics for Prometheus there
                      (TUTTI_METRICS_DIR)
  --timeout SECONDS   end the job after this time
  --settle SECONDS    after the first failure, leave the other ranks this time
                      to end by themselves and say why (default: 1)
  --grace SECONDS     from SIGTERM to SIGKILL (default: 5)
  -h, --help          show this text

Status of a job of yours that runs, started by tutti-run or otherwise: the calls
that its ranks are in, for how long, for whom they wait, and who is late.
  --status [PID]      PID: a process of the job, where several run. On a
                      terminal it goes on until Ctrl-C; else it is shown once.
                      Exit status 1 if a rank is stuck. In the terminal of
                      tutti-run itself, Ctrl-\ shows the status once
  --json              the same for programs

Several machines from one command. --bind and --devices count on each machine.
  --hosts LIST        machines and their ranks, as in node1:4,user@node2:4
  --hostfile FILE     the same, a line each: "node1 slots=4" or "node1:4"
  -n RANKS            of these, only so many; --nproc-per-node RANKS: so many on
                      each machine that has no number
  -x NAME             give all ranks this variable of this environment, as all
                      TUTTI_ variables; may be repeated
  --ssh COMMAND       instead of ssh, as in "ssh -p 2222" (or TUTTI_SSH)
  --remote-tutti-run PATH   where tutti-run is there (default: the same as here)
  --master-addr HOST, --master-port PORT   where tutti's ranks reach rank 0

Once on each machine, as torchrun:
  tutti-run --nnodes 2 --node-rank 0 --nproc-per-node 4 \
            --master-addr node1 --master-port 29500 [--] program
  --rdzv URL instead of the last two: tcp://node1:29500 or file:///shared/job.
  The secret is yours: export TUTTI_SECRET_FILE=file (mode 600, on each machine)

Ranks find RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
MASTER_PORT, for a server of the program's own on rank 0, in their environment.
Rank 0 reads this program's stdin.

Exit status: that of the rank that failed first (128 + its number for a
signal), 0 if none did; 124 after --timeout, 126 or 127 if the program cannot
be run or found, 2 for a mistake on the command line, 1 if output or a machine
was lost.

Example:  tutti-run -n 4 --env OMP_NUM_THREADS=1 ./train --epochs 3
)";

[[noreturn]] void refuse(const std::string& what) { throw failure(2, text(what, " (see tutti-run --help)")); }

int number(std::string_view option, std::string_view wanted, std::string_view value, int least) {
  int count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (error == std::errc::result_out_of_range) refuse(text(option, ' ', value, " is too large"));
  if (error != std::errc{} || end != value.data() + value.size() || count < least)
    refuse(text(option, " wants ", wanted, ", ", least, " or more, and got '", value, "'"));
  return count;
}

int port_number(std::string_view value) {
  const int port = number("--master-port", "a port", value, 1);
  if (port > 65535) refuse(text("--master-port ", value, " is too large"));
  return port;
}

std::chrono::milliseconds duration(std::string_view option, std::string_view value) {
  constexpr int most = 30'000'000;  // about a year: far below where a time point would overflow
  double seconds = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), seconds);
  if (error != std::errc{} || end != value.data() + value.size() || !(seconds >= 0) || seconds > most)
    refuse(text(option, " wants a time of 0 to ", most, " seconds, such as 2.5, and got '", value, "'"));
  return std::chrono::milliseconds{std::llround(seconds * 1000)};
}

/// Returns the path from the root: ranks may change their folder.
std::string absolute_folder(std::string_view option, std::string_view value) {
  if (value.empty()) refuse(text(option, " wants a folder"));
  return std::filesystem::absolute(value).lexically_normal().string();
}

std::string assignment(std::string_view value) {
  const auto equals = value.find('=');
  if (equals == std::string_view::npos || equals == 0) refuse(text("--env wants NAME=VALUE and got '", value, "'"));
  if (const auto name = value.substr(0, equals); is_identity(name))
    refuse(text("--env cannot set ", name, ": tutti-run gives each rank its own value"));
  return std::string{value};
}

std::string exported_name(std::string_view value) {
  if (value.empty() || value.find('=') != std::string_view::npos)
    refuse(text("-x wants the name of a variable and got '", value, "'; --env sets one"));
  if (is_identity(value)) refuse(text("-x cannot hand over ", value, ": tutti-run gives each rank its own value"));
  if (is_foreign(value))
    refuse(text("-x cannot hand over ", value, ", by which a rank knows the launcher that started it: --env sets it"));
  return std::string{value};
}

std::string address_of_rank_0(std::string_view value) {
  const rendezvous_url url{.kind = rendezvous_url::scheme::tcp, .host = std::string{value}, .port = 1};
  try {
    static_cast<void>(parse_rendezvous(to_string(url)));
  } catch (const usage_error&) {
    refuse(text("--master-addr wants the name or address of rank 0's machine and got '", value, "'"));
  }
  return url.host;
}

std::string rendezvous_url_of(std::string_view value) {
  using enum rendezvous_url::scheme;
  rendezvous_url url;
  try {
    url = parse_rendezvous(value);
  } catch (const usage_error& why) {
    refuse(text("--rdzv: ", why.what()));
  }
  if (url.kind != tcp && url.kind != file)
    refuse(
        text("--rdzv wants a place that all machines reach, tcp://host:port or file:///path, and got '", value, "'"));
  return std::string{value};
}

// The options for machines together.
struct machine_words {
  std::vector<machine_slots> hosts;
  std::optional<int> each;      // --nproc-per-node
  std::optional<int> machines;  // --nnodes
  std::optional<int> machine;   // --node-rank
  std::string_view by_ssh;      // an option that was given, of those that are only for machines that we reach by ssh
  std::string_view meeting;     // the same for those that say where the ranks of several machines meet
};

// One launcher of several, each for its machine.
void settle_part(options& result, const machine_words& said) {
  const auto& master = result.machines;
  const int machines = said.machines.value_or(1);
  if (said.machine && !said.machines) refuse("--node-rank is for a job of several machines: add --nnodes");
  if (!said.by_ssh.empty())
    refuse(text(said.by_ssh, " is for machines that are reached by ssh: add --hosts, or leave it out"));
  if (!said.meeting.empty() && !said.machines)
    refuse(text(said.meeting,
                " says where the ranks of several machines meet, and these are all on this one: add --hosts or "
                "--nnodes, or leave it out"));
  if (said.each && result.ranks != 0) refuse("-n and --nproc-per-node say the same here: keep one");
  if (said.each) result.ranks = *said.each;
  if (said.machines && result.ranks == 0) result.ranks = 1;
  if (machines == 1 && said.machine.value_or(0) == 0) return;
  if (!said.machine)
    refuse(text("--nnodes ", machines, " wants --node-rank: 0 on the machine of --master-addr, then 1 and so on"));
  if (*said.machine >= machines)
    refuse(text("--node-rank ", *said.machine, " is not below --nnodes ", machines, ": it counts from 0"));
  if (result.part.rendezvous.empty() == master.master_address.empty())
    refuse(text("--nnodes ", machines,
                " wants where the ranks meet: --master-addr and --master-port of rank 0's "
                "machine, or --rdzv URL, one of the two"));
  result.part.machines = machines;
  result.part.machine = *said.machine;
}

// All machines from here.
void settle_hosts(options& result, machine_words said) {
  if (said.machines || said.machine) refuse("--hosts starts all machines: leave --nnodes and --node-rank out");
  if (!result.part.rendezvous.empty()) refuse("--hosts finds out where the ranks meet: leave --rdzv out");
  unite_names_of_here(said.hosts, os::hostname());
  result.machines.hosts = place_ranks(said.hosts, result.ranks, said.each.value_or(0));
  result.ranks = 0;
  for (const auto& one : result.machines.hosts) result.ranks += one.slots;
}

template <class Choice, std::size_t Count>
Choice choose(std::string_view option, std::string_view value,
              const std::array<std::pair<std::string_view, Choice>, Count>& choices) {
  std::string known;
  for (const auto& [name, choice] : choices) {
    if (name == value) return choice;
    known += text(known.empty() ? "" : ", ", name);
  }
  refuse(text(option, " wants one of ", known, " and got '", value, "'"));
}

}  // namespace

std::string_view help_text() noexcept { return help; }

options parse_options(int argc, char** argv) {
  enum : int {
    output = 256,
    environment,
    bind,
    devices,
    flight,
    trace,
    metrics,
    status,
    timeout,
    settle,
    grace,
    hosts,
    hostfile,
    ssh,
    launcher,
    folder,
    address,
    port,
    machines,
    machine,
    each,
    rendezvous
  };
  static constexpr std::array known{option{"output", required_argument, nullptr, output},
                                    option{"env", required_argument, nullptr, environment},
                                    option{"bind", required_argument, nullptr, bind},
                                    option{"devices", required_argument, nullptr, devices},
                                    option{"flight", required_argument, nullptr, flight},
                                    option{"trace", required_argument, nullptr, trace},
                                    option{"metrics", required_argument, nullptr, metrics},
                                    option{"status", no_argument, nullptr, status},
                                    option{"timeout", required_argument, nullptr, timeout},
                                    option{"settle", required_argument, nullptr, settle},
                                    option{"grace", required_argument, nullptr, grace},
                                    option{"hosts", required_argument, nullptr, hosts},
                                    option{"hostfile", required_argument, nullptr, hostfile},
                                    option{"ssh", required_argument, nullptr, ssh},
                                    option{"remote-tutti-run", required_argument, nullptr, launcher},
                                    option{"wdir", required_argument, nullptr, folder},
                                    option{"master-addr", required_argument, nullptr, address},
                                    option{"master_addr", required_argument, nullptr, address},
                                    option{"master-port", required_argument, nullptr, port},
                                    option{"master_port", required_argument, nullptr, port},
                                    option{"nnodes", required_argument, nullptr, machines},
                                    option{"node-rank", required_argument, nullptr, machine},
                                    option{"node_rank", required_argument, nullptr, machine},
                                    option{"nproc-per-node", required_argument, nullptr, each},
                                    option{"nproc_per_node", required_argument, nullptr, each},
                                    option{"rdzv", required_argument, nullptr, rendezvous},
                                    option{"help", no_argument, nullptr, 'h'},
                                    option{nullptr, 0, nullptr, 0}};
  static constexpr std::array modes{std::pair{std::string_view{"prefix"}, output_mode::prefix},
                                    std::pair{std::string_view{"plain"}, output_mode::plain},
                                    std::pair{std::string_view{"rank0"}, output_mode::rank0}};
  static constexpr std::array bindings{std::pair{std::string_view{"none"}, binding::none},
                                       std::pair{std::string_view{"core"}, binding::core},
                                       std::pair{std::string_view{"numa"}, binding::numa}};
  options result;
  machine_words said;
  if (const char* command = std::getenv("TUTTI_SSH"); command && *command) result.machines.ssh = command;
  // '+': stop at the program, whose own options are none of ours. ':': we word the errors.
  for (int found = 0; (found = getopt_long(argc, argv, "+:n:x:h", known.data(), nullptr)) != -1;) {
    const std::string_view value = optarg ? optarg : "";
    switch (found) {
      case 'n':
        result.ranks = number("-n", "the number of ranks", value, 1);
        break;
      case 'x':
        result.machines.exported.push_back(exported_name(value));
        break;
      case hosts:
      case hostfile: {
        if (!said.hosts.empty()) refuse("--hosts and --hostfile are given twice: keep one");
        said.hosts = found == hosts ? parse_hosts(value) : read_hostfile(std::string{value});
        break;
      }
      case ssh:
        result.machines.ssh = value;
        said.by_ssh = "--ssh";
        if (value.find_first_not_of(' ') == std::string_view::npos)
          refuse("--ssh wants a command, such as \"ssh -p 2222\"");
        break;
      case launcher:
        result.machines.launcher = value;
        said.by_ssh = "--remote-tutti-run";
        break;
      case folder:
        result.machines.folder = value;
        if (!value.starts_with('/')) refuse(text("--wdir wants an absolute path and got '", value, "'"));
        break;
      case address:
        result.machines.master_address = address_of_rank_0(value);
        said.meeting = "--master-addr";
        break;
      case port:
        result.machines.master_port = port_number(value);
        said.meeting = "--master-port";
        break;
      case machines:
        said.machines = number("--nnodes", "the number of machines", value, 1);
        break;
      case machine:
        said.machine = number("--node-rank", "the number of this machine", value, 0);
        break;
      case each:
        said.each = number("--nproc-per-node", "the ranks of a machine", value, 1);
        break;
      case rendezvous:
        result.part.rendezvous = rendezvous_url_of(value);
        said.meeting = "--rdzv";
        break;
      case output:
        result.output = choose("--output", value, modes);
        break;
      case environment:
        result.environment.push_back(assignment(value));
        break;
      case bind:
        result.bind = choose("--bind", value, bindings);
        break;
      case devices:
        result.devices = parse_devices(value);
        break;
      case flight:
        result.environment.push_back("TUTTI_FLIGHT_DIR=" + absolute_folder("--flight", value));
        break;
      case trace:
        result.environment.push_back("TUTTI_TRACE_DIR=" + absolute_folder("--trace", value));
        break;
      case metrics:
        result.environment.push_back("TUTTI_METRICS_DIR=" + absolute_folder("--metrics", value));
        break;
      case status:
        refuse("--status looks at a job that runs: write it first, as in tutti-run --status [PID]");
      case timeout:
        result.timeout = duration("--timeout", value);
        break;
      case settle:
        result.settle = duration("--settle", value);
        break;
      case grace:
        result.grace = duration("--grace", value);
        break;
      case 'h':
        return {};
      case ':':
        refuse(text(argv[optind - 1], " wants a value"));
      default:
        refuse(text("unknown option ", argv[optind - 1]));
    }
  }
  if (said.hosts.empty())
    settle_part(result, said);
  else
    settle_hosts(result, said);
  if (result.ranks == 0) refuse("the number of ranks is missing: write tutti-run -n 4 program");
  result.command.assign(argv + optind, argv + argc);
  if (result.command.empty() || result.command.front().empty())
    refuse(text("the program is missing: write tutti-run -n ", result.ranks, " program [argument ...]"));
  return result;
}

}  // namespace tutti::launch
