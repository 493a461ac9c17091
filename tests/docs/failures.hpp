#pragma once
#include <cstdio>

#include <tutti/tutti.hpp>

// The code around the block of docs/failures.md.

namespace docs_failures {

inline void train(tutti::communicator<>&) {}

inline int guarded(tutti::communicator<>& world) {
  try {
    train(world);
  } catch (const tutti::error& e) {
    std::fprintf(stderr, "%s\n", e.what());             // names the rank, the operation and its call site
    return e.kind() == tutti::errc::peer_lost ? 3 : 1;  // e.peer() is the world rank at fault
  }
  return 0;
}

}  // namespace docs_failures
