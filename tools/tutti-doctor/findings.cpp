#include "findings.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <iomanip>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string_view>
#include <tutti/bootstrap/nccl/device_inventory.hpp>
#include <tutti/os/memory.hpp>
#include <utility>

namespace tutti::doctor {
namespace {

constexpr std::int64_t mib = std::int64_t{1} << 20U;

std::string size_of(std::int64_t bytes) { return os::format_bytes(static_cast<std::uint64_t>(bytes)); }

std::string number(double value, int digits = 2) {
  std::ostringstream out;
  out << std::setprecision(digits) << value;
  return out.str();
}

/// Collects findings; equal ones of several ranks become one.
class collector {
 public:
  void add(severity how, std::vector<int> ranks, const std::string& what, const std::string& remedy) {
    const auto same = std::ranges::find_if(
        all_, [&](const finding& f) { return f.how == how && f.what == what && f.remedy == remedy; });
    if (same == all_.end()) {
      all_.push_back({how, std::move(ranks), what, remedy});
      return;
    }
    for (const int r : ranks)
      if (std::ranges::find(same->ranks, r) == same->ranks.end()) same->ranks.push_back(r);
  }
  std::vector<finding> take() {
    std::vector<finding> sorted;
    for (const severity s : {severity::error, severity::warning})
      std::ranges::copy_if(all_, std::back_inserter(sorted), [s](const finding& f) { return f.how == s; });
    return sorted;
  }

