#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include <tutti/os/fd.hpp>
#include <tutti/os/throw_errno.hpp>

namespace tutti::os {

/// Makes the names in a folder durable, not the files' contents: a new name may otherwise be lost in a power failure.
/// Errors: error{system} or {out_of_resources} that names the folder.
inline void sync_folder(const std::string& folder) {
  const fd directory{::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  if (!directory || ::fsync(directory.native()) != 0)
    throw_errno(errno, "cannot make durable what " + folder + " holds");
}

}  // namespace tutti::os
