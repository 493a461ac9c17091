#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/bootstrap/spawn/report.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/core/text.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/throw_errno.hpp>
#include <tutti/os/write_all.hpp>
#include <tutti/wire/bytes.hpp>

namespace tutti::detail {

/// A call of spawn() in a run of main(): its number among those with the same command line for the ranks, since that
/// may let them come by other calls only.
struct spawn_call {
  std::uint64_t arguments = 0;  ///< hash of spawn_options::arguments
  std::uint64_t number = 0;
  std::int32_t size = 0;
  std::string where;  ///< "train.cpp:46"

  /// Returns true if both have the same number.
  [[nodiscard]] bool is_at(const spawn_call& other) const noexcept {
    return arguments == other.arguments && number == other.number;
  }
  friend bool operator==(const spawn_call&, const spawn_call&) = default;
};

/// Calls of spawn() that this process has begun, and those that have failed.
class spawn_calls {
 public:
  struct failure {
    spawn_call call;
    spawn_report why;
  };

  /// Numbers a call that begins.
  static spawn_call begin(int size, const std::source_location& where, const std::vector<std::string>& arguments) {
    spawn_call c{fnv_start, 0, size, file_and_line(where)};
    for (const std::string& a : arguments) c.arguments = fnv(fnv(c.arguments, a), std::uint64_t{0});
    const std::scoped_lock guard(all().mutex);
    for (auto& [arguments_of, count] : all().counts)
      if (arguments_of == c.arguments) c.number = ++count;
    if (c.number == 0) all().counts.emplace_back(c.arguments, c.number = 1);
    return c;
  }
  static void note(const spawn_call& call, const spawn_report& why) {
    const std::scoped_lock guard(all().mutex);
    all().failures.push_back({call, why});
  }
  [[nodiscard]] static std::vector<failure> failures() {
    const std::scoped_lock guard(all().mutex);
    return all().failures;
  }

 private:
  struct record {
    std::mutex mutex;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> counts;
    std::vector<failure> failures;
  };
  static record& all() {
    static record them;
    return them;
  }
};

/// Order to the processes of a call of spawn(): the call to come to, and the calls before it that have failed.
struct spawn_order {
  spawn_call call;
  std::string rendezvous;
  std::vector<spawn_calls::failure> before;

  /// Writes the order to a file without a name.
  [[nodiscard]] os::fd write() const {
    std::vector<std::byte> bytes(64 + call.where.size() + rendezvous.size());
    for (const auto& f : before) bytes.resize(bytes.size() + 64 + f.call.where.size() + f.why.text.size());
    wire::byte_writer w{bytes};
    put(w, call);
    w.text(rendezvous).u32(static_cast<std::uint32_t>(before.size()));
    for (const auto& f : before) {
      put(w, f.call);
      std::array<std::byte, spawn_report::longest> report;
      w.bytes(encode(f.why, report));
    }
    os::fd file{::memfd_create("tutti-spawn", MFD_CLOEXEC)};
    if (!file) os::throw_errno(errno, "spawn: cannot make a memfd");
    if (const int why = os::write_all(file.native(), w.written()); why != 0)
      os::throw_errno(why, "spawn: cannot write a memfd");
    return file;
  }
  /// Reads the order at descriptor `file`; nullopt if there is none.
  [[nodiscard]] static std::optional<spawn_order> read(int file) {
    std::vector<std::byte> bytes;
    for (std::array<std::byte, 4096> some;;) {
      const ::ssize_t n = ::pread(file, some.data(), some.size(), static_cast<::off_t>(bytes.size()));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return std::nullopt;
      if (n == 0) break;
      bytes.insert(bytes.end(), some.begin(), some.begin() + n);
    }
    wire::byte_reader r{bytes};
    spawn_order order;
    order.call = take(r);
    order.rendezvous = r.text(longest_text);
    for (auto left = r.u32(); left > 0 && r.ok(); --left) {
      spawn_call at = take(r);
      auto why = decode_report(r);
      if (!why) return std::nullopt;
      order.before.push_back({std::move(at), *std::move(why)});
    }
    return r.ok() ? std::optional{std::move(order)} : std::nullopt;
  }

 private:
  static constexpr std::size_t longest_text = 65535;

  static void put(wire::byte_writer& w, const spawn_call& c) {
    w.u64(c.arguments).u64(c.number).u32(static_cast<std::uint32_t>(c.size)).text(c.where);
  }
  static spawn_call take(wire::byte_reader& r) {
    spawn_call c;
    c.arguments = r.u64();
    c.number = r.u64();
    c.size = static_cast<std::int32_t>(r.u32());
    c.where = r.text(longest_text);
    return c;
  }
};

}  // namespace tutti::detail
