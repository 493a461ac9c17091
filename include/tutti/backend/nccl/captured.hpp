#pragma once
#include <cstdint>
#include <source_location>
#include <string>
#include <utility>

#include <tutti/async/op_state.hpp>
#include <tutti/backend/unjoined_end.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/status.hpp>
#include <tutti/core/text.hpp>
#include <tutti/cuda/types.hpp>

namespace tutti::detail {

/// The end of operations that were written into a graph. They run when the graph is launched, which the library does
/// not see, so join() is the only good end for their handles. Any other end completes them with a status that is not a
/// failure of the communicator. Under the engine's lock.
template <cuda::runtime_api R>
class nccl_captured {
 public:
  /// Returns true for an error by which CUDA refuses a call in the capture that an operation belongs to: no device has
  /// failed.
  static bool spoilt(std::uint64_t graph, const status& s) noexcept {
    return graph != 0 && s.code == errc::device && of_capture(s);
  }
  static bool of_capture(const status& s) noexcept {
    return cuda::is_of_capture(static_cast<cuda::result>(static_cast<std::int32_t>(s.detail)));
  }

  void complete(op_state& s, int world_rank) noexcept {
    complete(s, {errc::device, 0, world_rank, static_cast<std::uint64_t>(cuda::result::capture_first)});
  }
  void complete(op_state& s, const status& how) noexcept {
    completing_ = true;
    s.complete(how);
    completing_ = false;
  }
  [[nodiscard]] bool completing() const noexcept { return completing_; }

  static constexpr const char* in_capture =
      "in a stream that is captured into a graph, and its handle was dropped; end it with join(stream), or that graph "
      "lacks what it leads to";
  static constexpr const char* in_group =
      "in a group, and its handle was dropped before the group ended: it was not begun; keep it for longer";
  void note_dropped(const op_state& s, const char* how) noexcept {
    how_ = how;
    dropped_ = s.info.collective;
    where_ = s.info.where;
  }
  /// Throws the usage_error that a destructor could not throw.
  void check_dropped() {
    if (!dropped_) return;
    throw usage_error(std::string(std::exchange(dropped_, nullptr)) + " (" + file_and_line(where_) + ") was issued " +
                      how_);
  }

  /// Checks that the operations of a group, which are one launch, all run or are all part of one graph. Throws
  /// usage_error.
  void check_group(std::uint64_t group, std::uint64_t graph, const char* collective) {
    if (group_ == group && graph_ != graph)
      throw usage_error(std::string(collective) +
                        ": a group is one launch: all its operations are captured into the same graph, or none is");
    group_ = group;
    graph_ = graph;
  }

 private:
  bool completing_ = false;
  const char* dropped_ = nullptr;  // the collective
  const char* how_ = "";
  std::source_location where_{};
  std::uint64_t group_ = 0, graph_ = 0;
};

}  // namespace tutti::detail
