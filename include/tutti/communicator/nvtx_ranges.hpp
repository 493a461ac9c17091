#pragma once
#include <concepts>
#include <cstdint>
#include <unordered_map>

#include <tutti/async/op_state.hpp>
#include <tutti/backend/operation_view.hpp>
#include <tutti/core/status.hpp>

#if __has_include(<nvtx3/nvtx3.hpp>)
#include <nvtx3/nvtx3.hpp>

namespace tutti {

/// Hooks that show each operation to Nsight Systems as an NVTX range of the domain "tutti": from its issue to its end,
/// named after the call, with the number of its elements as payload; ranges of operations in flight overlap. For
/// with_hooks(). Needs the headers of NVTX 3 when it is compiled, and does nothing where no tool listens.
class nvtx_ranges {
 public:
  static constexpr const char* name = "nvtx_ranges";

  void before(const operation_view& op) {
    const nvtx3::event_attributes what{nvtx3::message{op.info.collective},
                                       nvtx3::payload{static_cast<std::uint64_t>(op.info.count)}};
    open_[&op.info] = nvtx3::start_range_in<domain>(what);
  }
  void after(const operation_view& op) { end(op); }
  void aborted(const operation_view& op, const status&) { end(op); }

 private:
  struct domain {
    static constexpr const char* name = "tutti";
  };
  void end(const operation_view& op) { nvtx3::end_range_in<domain>(open_[&op.info]); }

  std::unordered_map<const op_info*, nvtx3::range_handle> open_;  // entries stay, as the slots of operations do
};

}  // namespace tutti
#else
namespace tutti {

/// Stands for the hooks where <nvtx3/nvtx3.hpp> is missing: making one does not compile, and says so.
class nvtx_ranges {
 public:
  template <class None = void>
  nvtx_ranges() {
    static_assert(!std::same_as<None, void>,
                  "tutti::nvtx_ranges needs the headers of NVTX 3: add the CUDA toolkit's include folder");
  }
};

}  // namespace tutti
#endif
