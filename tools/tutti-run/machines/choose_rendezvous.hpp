#pragma once

#include <string>
#include <vector>

#include "tutti-run/machines/order.hpp"
#include "tutti-run/rendezvous.hpp"

namespace tutti::launch {

/// A machine as far as the rendezvous of the ranks depends on it.
struct met_machine {
  std::string name;
  bool here = false;
  greeting hello;
};

/// Returns where the ranks meet: on one machine at a Unix socket, else at an address of the first machine. That is
/// `address` if it is given; else the address at which ssh has reached that machine, or, where that is this machine,
/// the address from which the next one was reached; else its name. `port` 0: one that was free there.
rendezvous_point choose_rendezvous(const std::vector<met_machine>& machines, const std::string& address, int port);

}  // namespace tutti::launch
