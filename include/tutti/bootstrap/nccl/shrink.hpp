#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <tutti/backend/nccl/feature.hpp>
#include <tutti/bootstrap/nccl/make.hpp>

namespace tutti {

/// Makes a communicator over the GPUs of the ranks that have survived a failure. `survivors` is a new world of the host
/// with exactly these ranks (see agree_on_survivors), in their former order. Collective over `survivors`; blocks like
/// make_nccl().
///
/// NCCL 2.28.7 and newer stops the operations in flight without ending the communicator, which is then shrunk to these
/// ranks (ncclCommShrink), at less cost than a new one. If that is impossible on some rank, or no rank is missing, a
/// new one is made as by make_nccl(). Each rank keeps its device. Afterwards `failed` can only be destroyed; its
/// operations in flight end as they would have. Errors: usage_error if `failed` has not failed, else as make_nccl().
template <nccl_functions Api, backend Host>
  requires(Host::where == space::host)
[[nodiscard]] communicator<basic_nccl<Api>> shrink_nccl(communicator<basic_nccl<Api>>& failed,
                                                        communicator<Host>& survivors, nccl_options options = {}) {
  auto& before = failed.backend().driver();
  if (before.failure().ok())
    throw usage_error("shrink: this communicator has not failed; for a part of its ranks, split the host's world");
  options.device = before.place().device;
  detail::spare_nccl_comm<Api> whole{before.recover(after(before.place().patience))};
  struct past {
    std::int32_t rank, size, whole;
  };
  const past mine{before.place().rank, before.place().size, whole ? 1 : 0};
  std::vector<past> all(static_cast<std::size_t>(survivors.size()));
  survivors.all_gather(std::span{&mine, 1}, all).wait();
  const auto claims = detail::nccl_census<Api>(survivors, options);

  // All ranks decide alike, from the same data.
  bool shrinks = nccl_has<Api>(nccl_feature::shrink, claims[0].nccl_version);
  std::vector<int> dead;
  int next = 0;
  for (const past& p : all) {
    shrinks = shrinks && p.whole != 0 && p.size == mine.size && p.rank >= next;
    for (; next < p.rank; ++next) dead.push_back(next);
    ++next;
  }
  for (; next < mine.size; ++next) dead.push_back(next);
  if (shrinks && !dead.empty())
    return detail::bring_up_nccl<Api>(survivors, options, claims,
                                      [&](nccl_driver<Api>& d) { d.connect(whole.release(), dead, options.calls); });
  const nccl_unique_id id = detail::invite<Api>(survivors, claims);
  return detail::bring_up_nccl<Api>(survivors, options, claims,
                                    [&](nccl_driver<Api>& d) { d.connect(id, options.calls); });
}

}  // namespace tutti
