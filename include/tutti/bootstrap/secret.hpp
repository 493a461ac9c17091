#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include <tutti/bootstrap/launch/claim.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/core/error.hpp>
#include <tutti/os/read_file.hpp>
#include <tutti/wire/load_secret.hpp>
#include <tutti/wire/secret.hpp>

namespace tutti {

/// Source of a job's secret: the environment by default, else a value, a file or a descriptor. It is never a command
/// line, which every user of the machine can read.
class secret_source {
 public:
  /// Reads TUTTI_SECRET_FD (an inherited descriptor), else TUTTI_SECRET_FILE (as tutti-run sets it); else there is no
  /// secret.
  secret_source() = default;

  [[nodiscard]] static secret_source value(const wire::secret& s) {
    secret_source from;
    from.kind_ = kind::value;
    from.value_ = s;
    return from;
  }
  /// Reads 32 bytes or 64 hexadecimal digits from a file that only this user can read.
  [[nodiscard]] static secret_source file(std::string path) {
    secret_source from;
    from.kind_ = kind::file;
    from.path_ = std::move(path);
    return from;
  }
  /// Reads the same from an open descriptor, which stays open and becomes close-on-exec.
  [[nodiscard]] static secret_source descriptor(int number) {
    secret_source from;
    from.kind_ = kind::descriptor;
    from.descriptor_ = number;
    return from;
  }

  /// Returns the secret; nullopt if there is none. Throws error{auth_failed} if it cannot be read or is malformed.
  [[nodiscard]] std::optional<wire::secret> load(const variable_lookup auto& get) const {
    if (kind_ == kind::value) return value_;
    if (kind_ == kind::file) return wire::load_secret_file(path_);
    if (kind_ == kind::descriptor) return from_descriptor(descriptor_);
    if (const auto number = detail::read_number(get, "TUTTI_SECRET_FD", 0)) return inherited(*number);
    if (const auto path = get("TUTTI_SECRET_FILE")) return wire::load_secret_file(std::string(*path));
    return std::nullopt;
  }

 private:
  enum class kind : std::uint8_t { environment, value, file, descriptor };

  static wire::secret inherited(int number) try { return from_descriptor(number); } catch (const error& e) {
    std::string parent = os::read_file("/proc/" + std::to_string(::getppid()) + "/comm", 64).value_or("a program");
    while (parent.ends_with('\n')) parent.pop_back();
    throw error{e.cause(), std::string{e.what()} +
                               "; TUTTI_SECRET_FD names a descriptor that a launcher opens: " + parent +
                               ", which started this process, may have closed it or used its number for "
                               "something else; hand the secret over in a file, TUTTI_SECRET_FILE"};
  }

  static wire::secret from_descriptor(int number) {
    auto s = wire::load_secret(number);
    // Another init() of this process may read it again, but no program that it starts.
    ::fcntl(number, F_SETFD, FD_CLOEXEC);
    return s;
  }

  kind kind_ = kind::environment;
  wire::secret value_;
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace tutti
