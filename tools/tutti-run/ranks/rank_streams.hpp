#pragma once

#include "tutti-run/posix.hpp"

namespace tutti::launch {

/// Destinations of the ranks' stdin, stdout and stderr.
class rank_streams {
 public:
  /// Ends of the streams of a rank. Without `in`, rank 0 has the launcher's own stdin and the others have none; without
  /// `out` or `err` the launcher's own.
  struct ends {
    unique_fd in;
    unique_fd out;
    unique_fd err;
  };

  virtual ~rank_streams() = default;
  /// Returns the ends for the rank with this index among the ranks of this machine.
  virtual ends connect(int index) = 0;
};

}  // namespace tutti::launch
