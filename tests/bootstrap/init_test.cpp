#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <tutti/bootstrap/init.hpp>
#include <tutti/impl/bootstrap/init.hpp>
#include <tutti/os/interfaces.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "support/temporary_directory.hpp"

namespace {

using namespace std::chrono_literals;
using tutti::errc;
using tutti::init_options;
using tutti::transport_choice;
using tutti::detail::init_plan;
using scheme = tutti::rendezvous_url::scheme;

using variables = std::map<std::string, std::string, std::less<>>;

auto environment_of(const variables& v) {
  return [&v](std::string_view name) {
    const auto at = v.find(name);
    return at == v.end() ? std::nullopt : std::optional<std::string_view>(at->second);
  };
}

init_plan plan(const variables& v, const init_options& o = {}) {
  return tutti::detail::plan_init(o, environment_of(v), 1000, [] { return std::optional<std::string>("hydra-5-6"); });
}

init_options at(std::string url) {
  init_options o;
  o.rendezvous = std::move(url);
  return o;
}

std::string where(const init_plan& p) { return p.where.kind == scheme::env ? "nowhere" : to_string(p.where); }

std::string message_of(const variables& v, const init_options& o = {}) {
  try {
    static_cast<void>(plan(v, o));
  } catch (const tutti::usage_error& e) {
    return e.what();
  }
  return "no error";
}

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

tutti::rank_info member(int rank, std::string host, std::string domain, int local_size) {
  tutti::rank_info p;
  p.rank = rank;
  p.pid = 100 + rank;
  p.host = std::move(host);
  p.memory_domain = std::move(domain);
  p.local_size = local_size;
  return p;
}

}  // namespace

TEST_CASE("without a launcher the plan is a world of one") {
  const init_plan p = plan({});
  CHECK(p.rank == 0);
  CHECK(p.world_size == 1);
  CHECK(where(p) == "nowhere");
}

TEST_CASE("options go before the environment") {
  const variables launcher{{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}};
  init_plan p = plan(launcher, at("tcp://b:7?rank=2&world_size=3"));
  CHECK(p.rank == 2);
  CHECK(p.world_size == 3);
  CHECK(where(p) == "tcp://b:7");
  CHECK_FALSE(p.exact_count);

  p = plan(launcher, at("unix:@x"));  // the place only: who this is, the launcher knows
  CHECK(p.rank == 1);
  CHECK(p.world_size == 4);
  CHECK(where(p) == "unix:@x");

  init_options numbers;
  numbers.rank = 0;
  numbers.world_size = 2;
  CHECK(where(plan(launcher, numbers)) == "tcp://a:5");
  CHECK(where(plan(launcher, at("env://"))) == "tcp://a:5");

  init_options job = at("unix:@x");
  job.job = "mine";
  CHECK(plan(launcher, job).job == "mine");
  CHECK(plan({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"TUTTI_JOB", "theirs"}}, job).job == "mine");
}

