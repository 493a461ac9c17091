#pragma once
#include <ostream>

#include <tutti/config.hpp>

namespace tutti::train {

/// A stream that writes on rank 0 and is silent elsewhere, so that what all ranks say is said once:
/// `train::rank0_stream out{world, std::cout}; out << "loss " << loss << '\n';`
/// On other ranks nothing is formatted (the stream is in the state `bad`). `to` must outlive it; it is not flushed but
/// by whoever flushes this stream. One thread at a time.
class rank0_stream : public std::ostream {
 public:
  rank0_stream(int rank, std::ostream& to) : std::ostream(rank == 0 ? to.rdbuf() : nullptr) {}
  template <class Comm>
    requires requires(const Comm& c) { c.rank(); }
  rank0_stream(const Comm& world, std::ostream& to) : rank0_stream(world.rank(), to) {}
};

}  // namespace tutti::train
