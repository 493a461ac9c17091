#pragma once
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>

#include <tutti/config.hpp>

namespace tutti::os {

/// NUMA policy of pages, as mbind() sets it. It is the default one if the kernel has none, or forbids to ask.
class memory_policy {
 public:
  memory_policy() noexcept = default;

  /// Returns the policy of the page at `p`.
  [[nodiscard]] static memory_policy of(const void* p) noexcept {
    memory_policy found;
    const int saved = errno;
    if (::syscall(SYS_get_mempolicy, &found.mode_, found.nodes_.data(), most_nodes, p, MPOL_F_ADDR) != 0) found = {};
    errno = saved;
    return found;
  }
  [[nodiscard]] bool is_default() const noexcept { return mode_ == MPOL_DEFAULT; }

  /// Gives whole pages this policy, and moves them to its nodes as far as that is possible now.
  void apply(std::byte* first, std::size_t bytes) const noexcept {
    const int saved = errno;
    // The kernel leaves out the last bit, and the default policy takes no nodes.
    const unsigned long nodes = is_default() ? 0 : most_nodes + 1;
    ::syscall(SYS_mbind, first, bytes, mode_, is_default() ? nullptr : nodes_.data(), nodes, MPOL_MF_MOVE);
    errno = saved;
  }

  friend bool operator==(const memory_policy&, const memory_policy&) = default;

 private:
  static constexpr unsigned long most_nodes = 1024;

  int mode_ = MPOL_DEFAULT;
  std::array<unsigned long, most_nodes / (sizeof(unsigned long) * CHAR_BIT)> nodes_{};
};

}  // namespace tutti::os
