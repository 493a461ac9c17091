#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <source_location>
#include <utility>
#include <vector>

#include <tutti/async/resume_on.hpp>
#include <tutti/async/task.hpp>
#include <tutti/backend/nccl/basic_nccl.hpp>
#include <tutti/core/reduction.hpp>
#include <tutti/core/stream_ref.hpp>
#include <tutti/cuda/device_guard.hpp>
#include <tutti/grad/arena.hpp>
#include <tutti/grad/device/arena.hpp>
#include <tutti/grad/device/hook.hpp>
#include <tutti/grad/pass/bucket_times.hpp>
#include <tutti/grad/pass/launcher.hpp>
#include <tutti/grad/pass/pass_state.hpp>
#include <tutti/grad/pass/weight_sync.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/grad/reducer_options.hpp>
#include <tutti/grad/step.hpp>

namespace tutti::grad::detail {

/// The buckets of a pass on a device, from the marks of their gradients to the streams that continue after them. A
/// bucket is given to the hook once the hosts know the weights; the flag is sent in the launch of the last one. No host
/// waits for a device. Uses memory, weights and pass of the reducer, which must outlive it. Throws error{device} and
/// the hook's exceptions.
template <class Comm, class Hook>
class device_buckets {
  using api = typename Comm::backend_type::functions;
  using runtime = typename api::cuda;
  using operation = device_operation<Comm>;

 public:
  using arena_type = device_arena<api>;

  device_buckets(Comm& devices, Hook hook, arena_type& memory, weight_sync& weights, pass_state& pass)
      : gpus_(&devices),
        hook_(std::move(hook)),
        arena_(memory),
        weights_(weights),
        pass_(pass),
        launcher_(devices, launch_order::planned, 0) {}
  device_buckets(const device_buckets&) = delete;
  device_buckets& operator=(const device_buckets&) = delete;

  [[nodiscard]] Hook& hook() noexcept { return hook_; }
  /// Returns the bytes of scratch memory that the hook needs for each bucket.
  [[nodiscard]] static std::vector<std::size_t> scratch_of(const plan& p) {
    std::vector<std::size_t> bytes(p.buckets.size(), 0);
    if constexpr (requires { Hook::scratch_bytes(p.buckets[0]); })
      for (std::size_t b = 0; b < bytes.size(); ++b) bytes[b] = Hook::scratch_bytes(p.buckets[b]);
    return bytes;
  }

  /// Prepares for the buckets of a plan, which must be the arena's.
  void arrange(const plan& p) {
    launcher_.arrange(p);
    times_.arrange(p);
    from_.resize(p.buckets.size());
  }
  void begin(stream_ref s, const std::source_location& where) {
    stream_ = s;
    where_ = where;
    from_.assign(from_.size(), s);
    launcher_.begin();
  }

  /// Records that one more gradient of this bucket is complete, once the work that `mark` holds now is done.
  void complete(std::size_t b, stream_ref mark) {
    if (from_[b].native() != mark.native()) arena_.follow(std::exchange(from_[b], mark));
    launcher_.complete(b);
  }
  /// Launches the buckets that are complete.
  void launch() {
    while (const auto b = launcher_.next()) {
      const std::uint64_t since = times_.before_launch();
      launcher_.launched(*b, visit_gradient(type_of(*b), [&]<class T>() { return reduce<T>(*b); }));
      times_.launched(*gpus_, *b, since);
    }
  }
  /// Launches all remaining buckets.
  void launch_rest() {
    launcher_.release_delayed();
    launch();
    if (!flag_) send_flag();
  }

  /// Makes the stream wait for all buckets, each followed by the work that `restore(b, stream)` enqueues. In a step
  /// that all ranks skip, only the operations end.
  template <class Restore>
  void join(stream_ref s, step all, Restore restore) {
    for (std::size_t b = 0; b < from_.size(); ++b) {
      launcher_.take(b).join(s);
      complete(b, s, all, restore);
      arena_.used_by(s);
    }
    std::move(*std::exchange(flag_, std::nullopt)).join(s);
  }
  /// As join(), but ends when the device is done.
  template <class Restore>
  task<> wait_all(step all, Restore restore) {
    for (std::size_t b = 0; b < from_.size(); ++b) {
      operation reduction = launcher_.take(b);
      co_await std::move(reduction);
      complete(b, arena_.stream(), all, restore);
    }
    operation flag = *std::exchange(flag_, std::nullopt);
    co_await std::move(flag);
    // The kernels of complete() are short, and nothing signals their end.
    auto completed = arena_.mark();
    while (!completed.done()) co_await resume_on(gpus_->engine());
    arena_.unmark(std::move(completed));
  }
  /// Drops all operations, after an abort.
  void drop() noexcept {
    launcher_.drop();
    flag_.reset();
  }

 private:
  template <class T>
  operation reduce(std::size_t b) {
    const cuda::basic_device_guard<runtime> guard{gpus_->backend().device()};
    weights_.template await_weights<double>();  // blocks the host here, not at a later mark: see reducer
    arena_.follow(from_[b]);
    if (weights_.share() == 0) arena_.zero_bucket(b);  // 0 x NaN would be NaN
    if (b + 1 != from_.size()) return hook_(*gpus_, view<T>(b, arena_.stream()));
    nccl_group together{*gpus_};
    operation last = hook_(*gpus_, view<T>(b, arena_.stream()));
    send_flag();
    return last;
  }
  void send_flag() {
    arena_.follow(stream_);
    if (pass_.commit_step() != step::apply) arena_.raise_flag();
    static_cast<void>(flag_.emplace(gpus_->all_reduce(arena_.flag(), sum, {.stream = arena_.stream()}, where_)));
  }
  /// Enqueues the remaining work on bucket b in a stream that runs after it.
  template <class Restore>
  void complete(std::size_t b, stream_ref s, step all, Restore& restore) {
    if (all != step::apply) return forget(b);
    if constexpr (requires(const device_bucket<float>& k) { hook_.complete(k); })
      visit_gradient(type_of(b), [&]<class T>() {
        const cuda::basic_device_guard<runtime> guard{gpus_->backend().device()};
        hook_.complete(view<T>(b, s));
      });
    restore(b, s);
  }
  /// Uses the arena's stream, in which the hook's state was written.
  void forget(std::size_t b) {
    if constexpr (requires(const device_bucket<float>& k) { hook_.forget_pass(k); })
      visit_gradient(type_of(b), [&]<class T>() {
        const cuda::basic_device_guard<runtime> guard{gpus_->backend().device()};
        hook_.forget_pass(view<T>(b, arena_.stream()));
      });
  }
  template <class T>
  [[nodiscard]] device_bucket<T> view(std::size_t b, stream_ref s) const {
    return {b,
            arena_.template bucket<T>(b),
            arena_.scratch(b),
            weights_.share(),
            weights_.even_share(),
            stream_ref{arena_type::handle_of(s)},
            where_};
  }
  [[nodiscard]] dtype type_of(std::size_t b) const noexcept { return arena_.layout().buckets[b].type; }

  Comm* gpus_;
  Hook hook_;
  arena_type& arena_;
  weight_sync& weights_;
  pass_state& pass_;
  launcher<Comm, operation> launcher_;
  bucket_times<Comm> times_;
  stream_ref stream_;             // the pass's
  std::vector<stream_ref> from_;  // the last mark of each bucket
  std::optional<operation> flag_;
  std::source_location where_;
};

}  // namespace tutti::grad::detail
