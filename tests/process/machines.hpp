#pragma once
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "process/worlds.hpp"
#include "support/temporary_directory.hpp"

namespace tutti_test {

/// Two machines for processes, as far as networks, names and /etc/hosts go: network namespaces "node0" and "node1" with
/// a cable between them. Needs root and iproute2; without, why_not() is why.
class two_machines {
 public:
  two_machines() {
    if (::geteuid() != 0) {
      why_not_ = "only root can make network namespaces";
      return;
    }
    const std::string a = space(0), b = space(1);
    const std::string made = "set -e; ip netns add " + a + "; ip netns add " + b + "; ip link add cable0 netns " + a +
                             " type veth peer name cable1 netns " + b + "; for n in " + a + " " + b +
                             "; do ip -n $n link set lo up; done; for n in 0 1; do ip -n " + prefix() +
                             "$n link set cable$n up; ip -n " + prefix() +
                             "$n addr add 10.77.0.$((n + 1))/24 dev cable$n; ip -n " + prefix() +
                             "$n addr add fe80::$((n + 1))/64 dev cable$n nodad; done; unshare -mu true";
    if (std::system(("(" + made + ") >/dev/null 2>&1").c_str()) != 0)
      why_not_ = "network namespaces cannot be made here (ip netns add, unshare)";
  }
  two_machines(const two_machines&) = delete;
  two_machines& operator=(const two_machines&) = delete;
  ~two_machines() {
    if (::geteuid() != 0) return;
    for (const int n : {0, 1})
      static_cast<void>(std::system(("ip netns del " + space(n) + " >/dev/null 2>&1").c_str()));
  }

  [[nodiscard]] const std::string& why_not() const noexcept { return why_not_; }

  /// What a machine has in its /etc/hosts.
  void set_hosts(int machine, const std::string& lines) const { std::ofstream{hosts(machine)} << lines; }

  /// Pulls the cable, or puts it back.
  void connect(bool connected) const {
    const std::string change = "ip -n " + space(0) + " link set cable0 " + (connected ? "up" : "down");
    static_cast<void>(std::system((change + " >/dev/null 2>&1").c_str()));
  }

  /// The processes on one of them.
  [[nodiscard]] std::set<::pid_t> processes_on(int machine) const {
    std::set<::pid_t> found;
    const std::string list = folder_.file("pids");
    static_cast<void>(std::system(("ip netns pids " + space(machine) + " >" + list + " 2>/dev/null").c_str()));
    std::ifstream in{list};
    for (::pid_t pid = 0; in >> pid;) found.insert(pid);
    return found;
  }

  /// Runs a command of the shell in the network of one of them.
  void run_on(int machine, const std::string& script) const {
    static_cast<void>(std::system(("ip netns exec " + space(machine) + " " + script + " >/dev/null 2>&1").c_str()));
  }

  /// A helper program on one of them.
  [[nodiscard]] command on(int machine, const std::string& name, std::vector<std::string> words,
                           std::vector<std::string> environment = {}) const {
    return run(machine, program(name), std::move(words), std::move(environment));
  }

  /// Any program on one of them.
  [[nodiscard]] command run(int machine, const std::string& path, std::vector<std::string> words,
                            std::vector<std::string> environment = {}) const {
    const std::string script =
        "space=$1; shift; exec ip netns exec \"$space\" unshare -mu sh -c 'hostname \"$1\"; mount --bind \"$2\" "
        "/etc/hosts; shift 2; exec \"$@\"' sh \"$@\"";
    std::vector<std::string> arguments{"-c",           script, "sh", space(machine), "node" + std::to_string(machine),
                                       hosts(machine), path};
    arguments.insert(arguments.end(), words.begin(), words.end());
    return {"/bin/sh", std::move(arguments), std::move(environment)};
  }

 private:
  static std::string prefix() { return "tutti" + std::to_string(::getpid()) + "-"; }
  static std::string space(int machine) { return prefix() + std::to_string(machine); }
  [[nodiscard]] std::string hosts(int machine) const { return folder_.file("hosts" + std::to_string(machine)); }

  temporary_directory folder_;
  std::string why_not_;
};

}  // namespace tutti_test