TEST_CASE("a world size in the options' URL alone is compared with the launcher's") {
  const variables task{{"SLURM_STEP_ID", "0"},        {"SLURM_JOB_ID", "7"},         {"SLURM_PROCID", "2"},
                       {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_LOCALID", "0"}};
  const init_plan p = plan(task, at("file:///shared/meet?world_size=4"));
  CHECK(p.rank == 2);
  CHECK(p.world_size == 4);
  CHECK(where(p) == "file:///shared/meet");
  CHECK(where(plan(task, at("file:///shared/meet?rank=2"))) == "file:///shared/meet");
  for (const std::string part : {"world_size=2", "SLURM_STEP_NUM_TASKS=\"4\""})
    CHECK(contains(message_of(task, at("file:///shared/meet?world_size=2")), part));
}

TEST_CASE("a world size in nodes is refused where srun counts tasks, on all of them") {
  for (const int r : {0, 1, 2, 3}) {
    const variables task{{"SLURM_STEP_ID", "0"},
                         {"SLURM_JOB_ID", "7"},
                         {"SLURM_PROCID", std::to_string(r)},
                         {"SLURM_STEP_NUM_TASKS", "4"},
                         {"SLURM_STEP_NUM_NODES", "2"}};
    init_options options = at("file:///shared/meet");
    options.rank = r;
    options.world_size = 2;
    variables by_hand = task;
    by_hand.insert({{"TUTTI_RANK", std::to_string(r)}, {"TUTTI_WORLD_SIZE", "2"}});
    for (const std::string& why : {message_of(task, options), message_of(by_hand, at("file:///shared/meet"))}) {
      CAPTURE(why);
      for (const std::string part : {"size 2", "SLURM_STEP_NUM_NODES=\"2\"", "SLURM_STEP_NUM_TASKS=\"4\""})
        CHECK(contains(why, part));
      CHECK(contains(why, "SLURM_PROCID=\"" + std::to_string(r) + "\""));
    }
  }
}

TEST_CASE("TUTTI_NETWORK decides where the options leave it open") {
  const variables base{{"TUTTI_RANK", "0"}, {"TUTTI_WORLD_SIZE", "2"}, {"TUTTI_RENDEZVOUS", "tcp://a:5"}};
  const auto network = [&](const char* value, const init_options& o = {}) {
    variables v = base;
    if (value) v["TUTTI_NETWORK"] = value;
    return plan(v, o).network;
  };
  CHECK(network(nullptr) == tutti::exposure::guarded);
  CHECK(network("guarded") == tutti::exposure::guarded);
  CHECK(network("insecure") == tutti::exposure::insecure);
  init_options open;
  open.network = tutti::exposure::insecure;
  CHECK(network("guarded", open) == tutti::exposure::insecure);
  variables odd = base;
  odd["TUTTI_NETWORK"] = "Insecure";
  CHECK(contains(message_of(odd), "is not guarded or insecure"));
}

TEST_CASE("only a Slurm step of several machines has a secret from rank 0") {
  const variables step{{"SLURM_JOB_ID", "7"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", "1"},
                       {"SLURM_STEP_NUM_TASKS", "2"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                       {"SLURM_STEP_NODELIST", "n[1-2]"},
                       {"SLURM_SUBMIT_DIR", "/d"}};
  CHECK(plan(step).step_secret == "/d/.tutti-secret-7.0");
  CHECK(plan(step).by == tutti::launcher::slurm);
  variables one = step;
  one["SLURM_STEP_TASKS_PER_NODE"] = "2";
  one["SLURM_NODEID"] = "0";
  CHECK(plan(one).step_secret.empty());
  variables by_hand = step;
  by_hand.insert({{"SLURM_STEP_NUM_NODES", "2"}, {"TUTTI_RANK", "1"}, {"TUTTI_WORLD_SIZE", "2"}});
  CHECK(plan(by_hand, at("file:///d/meet")).step_secret == "/d/.tutti-secret-7.0");
  by_hand["SLURM_STEP_NUM_NODES"] = "1";
  CHECK(plan(by_hand, at("file:///d/meet")).step_secret.empty());
  variables torchrun = step;
  for (const auto& [name, value] : variables{{"RANK", "1"},
                                             {"WORLD_SIZE", "2"},
                                             {"LOCAL_RANK", "0"},
                                             {"LOCAL_WORLD_SIZE", "1"},
                                             {"GROUP_WORLD_SIZE", "2"},
                                             {"MASTER_ADDR", "n1"},
                                             {"MASTER_PORT", "5"}})
    torchrun[name] = value;
  CHECK(plan(torchrun).by == tutti::launcher::torchrun);
  CHECK(plan(torchrun).step_secret.empty());
}

TEST_CASE("options that make no sense are refused") {
  init_options half;
  half.rank = 1;
  CHECK(contains(message_of({}, half), "together"));
  CHECK(contains(message_of({}, at("unix:@x?rank=1")), "or neither"));
  init_options twice = at("unix:@x?rank=1&world_size=2");
  twice.rank = 0;
  twice.world_size = 2;
  CHECK(contains(message_of({}, twice), "contradicts"));
  init_options negative = at("unix:@x");
  negative.rank = -1;
  negative.world_size = 2;
  CHECK(contains(message_of({}, negative), "count from 0"));
  CHECK(contains(message_of({}, at("unix:@x")), "init_options"));  // nobody says which rank this is
  CHECK(contains(message_of({}, at("carrier:pigeon")), "scheme"));
}

TEST_CASE("a rank beyond its world that cannot join is told so with the number it was given") {
  CHECK(contains(message_of({{"TUTTI_RANK", "3"}, {"TUTTI_WORLD_SIZE", "2"}}), "rank 3 is beyond its world"));
}

TEST_CASE("a rank beyond its world joins all the same, so that the others hear of it") {
  for (const variables& v :
       {variables{{"RANK", "3"},
                  {"WORLD_SIZE", "2"},
                  {"LOCAL_RANK", "3"},
                  {"LOCAL_WORLD_SIZE", "2"},
                  {"MASTER_ADDR", "a"},
                  {"MASTER_PORT", "5"}},
        variables{{"TUTTI_RANK", "3"}, {"TUTTI_WORLD_SIZE", "2"}, {"TUTTI_RENDEZVOUS", "tcp://a:5"}}}) {
    const init_plan p = plan(v);
    CHECK(p.rank == 3);
    CHECK(p.world_size == 2);
    CHECK(where(p) == "tcp://a:5");
    CHECK_FALSE(p.exact_count);
  }
  init_options o = at("unix:@x");
  o.rank = 2;
  o.world_size = 2;
  CHECK(plan({}, o).rank == 2);
}

TEST_CASE("a launcher vouches for the number of processes where it named the place") {
  variables run{{"RANK", "0"},
                {"WORLD_SIZE", "2"},
                {"TUTTI_JOB", "ab"},
                {"TUTTI_RENDEZVOUS", "unix:@tutti-ab"},
                {"TUTTI_REPORT_FD", "1023"}};
  CHECK(plan(run).exact_count);
  CHECK_FALSE(plan(run, at("unix:@tutti-ab?rank=0&world_size=2")).exact_count);
  run.erase("TUTTI_REPORT_FD");
  CHECK_FALSE(plan(run).exact_count);  // the same by hand

  const variables step{{"SLURM_JOB_ID", "7"},
                       {"SLURM_STEP_ID", "1"},
                       {"SLURM_PROCID", "0"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_STEP_NUM_TASKS", "2"},
                       {"SLURM_NODEID", "0"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2"}};
  CHECK(where(plan(step)) == "unix:@tutti-1000-7.1");
  CHECK(plan(step).exact_count);
  CHECK_FALSE(plan({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "5"}}).exact_count);
}

TEST_CASE("torchrun on one machine meets at a socket, on several beside torchrun's port") {
  variables v{{"RANK", "0"},
              {"WORLD_SIZE", "2"},
              {"LOCAL_RANK", "0"},
              {"LOCAL_WORLD_SIZE", "2"},
              {"GROUP_WORLD_SIZE", "1"},
              {"MASTER_ADDR", "127.0.0.1"},
              {"MASTER_PORT", "29500"},
              {"TORCHELASTIC_RUN_ID", "none"},
              {"TORCHELASTIC_RESTART_COUNT", "1"},
              {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  const std::string socket = where(plan(v));
  CHECK(contains(socket, "unix:@tutti-1000-torchrun-29500-none-1"));
  CHECK(plan(v).exact_count);
  v["TORCHELASTIC_RESTART_COUNT"] = "2";
  CHECK(where(plan(v)) != socket);
  v["TUTTI_RENDEZVOUS"] = "tcp://b:1";
  CHECK(where(plan(v)) == "tcp://b:1");
  v.erase("TUTTI_RENDEZVOUS");
  v["WORLD_SIZE"] = "4";
  v["GROUP_WORLD_SIZE"] = "2";
  CHECK(where(plan(v)) == "tcp://127.0.0.1:29501");
}

TEST_CASE("MPICH's jobs get the name that they lack, on one machine") {
  variables v{{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}};
  CHECK(where(plan(v)) == "unix:@tutti-1000-hydra-5-6");
  v["TUTTI_JOB"] = "named";
  CHECK(where(plan(v)) == "unix:@tutti-1000-named");
  v.erase("TUTTI_JOB");
  v["MPI_LOCALNRANKS"] = "1";
  CHECK(contains(message_of(v), "MASTER_ADDR"));
  // This process has a parent, whatever it is: two calls give the same name.
  CHECK(tutti::detail::hydra_job() == tutti::detail::hydra_job());
  CHECK(tutti::detail::parent_of(::getpid()).pid == ::getppid());
}

TEST_CASE("transport, interface and connections come from options, else from the environment") {
  const variables v{{"TUTTI_TRANSPORT", "tcp"}, {"TUTTI_INTERFACE", "eth7"}, {"TUTTI_CONNECTIONS", "4"}};
  CHECK(plan(v).transport == transport_choice::tcp);
  CHECK(plan(v).interface == "eth7");
  CHECK(plan(v).connections == 4);
  init_options o;
  o.transport = transport_choice::shm;
  o.interface = "lo";
  o.connections = 2;
  CHECK(plan(v, o).connections == 2);
  CHECK(plan({}).connections == 1);
  o.connections = 17;
  CHECK(contains(message_of({}, o), "init_options::connections, 17, is not a number from 1 to 16"));
  o.connections = 2;
  for (const char* odd : {"0", "17", "-1", "", "two"})
    CHECK(contains(message_of({{"TUTTI_CONNECTIONS", odd}}), "is not a number from 1 to 16"));
  CHECK(plan(v, o).transport == transport_choice::shm);
  CHECK(plan(v, o).interface == "lo");
  CHECK(plan({}).transport == transport_choice::automatic);
  CHECK(contains(message_of({{"TUTTI_TRANSPORT", "pigeon"}}), "\"pigeon\""));
}

TEST_CASE("encryption comes from options, else from the environment") {
  using tutti::encryption_choice;
  const variables v{{"TUTTI_ENCRYPTION", "tls"}};
  CHECK(plan({}).encryption == encryption_choice::none);
  CHECK(plan(v).encryption == encryption_choice::tls);
  CHECK(plan({{"TUTTI_ENCRYPTION", "none"}}).encryption == encryption_choice::none);
  init_options o;
  o.encryption = encryption_choice::none;
  CHECK(plan(v, o).encryption == encryption_choice::none);
  o.encryption = encryption_choice::tls;
  CHECK(plan({}, o).encryption == encryption_choice::tls);
  for (const char* odd : {"", "TLS", "1", "ssl"})
    CHECK(contains(message_of({{"TUTTI_ENCRYPTION", odd}}), "is not none or tls"));
}

TEST_CASE("a secret comes from a value, a file, a descriptor or the environment") {
  tutti_test::temporary_directory folder;
  const std::string path = folder.file("secret"), digits(64, 'a');
  std::ofstream{path} << digits;
  ::chmod(path.c_str(), 0600);
  const auto expected = tutti::wire::secret::from_hex(digits).value();
  const variables none;
  CHECK(tutti::secret_source::file(path).load(environment_of(none)) == expected);
  CHECK(tutti::secret_source::value(expected).load(environment_of(none)) == expected);
  CHECK_FALSE(tutti::secret_source{}.load(environment_of(none)).has_value());

  const tutti::os::fd open{::open(path.c_str(), O_RDONLY)};  // inherited descriptors are not close-on-exec
  const std::string number = std::to_string(open.native());
  const variables by_number{{"TUTTI_SECRET_FD", number}, {"TUTTI_SECRET_FILE", "/nowhere"}},
      by_file{{"TUTTI_SECRET_FILE", path}};
  CHECK(tutti::secret_source{}.load(environment_of(by_number)) == expected);
  CHECK((::fcntl(open.native(), F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(tutti::secret_source{}.load(environment_of(by_number)) == expected);  // a second world reads it again
  CHECK(tutti::secret_source{}.load(environment_of(by_file)) == expected);
  CHECK(tutti::secret_source::descriptor(open.native()).load(environment_of(none)) == expected);

  ::chmod(path.c_str(), 0640);
  CHECK_THROWS_AS(static_cast<void>(tutti::secret_source::file(path).load(environment_of(none))), tutti::error);
}

TEST_CASE("ranks get the links that their places allow") {
  using tutti::detail::link_needs;
  const tutti::roster one{member(0, "a", "m", 2), member(1, "a", "m", 2)};
  const tutti::roster two{member(0, "a", "m", 2), member(1, "a", "m", 2), member(2, "b", "n", 1)};
  const link_needs local{one, one[0], transport_choice::automatic};
  CHECK((local.memory && !local.network && !local.bells));
  const link_needs tcp{one, one[0], transport_choice::tcp};
  CHECK((!tcp.memory && tcp.network && !tcp.bells));
  const link_needs both{two, two[0], transport_choice::automatic};
  CHECK((both.memory && both.network && both.bells));
  const link_needs lonely{two, two[2], transport_choice::automatic};
  CHECK((!lonely.memory && lonely.network && !lonely.bells));
  const link_needs alone{{member(0, "a", "m", 1)}, member(0, "a", "m", 1), transport_choice::tcp};
  CHECK_FALSE(alone.network);
  try {
    static_cast<void>(link_needs{two, two[0], transport_choice::shm});
    FAIL("memory was shared across machines");
  } catch (const tutti::error& e) {
    CHECK(e.kind() == errc::rendezvous);
    CHECK(e.peer() == 2);
  }
}

TEST_CASE("a rank listens where its peers can reach it") {
  std::string reached;
  const auto address_for_peers = [&](const init_plan& plan, const tutti::roster& all, const tutti::rank_info& self) {
    return tutti::detail::address_for_peers(plan, all, self, [&] { return reached; });
  };
  const tutti::roster near{member(0, "a", "m", 1), member(1, "a", "n", 1)};
  const tutti::roster far{member(0, "a", "m", 1), member(1, "127.0.0.9", "n", 1)};
  init_plan p;
  p.where = tutti::parse_rendezvous("unix:@x");
  CHECK(address_for_peers(p, near, near[0]) == "127.0.0.1");
  p.where = tutti::parse_rendezvous("tcp://127.0.0.1:5");
  CHECK(address_for_peers(p, near, near[0]) == "127.0.0.1");
  p.where = tutti::parse_rendezvous("file:///tmp/x");
  CHECK(address_for_peers(p, near, near[0]) == "127.0.0.1");
  CHECK_THROWS_AS(static_cast<void>(address_for_peers(p, far, far[0])), tutti::error);
  for (const std::string& name : tutti::os::interface_names())  // as if another machine were behind it
    if (const auto own = tutti::os::interface_endpoints(name).front(); !own.is_loopback() && own.scope() == 0) {
      const std::string address = tutti::detail::host_of(own);
      const tutti::roster apart{member(0, "a", "m", 1), member(1, address, "n", 1)};
      CHECK(address_for_peers(p, apart, apart[0]) == address);
    }
  // The machine of the rendezvous may go by a loopback address on itself only.
  p.where = tutti::parse_rendezvous("tcp://127.0.1.1:5");
  CHECK_THROWS_AS(static_cast<void>(address_for_peers(p, far, far[0])), tutti::error);
  reached = "10.0.0.7";
  CHECK(address_for_peers(p, near, near[0]) == "127.0.1.1");
  CHECK(address_for_peers(p, far, far[0]) == "10.0.0.7");
  p.interface = "eth3";
  CHECK(address_for_peers(p, far, far[0]) == "eth3");

  tutti::roster all = far;
  all[1].endpoint = "10.0.0.1:5";
  CHECK_NOTHROW(tutti::detail::check_places(all));
  all[1].endpoint = "127.0.0.1:5";
  CHECK_THROWS_AS(tutti::detail::check_places(all), tutti::error);
  all[1].host = "a";
  CHECK_NOTHROW(tutti::detail::check_places(all));

  all[0].endpoint = "[fe80::1%eth7]:5";
  all[1].endpoint = "[fe80::2%eth0]:6";
  tutti::detail::see_from_here(all, all[1]);
  CHECK(all[0].endpoint == "[fe80::1%eth0]:5");
  CHECK(all[1].endpoint == "[fe80::2%eth0]:6");
  all[1].endpoint = "10.0.0.1:6";
  tutti::detail::see_from_here(all, all[1]);
  CHECK(all[0].endpoint == "[fe80::1%eth0]:5");
}

TEST_CASE("a place that is taken by something else is an error in bounded time") {
  tutti_test::temporary_directory folder;
  const std::string path = folder.file("socket");
  tutti::detail::participant who;
  who.world_size = 2;
  who.until = tutti::after(100s);
  const auto url = tutti::parse_rendezvous("unix:" + path);
  {
    const tutti::os::fd other = tutti::os::listen_on(tutti::os::endpoint::unix_socket(path));
    try {
      const tutti::detail::rendezvous_store m{url, who};
      FAIL("two listen at one address");
    } catch (const tutti::error& e) {
      CHECK(e.kind() == errc::rendezvous);
      CHECK(contains(e.what(), "asked as a rank would"));
    }
  }
  // Its file outlives the listener, as after a kill; now nobody is there.
  tutti::detail::rendezvous_store host{url, who};
  CHECK(host.is_host());
  host.leave(tutti::after(1s));
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a stop ends the search for the other ranks") {
  std::stop_source stop;
  tutti::detail::participant who;
  who.rank = 1;
  who.world_size = 2;
  who.until = tutti::after(200s);
  who.stop = stop.get_token();
  const std::jthread later{[&] {
    std::this_thread::sleep_for(20ms);
    stop.request_stop();
  }};
  try {
    const tutti::detail::rendezvous_store m{tutti::parse_rendezvous("unix:@tutti-nobody-" + std::to_string(::getpid())),
                                            who};
    FAIL("found somebody");
  } catch (const tutti::error& e) {
    CHECK(e.kind() == errc::aborted);
  }
}

TEST_CASE("init refuses timeouts that are none") {
  init_options o;
  o.join_timeout = 0s;
  CHECK_THROWS_AS(static_cast<void>(tutti::init(o)), tutti::usage_error);
  o.join_timeout = 1s;
  o.timeout = -1s;
  CHECK_THROWS_AS(static_cast<void>(tutti::init(o)), tutti::usage_error);
}
