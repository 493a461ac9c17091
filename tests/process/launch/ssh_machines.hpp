#pragma once
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "process/machines.hpp"
#include "process/worlds.hpp"
#include "support/processes.hpp"
#include "support/temporary_directory.hpp"

namespace tutti_test {

/// Two machines that can be reached by ssh, each from the other, without a password. On each, its own name is
/// 127.0.1.1, as Debian writes it. Without root, iproute2 or openssh-server, why_not() is why.
class ssh_machines {
 public:
  ssh_machines() {
    if (!pair_.why_not().empty()) {
      why_not_ = pair_.why_not();
      return;
    }
    if (::access(server, X_OK) != 0 || std::system("command -v ssh ssh-keygen >/dev/null 2>&1") != 0) {
      why_not_ = "sshd or ssh is not installed (openssh-server, openssh-client)";
      return;
    }
    for (const int n : {0, 1}) {
      const std::string other = std::to_string(1 - n);
      pair_.set_hosts(n, "127.0.0.1 localhost\n127.0.1.1 node" + std::to_string(n) + "\n10.77.0." +
                             std::to_string(2 - n) + " node" + other + "\n");
    }
    configure();
    for (const int n : {0, 1}) servers_.start(pair_.run(n, server, {"-D", "-e", "-f", folder_.file("sshd")}));
    for (const std::size_t n : {0U, 1U})
      if (!servers_.await(n, "Server listening on 0.0.0.0")) why_not_ = "sshd does not run here: " + servers_.out(n);
    for (const int n : {0, 1}) idle_[n] = pair_.processes_on(n);
  }

  [[nodiscard]] const std::string& why_not() const noexcept { return why_not_; }
  [[nodiscard]] const two_machines& pair() const noexcept { return pair_; }

  /// The command that reaches the other machine.
  [[nodiscard]] std::string ssh() const { return "ssh -F " + folder_.file("ssh"); }

  /// tutti-run on a machine; `words` are its arguments.
  [[nodiscard]] command launcher(int machine, std::vector<std::string> words,
                                 std::vector<std::string> environment = {}) const {
    words.insert(words.begin(), {"--ssh", ssh()});
    return pair_.run(machine, tutti_run(), std::move(words), std::move(environment));
  }

  /// The processes of a machine besides its sshd.
  [[nodiscard]] std::set<::pid_t> busy(int machine) const {
    auto found = pair_.processes_on(machine);
    for (const ::pid_t pid : idle_[machine]) found.erase(pid);
    return found;
  }

  /// Returns true if both machines are as they were at first, or become so.
  [[nodiscard]] bool become_idle(std::chrono::seconds limit) const {
    for (const auto until = std::chrono::steady_clock::now() + limit; !busy(0).empty() || !busy(1).empty();) {
      if (std::chrono::steady_clock::now() >= until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
    }
    return true;
  }

 private:
  static constexpr const char* server = "/usr/sbin/sshd";

  void configure() const {
    ::mkdir("/run/sshd", 0755);
    for (const char* key : {"host_key", "user_key"})
      static_cast<void>(std::system(("ssh-keygen -q -t ed25519 -N '' -f " + folder_.file(key)).c_str()));
    std::ofstream{folder_.file("sshd")} << "Port 22\nHostKey " << folder_.file("host_key") << "\nAuthorizedKeysFile "
                                        << folder_.file("user_key") << ".pub\nStrictModes no\nUsePAM no\nPidFile none\n"
                                        << "PermitRootLogin yes\nPasswordAuthentication no\nMaxStartups 100\n";
    std::ofstream{folder_.file("ssh")} << "Host *\n  IdentityFile " << folder_.file("user_key")
                                       << "\n  UserKnownHostsFile /dev/null\n  StrictHostKeyChecking no\n"
                                       << "  LogLevel ERROR\n";
  }

  temporary_directory folder_;
  two_machines pair_;
  processes servers_;
  std::string why_not_;
  std::set<::pid_t> idle_[2];
};

}  // namespace tutti_test
