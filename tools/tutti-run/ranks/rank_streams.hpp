#pragma once

#include "tutti-run/posix.hpp"

namespace tutti::launch {

/// Where the stdin, stdout and stderr of the ranks lead.
class rank_streams {
 public:
  /// What a rank is to have. Without `in`, rank 0 has the launcher's own stdin and the others have none; without `out`
  /// or `err` the launcher's own.
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
