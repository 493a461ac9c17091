#pragma once
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <tutti/async/engine.hpp>
#include <tutti/async/span_log.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/grad/plan.hpp>
#include <tutti/os/ticks.hpp>
#include <tutti/watch/flight_recorder.hpp>

namespace tutti::grad::detail {

/// Notes of a pass for those who watch: the flight recorder learns the bucket of each collective, and a trace, if one
/// is written, when each bucket was ready, launched and reduced. Without a trace it costs a reading of the tick counter
/// and one lock per bucket.
template <class Comm>
class bucket_times {
  static constexpr bool recorded = requires(Comm& c) {
    { c.backend().recorder() } -> std::same_as<watch::flight_recorder&>;
  };
  using time_span = tutti::detail::time_span;

 public:
  void arrange(const plan& p) { buckets_.resize(p.buckets.size()); }
  void begin(tutti::engine& engine) noexcept {
    log_ = engine.spans().get();
    if (!log_) return;
    pass_ = {time_span::kind::pass, clock::now(), {}, {}, "", pass_.number + 1};
    for (time_span& b : buckets_) b = {time_span::kind::bucket};
  }
  /// Notes that the last gradient of a bucket is there.
  void ready(std::size_t b) noexcept {
    if (log_) buckets_[b].begun = clock::now();
  }
  /// Returns the ticks at which a launch begins, for launched().
  [[nodiscard]] static std::uint64_t before_launch() noexcept { return recorded ? os::ticks_now() : 0; }
  /// Marks the collectives that the launch of a bucket has issued in its group.
  void launched(Comm& group, std::size_t b, std::uint64_t since) noexcept {
    if (log_) buckets_[b].middle = clock::now();
    if constexpr (recorded) {
      const auto guard = group.engine().lock();
      auto& backend = group.backend();
      const auto number = static_cast<std::uint32_t>(b);
      buckets_[b].operation = backend.recorder().mark_bucket(backend.members().context, since, number);
    }
  }
  /// Notes the call of finish().
  void finishing() noexcept {
    if (log_) pass_.middle = clock::now();
  }
  /// Notes that the operation of a bucket has ended: its last collective may have ended before.
  void ended(std::size_t b) noexcept {
    if (log_) buckets_[b].ended = clock::now();
  }
  /// Logs the pass, which has ended.
  void end(const plan& p) noexcept {
    if (!log_) return;
    pass_.ended = clock::now();
    log_->add(pass_);
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
      time_span& one = buckets_[b];
      one.number = b;
      one.pass = pass_.number;
      one.bytes = p.buckets[b].count * size_of(p.buckets[b].type);
      log_->add(one);
    }
  }

 private:
  tutti::detail::span_log* log_ = nullptr;  // of the current pass
  time_span pass_;
  std::vector<time_span> buckets_;
};

}  // namespace tutti::grad::detail
