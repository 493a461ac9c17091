#pragma once
#include <ostream>

#include <tutti/config.hpp>

namespace tutti::train {

/// A stream that writes on rank 0 only, for output that all ranks would repeat:
/// `train::rank0_stream out{world, std::cout}; out << "loss " << loss << '\n';`
/// On other ranks its state is `bad`, and nothing is formatted. Sends nothing. `to` must outlive it, and is flushed
/// only if this stream is. One thread at a time.
class rank0_stream : public std::ostream {
 public:
  rank0_stream(int rank, std::ostream& to) : std::ostream(rank == 0 ? to.rdbuf() : nullptr) {}
  template <class Comm>
    requires requires(const Comm& c) { c.rank(); }
  rank0_stream(const Comm& world, std::ostream& to) : rank0_stream(world.rank(), to) {}
};

}  // namespace tutti::train
