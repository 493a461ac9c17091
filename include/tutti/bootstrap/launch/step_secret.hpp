#pragma once
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <mutex>
#include <stop_token>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <tutti/bootstrap/launch/secret_remedy.hpp>
#include <tutti/bootstrap/launch/slurm.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/write_all.hpp>
#include <tutti/wire/load_secret.hpp>
#include <tutti/wire/secret.hpp>

/// The secret of a Slurm job step without one of its own: rank 0 makes it and hands it over in a file of mode 0600, in
/// the folder from which the job was submitted. Slurm has authenticated the user of that job, and the file system is
/// asked for the owner of the file.
namespace tutti::detail {

/// Returns the path of that file, which no other step has; empty for a process that is not in a step.
std::string step_secret_path(const variable_lookup auto& get) {
  const auto job = slurm_variable(get, "SLURM_JOB_ID", "SLURM_JOBID");
  const auto step = slurm_step(get);
  if (!job || !step) return {};
  std::string name = std::string(*job) + "." + std::to_string(*step);
  if (const auto cluster = get("SLURM_CLUSTER_NAME")) name = std::string(*cluster) + "-" + name;
  if (const auto restarts = get("SLURM_RESTART_COUNT")) name += "." + std::string(*restarts);
  std::replace(name.begin(), name.end(), '/', '_');
  const auto submitted = get("SLURM_SUBMIT_DIR");
  return (submitted ? std::string(*submitted) : std::string(".")) + "/.tutti-secret-" + name;
}

/// Secrets that this process has made or read: the file is gone once a world is complete.
class known_step_secrets {
 public:
  /// Returns the secret for `path`, after `find` where there is none yet.
  template <class Find>
  static wire::secret get(const std::string& path, const Find& find) {
    {
      const std::scoped_lock guard(mutex());
      if (const auto at = all().find(path); at != all().end()) return at->second;
    }
    const wire::secret found = find();  // without the lock: it may wait for rank 0, a thread of this process in tests
    const std::scoped_lock guard(mutex());
    return all().emplace(path, found).first->second;
  }

 private:
  static std::mutex& mutex() {
    static std::mutex one;
    return one;
  }
  static std::map<std::string, wire::secret>& all() {
    static std::map<std::string, wire::secret> one;
    return one;
  }
};

/// The file, on rank 0: written by the constructor, removed by the destructor. Throws error{auth_failed} that says why
/// it cannot be written.
class step_secret_file {
 public:
  explicit step_secret_file(std::string path)
      : path_(std::move(path)), value_(known_step_secrets::get(path_, &wire::secret::random)) {
    const std::string temporary = path_ + ".new";
    ::unlink(temporary.c_str());  // left by a process that was killed
    constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    os::fd file{::open(temporary.c_str(), flags, 0600)};
    const bool written = file && os::write_all(file.native(), value_.bytes) == 0;
    // A network file system may tell only here that the disk or the quota is full. fsync() may take half a minute.
    const bool kept = written && ::close(file.release()) == 0;
    if (kept && ::rename(temporary.c_str(), path_.c_str()) == 0) return;
    const int cause = errno;
    ::unlink(temporary.c_str());
    throw error{{errc::auth_failed, 0, -1, static_cast<std::uint64_t>(cause)},
                "rank 0 cannot hand the secret of this Slurm step over in " + path_ + ": " +
                    std::generic_category().message(cause) + ". " + secret_remedy(launcher::slurm)};
  }
  step_secret_file(const step_secret_file&) = delete;
  step_secret_file& operator=(const step_secret_file&) = delete;
  ~step_secret_file() { ::unlink(path_.c_str()); }

  [[nodiscard]] const wire::secret& value() const noexcept { return value_; }

 private:
  std::string path_;
  wire::secret value_;
};

/// Returns the secret that rank 0 writes, on the other ranks; waits for it until the deadline. Throws
/// error{auth_failed} that says what to do, {aborted} when told to stop.
inline wire::secret await_step_secret(const std::string& path, deadline until, const std::stop_token& stop) {
  const auto read = [&] {
    for (auto pause = std::chrono::milliseconds{1};; pause = (std::min)(pause * 2, std::chrono::milliseconds{200})) {
      if (::access(path.c_str(), F_OK) == 0) return wire::load_secret_file(path);
      if (stop.stop_requested()) throw error{{errc::aborted}, "told to stop while waiting for the secret in " + path};
      if (clock::now() >= until)
        throw error{
            {errc::auth_failed},
            "rank 0 of this Slurm step hands its secret over in " + path +
                ", which does not appear here: rank 0 has not come, or the machines do not share that folder. " +
                secret_remedy(launcher::slurm)};
      std::this_thread::sleep_for(pause);
      // A network file system may remember that the file was absent, until its folder is read again.
      if (::DIR* const folder = ::opendir(path.substr(0, path.rfind('/') + 1).c_str())) {
        while (::readdir(folder)) {
        }
        ::closedir(folder);
      }
    }
  };
  return known_step_secrets::get(path, read);
}

}  // namespace tutti::detail