 private:
  std::vector<finding> all_;
};

std::map<int, std::vector<const rank_facts*>> nodes_of(const report& all) {
  std::map<int, std::vector<const rank_facts*>> nodes;
  for (const rank_facts& f : all.ranks) nodes[f.node].push_back(&f);
  return nodes;
}

std::vector<int> ranks_of(const std::vector<const rank_facts*>& some) {
  std::vector<int> ranks;
  for (const rank_facts* f : some) ranks.push_back(f->rank);
  return ranks;
}

void check_limits(const rank_facts& f, std::int64_t local, collector& found) {
  const std::int64_t files = 128 + 2 * std::int64_t{f.world_size};
  if (f.open_files != unlimited && f.open_files < files)
    found.add(severity::error, {f.rank},
              "may open " + std::to_string(f.open_files) + " files, too few for connections to " +
                  std::to_string(f.world_size) + " ranks and files of its own (hard limit " +
                  (f.open_files_hard == unlimited ? "none" : std::to_string(f.open_files_hard)) + ")",
              "ulimit -n 65536 before the job starts; if that is refused: nofile in /etc/security/limits.conf, "
              "LimitNOFILE= of the service (slurmd), docker run --ulimit nofile=65536");
  if (const std::int64_t need = 32 * local; f.processes != unlimited && f.processes < need)
    found.add(severity::error, {f.rank},
              "may start " + std::to_string(f.processes) + " processes and threads, too few for " +
                  std::to_string(local) + " ranks on its machine",
              "ulimit -u 65536 before the job starts; nproc in /etc/security/limits.conf, docker run --pids-limit");
  if (!f.fabric.empty() && f.locked_memory != unlimited && f.locked_memory < 64 * mib)
    found.add(f.gpus.empty() ? severity::warning : severity::error, {f.rank},
              "may lock " + size_of(f.locked_memory) + " of memory, and " + f.fabric.front() +
                  " needs locked memory: NCCL fails with an error of ibv_reg_mr",
              "ulimit -l unlimited before the job starts; memlock in /etc/security/limits.conf, "
              "LimitMEMLOCK=infinity of slurmd, docker run --ulimit memlock=-1");
}

void check_memory(const std::vector<const rank_facts*>& node, collector& found) {
  const auto local = static_cast<std::int64_t>(node.size());
  for (const rank_facts* f : node) {
    if (f->memory_left == unlimited || f->memory_left >= 512 * mib * local) continue;
    const bool group = f->cgroup_left != unlimited && f->cgroup_left <= f->memory_left;
    found.add(f->memory_left < 64 * mib * local ? severity::error : severity::warning, {f->rank},
              "only " + size_of(f->memory_left / mib * mib) + " of memory are left " +
                  (group ? "within the limit of the control group" : "on the machine") + " for " +
                  std::to_string(local) + " ranks",
              group ? "raise the limit (docker run --memory, srun --mem, MemoryMax=), or start fewer ranks"
                    : "end other programs, or start fewer ranks on this machine");
  }
  for (const rank_facts* f : node) {
    const bool gpus = !f->gpus.empty() && f->nccl_needs_shm && local > 1;
    const auto room =
        f->has_shm ? "has " + size_of(f->shm_free / 1024 * 1024) + " free" : std::string{"is not mounted"};
    if (gpus && f->shm_free < least_shm * local)
      found.add(severity::error, {f->rank}, "/dev/shm " + room + ", too little for NCCL between GPUs of a machine",
                tutti::detail::shm_remedy());
    else if (f->shm_free < 64 * mib)
      found.add(severity::warning, {f->rank},
                "/dev/shm " + room + ": tutti needs none, but NCCL and many loaders of data do",
                "start the container with --shm-size=1g, or mount a larger tmpfs: mount -o remount,size=1g /dev/shm");
  }
}

void check_cores(const std::vector<const rank_facts*>& node, collector& found) {
  std::set<int> together;
  int quota = 0;
  for (const rank_facts* f : node) {
    together.insert(f->cpus.begin(), f->cpus.end());
    quota = std::max(quota, f->cpu_quota);
  }
  if (together.empty()) return;
  const auto cpus = static_cast<std::size_t>(quota > 0 ? std::min<int>(quota, static_cast<int>(together.size()))
                                                       : static_cast<int>(together.size()));
  if (node.size() > cpus) {
    found.add(severity::warning, ranks_of(node),
              std::to_string(node.size()) + " ranks share " + std::to_string(cpus) + " CPU" + (cpus == 1 ? "" : "s") +
                  (quota > 0 && cpus < together.size() ? ", the limit of the control group" : "") +
                  ": every wait for another rank costs a change of processes",
              "start no more ranks than CPUs, or ask for more (srun --cpus-per-task, docker run --cpus, taskset)");
    return;
  }
  for (const rank_facts* f : node) {
    std::vector<int> inside;  // ranks that may run on no other CPUs than this one
    for (const rank_facts* other : node)
      if (std::ranges::includes(f->cpus, other->cpus)) inside.push_back(other->rank);
    if (inside.size() <= f->cpus.size()) continue;
    found.add(severity::warning, inside,
              "are bound to fewer CPUs than they are, " + list_of(f->cpus) + ", of the " +
                  std::to_string(together.size()) + " that the ranks of this machine have",
              "bind each rank to its own: tutti-run --bind core, srun --cpu-bind=cores, mpirun --bind-to core; or "
              "remove the binding");
  }
}

void check_devices(const report& all, const std::vector<const rank_facts*>& node, collector& found) {
  const rank_facts* first_nccl = nullptr;
  for (const rank_facts& f : all.ranks)
    if (!first_nccl && !f.nccl.empty()) first_nccl = &f;
  for (const rank_facts* f : node) {
    if (!f->driver.empty() && f->gpus.empty())
      found.add(severity::warning, {f->rank},
                "has NVIDIA's driver, but no GPU can be used: " +
                    (f->no_cuda.empty() ? "CUDA counts none (CUDA_VISIBLE_DEVICES?)" : f->no_cuda),
                "make the GPUs visible (docker run --gpus all, srun --gres=gpu), or ignore it if the ranks need none");
    if (f->gpus.empty()) continue;
    if (f->nccl.empty())
      found.add(severity::warning, {f->rank}, "has GPUs, but communicator<nccl> cannot be made: " + f->no_nccl,
                "install NCCL 2.18 or newer, or ignore it if the ranks use CPUs only");
    else if (first_nccl && f->nccl != first_nccl->nccl)
      found.add(severity::error, {f->rank},
                "has NCCL " + f->nccl + ", and rank " + std::to_string(first_nccl->rank) + " has " + first_nccl->nccl,
                "give all ranks the same libnccl.so (LD_LIBRARY_PATH, container image)");
    if (!f->nccl_interface.empty())
      found.add(severity::error, {f->rank}, f->nccl_interface, "correct NCCL_SOCKET_IFNAME, or unset it");
    if (f->gpus.size() > 1 && node.size() > f->gpus.size())
      found.add(severity::warning, {f->rank},
                std::to_string(node.size()) + " ranks see " + std::to_string(f->gpus.size()) + " GPUs",
                "start a rank for each GPU: NCCL refuses two ranks on one");
  }
}

void check_secrets(const report& all, collector& found) {
  const bool over_tcp = std::ranges::any_of(all.ranks, [](const rank_facts& f) { return !f.address.empty(); });
  for (const rank_facts& f : all.ranks) {
    if (!f.secret_problem.empty())
      found.add(over_tcp ? severity::error : severity::warning, {f.rank}, f.secret_problem,
                "make it once, (umask 077; head -c 32 /dev/urandom > job.secret), with mode 0600 and the same content "
                "on every machine, and name it by TUTTI_SECRET_FILE");
    else if (over_tcp && f.secret == "none" && nodes_of(all).size() > 1)
      found.add(severity::warning, {f.rank},
                "has no secret: whoever reaches the port can join the job and read its data",
                "give the job a secret (TUTTI_SECRET_FILE), unless nobody else is on this network");
  }
}

void check_interfaces(const report& all, collector& found) {
  for (const rank_facts& f : all.ranks) {
    const auto chosen = std::ranges::find(f.interfaces, f.chosen_interface, &network_interface::name);
    if (nodes_of(all).size() < 2 || f.chosen_interface.empty() || chosen == f.interfaces.end()) continue;
    constexpr std::array virtual_ones{"docker", "virbr", "br-", "cni", "flannel"};
    if (std::ranges::any_of(virtual_ones, [&](const char* v) { return chosen->name.starts_with(v); }))
      found.add(severity::warning, {f.rank},
                "listens at " + f.address + " of " + chosen->name + ", a bridge inside the machine",
                "name the network between the machines: TUTTI_INTERFACE=eth0");
    for (const network_interface& i : f.interfaces)
      if (chosen->mbits > 0 && i.mbits >= 4 * chosen->mbits)
        found.add(severity::warning, {f.rank},
                  "listens at " + chosen->name + " (" + std::to_string(chosen->mbits) + " Mbit/s), and " + i.name +
                      " has " + std::to_string(i.mbits) + " Mbit/s",
                  "TUTTI_INTERFACE=" + i.name + ", if it reaches the other machines");
  }
}

void check_reach(const report& all, collector& found) {
  for (const rank_facts& f : all.ranks)
    for (const unreachable_rank& u : f.unreachable) {
      std::string there;
      const auto peer = std::ranges::find(all.ranks, u.rank, &rank_facts::rank);
      if (peer != all.ranks.end())
        for (const network_interface& i : peer->interfaces)
          if (i.name != "lo") there += (there.empty() ? "" : ", ") + i.name;
      found.add(severity::error, {f.rank},
                "cannot connect to rank " + std::to_string(u.rank) + " at " + u.address + ": " + u.why,
                "let TCP through between the machines, on all ports (firewall, security group), or name the network "
                "that they share by TUTTI_INTERFACE" +
                    (there.empty() ? "" : " (there are " + there + ")"));
    }
}

void check_pairs(const report& all, collector& found) {
  std::vector<double> speeds;
  for (const pair_link& p : all.pairs)
    if (!p.memory) speeds.push_back(std::min(p.there_gbps, p.back_gbps));
  std::ranges::sort(speeds);
  const double median = speeds.empty() ? 0 : speeds[speeds.size() / 2];
  for (const pair_link& p : all.pairs) {
    if (p.memory) continue;
    const double least = std::min(p.there_gbps, p.back_gbps), most = std::max(p.there_gbps, p.back_gbps);
    if (least < median / 4)
      found.add(severity::warning, {p.a, p.b},
                "move " + number(least) + " GB/s between them; half of the pairs move " + number(median) + " or more",
                "look at this link (ethtool, cable, switch), or start the job without the machine");
    else if (least * 4 < most)
      found.add(severity::warning, {p.a, p.b},
                "move " + number(p.there_gbps) + " GB/s in one direction and " + number(p.back_gbps) + " in the other",
                "look at duplex and flow control of this link (ethtool), and at other traffic");
  }
}

void check_clocks(const report& all, collector& found) {
  for (const clock_offset& c : all.clocks)
    if (const double off = std::abs(c.seconds) - c.uncertainty; off > 1)
      found.add(off > 300 ? severity::error : severity::warning, {c.rank},
                "has a clock " + number(std::abs(c.seconds), 3) + " s " + (c.seconds > 0 ? "ahead of" : "behind") +
                    " that of rank 0" +
                    (off > 300 ? ": munge of Slurm, TLS and Kerberos refuse its messages"
                               : ": times in logs and of files mislead"),
                "set the time by a server: timedatectl set-ntp true, or chronyd");
}

}  // namespace

std::vector<finding> find_faults(const report& all) {
  collector found;
  check_reach(all, found);
  const auto nodes = nodes_of(all);
  for (const auto& [node, ranks] : nodes) {
    for (const rank_facts* f : ranks) check_limits(*f, static_cast<std::int64_t>(ranks.size()), found);
    check_memory(ranks, found);
    check_cores(ranks, found);
    check_devices(all, ranks, found);
  }
  check_secrets(all, found);
  check_interfaces(all, found);
  check_pairs(all, found);
  check_clocks(all, found);
  return found.take();
}

std::string describe(const std::vector<int>& ranks, const report& all) {
  if (ranks.empty()) return "the job";
  std::vector<int> sorted = ranks;
  std::ranges::sort(sorted);
  std::vector<std::string> hosts;
  for (const int r : sorted) {
    const auto at = std::ranges::find(all.ranks, r, &rank_facts::rank);
    if (at != all.ranks.end() && std::ranges::find(hosts, at->host) == hosts.end()) hosts.push_back(at->host);
  }
  constexpr std::size_t shown = 3;
  std::string where;
  for (std::size_t i = 0; i < std::min(hosts.size(), shown); ++i) where += (i > 0 ? ", " : "") + hosts[i];
  if (hosts.size() > shown) where += " and " + std::to_string(hosts.size() - shown) + " more";
  return (sorted.size() == 1 ? "rank " : "ranks ") + list_of(sorted) + " (" + where + ")";
}

}  // namespace tutti::doctor
