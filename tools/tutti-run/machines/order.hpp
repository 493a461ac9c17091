#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti-run/options.hpp"
#include "tutti-run/ranks/environment.hpp"
#include "tutti-run/rendezvous.hpp"

namespace tutti::launch {

/// Bytes that an agent writes before its first message; anything before them is not the agent's.
inline constexpr std::string_view agent_banner = "\ntutti-run agent\n";

/// Times after the last message of a machine at which it is given up: if nothing else has failed, and if something has
/// or the job is being ended. Both sides say something every `alive_every`.
inline constexpr std::chrono::milliseconds alive_every{500};
inline constexpr std::chrono::milliseconds silent_after{2000};
inline constexpr std::chrono::milliseconds lost_after{30000};

/// Output that an agent may send before the launcher has passed it on, and input the other way.
inline constexpr std::int64_t output_window = 1 << 20;
inline constexpr std::int64_t input_window = 1 << 16;

/// First message of an agent.
struct greeting {
  std::string version;
  std::string ssh_connection;  ///< SSH_CONNECTION: address and port of the client, then of the server
  std::uint16_t port = 0;      ///< two that were free there a moment ago
  std::uint16_t other_port = 0;
};

/// Order to an agent.
struct machine_order {
  options given;  ///< ranks, bind, environment, devices, command, grace
  share part;
  rendezvous_point rendezvous;
  std::string secret;                 ///< 32 bytes; empty for none
  std::string folder;                 ///< the working directory
  std::vector<std::string> exported;  ///< NAME=VALUE, from the environment of the launcher
};

/// "0.1.0": launchers of one job are of one version.
std::string library_version();

std::string encode(const greeting& hello);
greeting decode_greeting(std::string_view content);
std::string encode(const machine_order& order);
machine_order decode_order(std::string_view content);

}  // namespace tutti::launch
