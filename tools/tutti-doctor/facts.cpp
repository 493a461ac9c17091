#include "facts.hpp"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <sstream>
#include <system_error>
#include <tutti/backend/nccl/dlopen.hpp>
#include <tutti/bootstrap/init_environment.hpp>
#include <tutti/bootstrap/init_plan.hpp>
#include <tutti/bootstrap/launch/environment.hpp>
#include <tutti/bootstrap/nccl/device_inventory.hpp>
#include <tutti/bootstrap/nccl/environment.hpp>
#include <tutti/bootstrap/secret.hpp>
#include <tutti/cuda/dlopen.hpp>
#include <tutti/os/cgroup.hpp>
#include <tutti/os/free_space.hpp>
#include <tutti/os/host.hpp>
#include <tutti/os/interfaces.hpp>
#include <tutti/os/memory.hpp>
#include <tutti/os/process.hpp>
#include <tutti/os/read_file.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/version.hpp>

namespace tutti::doctor {
namespace {

std::string first_line(const std::string& path) {
  std::string text = os::read_file(path).value_or("");
  return text.substr(0, text.find('\n'));
}

std::int64_t as_limit(rlim_t value) { return value == RLIM_INFINITY ? unlimited : static_cast<std::int64_t>(value); }

std::int64_t limit_of(decltype(RLIMIT_NOFILE) what, rlim_t rlimit::* which = &rlimit::rlim_cur) {
  rlimit now{};
  return ::getrlimit(what, &now) == 0 ? as_limit(now.*which) : unlimited;
}

std::vector<network_interface> interfaces() try {
  std::vector<network_interface> all;
  for (const auto& [name, address] : os::interface_addresses()) {
    auto at = std::ranges::find(all, name, &network_interface::name);
    if (at == all.end()) {
      all.push_back({name, {}, std::atoll(first_line("/sys/class/net/" + name + "/speed").c_str())});
      at = all.end() - 1;
      at->mbits = std::max<std::int64_t>(at->mbits, 0);  // -1: a virtual one
    }
    at->addresses.push_back(os::split_host_port(address.to_string()).first);
  }
  return all;
} catch (const error&) {
  return {};  // the kernel does not list them
}

std::vector<int> allowed_cpus() {
  std::vector<int> all;
  int base = 0;
  for (std::uint64_t word : os::affinity()) {
    for (; word != 0; word &= word - 1) all.push_back(base + std::countr_zero(word));
    base += 64;
  }
  return all;
}

void look_at_devices(rank_facts& f) {
  f.driver = first_line("/proc/driver/nvidia/version");
  using cuda_type = cuda::runtime_dlopen;
  f.no_cuda = cuda_type::missing();
  int n = 0;
  if (f.no_cuda.empty())
    if (const auto r = cuda_type::device_count(n); r != cuda::result::success) f.no_cuda = cuda_type::words(r);
  for (int device = 0; f.no_cuda.empty() && device < n; ++device)
    if (cuda::device_identity who; cuda_type::identify(device, who) == cuda::result::success)
      f.gpus.push_back(std::string{who.model.data()} + " at " + who.pci.data());
  f.no_nccl = nccl_dlopen::missing();
  int version = 0;
  if (f.no_nccl.empty() && nccl_dlopen::version(version) == nccl_result::success)
    f.nccl = detail::nccl_version_text(version);
  const auto around = nccl_environment_of();
  f.nccl_interface = around.no_interface;
  f.nccl_needs_shm = around.shm_free >= 0;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator{"/sys/class/infiniband", unreadable})
    f.fabric.push_back(entry.path().filename());
}

void look_at_secret(rank_facts& f, secret_source& source) try {
  f.secret = "none";
  if (const auto path = process_variable("TUTTI_SECRET_FILE")) {
    f.secret = "file";
    if (struct stat s{}; ::stat(std::string{*path}.c_str(), &s) == 0) {
      std::ostringstream mode;
      mode << std::oct << (s.st_mode & 07777U);
      f.secret += ", mode 0" + mode.str();
    }
  }
  if (process_variable("TUTTI_SECRET_FD")) f.secret = "descriptor";  // precedes the file
  if (const auto secret = source.load(process_variable)) source = secret_source::value(*secret);
} catch (const std::exception& e) {
  f.secret_problem = e.what();
}

/// Looks at what init() makes of the environment.
void look_at_launcher(rank_facts& f) try {
  detail::changed_environment named{process_variable};
  detail::add_hydra_job(named, detail::hydra_job);
  const auto found = read_environment(named);
  if (!found) return;
  f.rank = found->rank;
  f.world_size = found->world_size;
  f.launcher = found->by == launcher::tutti_run ? "tutti-run" : found->source;
  if (found->world_size == 1) return;
  const auto plan = detail::plan_init({}, process_variable, ::getuid());
  f.rendezvous = to_string(plan.where) + " (" + plan.source + ")";
  if (f.secret == "none" && !plan.step_secret.empty() && plan.network == exposure::guarded) f.secret = "of the step";
} catch (const std::exception&) {
  // init() reports it.
}

}  // namespace

rank_facts collect(secret_source& secret) {
  rank_facts f;
  f.host = os::hostname();
  if (utsname about{}; ::uname(&about) == 0) f.kernel = about.release;
  f.tutti = std::to_string(version_major) + "." + std::to_string(version_minor) + "." + std::to_string(version_patch);
  f.pid = ::getpid();
  look_at_secret(f, secret);
  look_at_launcher(f);
  f.interfaces = interfaces();
  f.open_files = limit_of(RLIMIT_NOFILE);
  f.open_files_hard = limit_of(RLIMIT_NOFILE, &rlimit::rlim_max);
  f.processes = limit_of(RLIMIT_NPROC);
  f.locked_memory = limit_of(RLIMIT_MEMLOCK);
  f.memory_left = static_cast<std::int64_t>(os::available_memory() & ~(std::uint64_t{1} << 63U));
  if (const auto left = os::cgroup_memory_headroom(); left && *left < std::uint64_t{1} << 62U)
    f.cgroup_left = static_cast<std::int64_t>(*left);
  if (const auto space = os::free_space_of("/dev/shm")) {
    f.has_shm = true;
    f.shm_free = static_cast<std::int64_t>(space->bytes);
  }
  f.cpus = allowed_cpus();
  f.cpu_quota = os::cgroup_cpu_limit().value_or(0);
  look_at_devices(f);
  return f;
}

std::string list_of(const std::vector<int>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    text += (text.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (end - i > 1) text += "-" + std::to_string(numbers[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace tutti::doctor
