#include "tutti-run/machines/choose_rendezvous.hpp"

#include <tutti/bootstrap/rendezvous/url.hpp>
#include <tutti/os/host.hpp>

#include "tutti-run/machines/remote_shell.hpp"

namespace tutti::launch {
namespace {

// One of "client-address client-port server-address server-port"; empty where it is of no use to other machines.
std::string address_in(const std::string& ssh_connection, std::size_t word) {
  const auto words = words_of(ssh_connection);
  if (words.size() != 4) return {};
  const std::string& address = words[word];
  const bool local = address == "::1" || address.starts_with("127.") || address.find('%') != std::string::npos;
  return local || address == "UNKNOWN" ? std::string{} : address;
}

std::string address_of_first(const std::vector<met_machine>& machines) {
  const auto& first = machines.front();
  if (!first.here) {
    const std::string address = address_in(first.hello.ssh_connection, 2);
    return address.empty() ? first.name : address;
  }
  for (const auto& other : machines)
    if (const auto address = other.here ? std::string{} : address_in(other.hello.ssh_connection, 0); !address.empty())
      return address;
  return os::hostname();
}

}  // namespace

rendezvous_point choose_rendezvous(const std::vector<met_machine>& machines, const std::string& address, int port) {
  if (machines.size() == 1 && address.empty()) {
    auto rendezvous = make_rendezvous();
    rendezvous.port = machines.front().hello.other_port;
    return rendezvous;
  }
  rendezvous_point rendezvous;
  rendezvous.job = random_name();
  rendezvous.host = address.empty() ? address_of_first(machines) : address;
  const auto& hello = machines.front().hello;
  const int chosen = port != 0 ? port : hello.port;
  rendezvous.url = to_string(rendezvous_url{
      .kind = rendezvous_url::scheme::tcp, .host = rendezvous.host, .port = static_cast<std::uint16_t>(chosen)});
  rendezvous.port = hello.other_port;
  return rendezvous;
}

}  // namespace tutti::launch
