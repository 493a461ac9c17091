#pragma once
#include <string>

#include <tutti/backend/nccl_types.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/status.hpp>

namespace tutti::detail {

/// An error of NCCL's that is not believed yet: a peer that died comes as an error of some kind, often an internal one.
/// The host's world knows better, soon.
class nccl_suspicion {
 public:
  /// `during`: a string that stays.
  void raise(nccl_result r, const char* during, deadline judged_at) noexcept {
    what_ = r;
    during_ = during;
    judged_at_ = judged_at;
  }
  [[nodiscard]] explicit operator bool() const noexcept { return during_ != nullptr; }
  [[nodiscard]] bool ripe(deadline now) const noexcept { return now >= judged_at_; }

  /// What it is when nobody knew better.
  [[nodiscard]] status verdict() const noexcept {
    const errc code = what_ == nccl_result::remote    ? errc::peer_lost
                      : what_ == nccl_result::timeout ? errc::timed_out
                                                      : errc::device;
    return {code, 0, -1, static_cast<std::uint64_t>(what_)};
  }
  /// May throw bad_alloc.
  template <nccl_functions Api>
  [[nodiscard]] std::string words(nccl_comm comm) const {
    const char* const more = comm ? Api::last_error(comm) : nullptr;
    return std::string("NCCL met \"") + Api::words(what_) + "\" in " + during_ +
           (more && *more ? std::string(": ") + more : std::string()) +
           "; with NCCL_DEBUG=WARN in the environment it tells more";
  }

 private:
  nccl_result what_ = nccl_result::success;
  const char* during_ = nullptr;  // null: nothing was met
  deadline judged_at_{};
};

}  // namespace tutti::detail
