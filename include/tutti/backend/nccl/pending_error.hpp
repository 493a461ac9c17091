#pragma once
#include <string>

#include <tutti/backend/nccl/types.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/status.hpp>

namespace tutti::detail {

/// A pending error of NCCL. NCCL reports a dead peer as an error of some kind, often an internal one; the host's world
/// soon knows the cause.
class nccl_pending_error {
 public:
  /// Records the error; it is final at `judged_at`. `during` must be a string literal.
  void raise(nccl_result r, const char* during, deadline judged_at) noexcept {
    what_ = r;
    during_ = during;
    judged_at_ = judged_at;
  }
  [[nodiscard]] explicit operator bool() const noexcept { return during_ != nullptr; }
  [[nodiscard]] bool due(deadline now) const noexcept { return now >= judged_at_; }

  /// Returns the error's status, for the case that the host's world has found no cause.
  [[nodiscard]] status verdict() const noexcept {
    const errc code = what_ == nccl_result::remote    ? errc::peer_lost
                      : what_ == nccl_result::timeout ? errc::timed_out
                                                      : errc::device;
    return {code, 0, -1, static_cast<std::uint64_t>(what_)};
  }
  /// Returns the error's message. May throw bad_alloc.
  template <nccl_functions Api>
  [[nodiscard]] std::string words(nccl_comm comm) const {
    const char* const more = comm ? Api::last_error(comm) : nullptr;
    return std::string("NCCL met \"") + Api::words(what_) + "\" in " + during_ +
           (more && *more ? std::string(": ") + more : std::string()) +
           "; with NCCL_DEBUG=WARN in the environment it tells more";
  }

 private:
  nccl_result what_ = nccl_result::success;
  const char* during_ = nullptr;  // null: no error
  deadline judged_at_{};
};

}  // namespace tutti::detail
