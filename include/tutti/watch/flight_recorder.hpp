#pragma once
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include <tutti/async/span_log.hpp>
#include <tutti/config.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/fork_guard.hpp>
#include <tutti/core/status.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/shm_mapping.hpp>
#include <tutti/os/ticks.hpp>
#include <tutti/watch/flight.hpp>
#include <tutti/watch/layout.hpp>
#include <tutti/watch/operation_sink.hpp>
#include <tutti/watch/record.hpp>

namespace tutti::watch {

/// Place where a rank's recording is kept, and how it is told from others. `world` is equal on all ranks of a world.
struct flight_place {
  std::string folder;  ///< empty: in memory only
  std::string job;
  std::uint64_t world = 0;
  std::uint32_t number = 1;  ///< of the world, among those of its process
};

/// Flight recorder of a world: its last 4096 operations on this rank, always on. An operation costs one cache line and
/// a reading of the tick counter at each end; nothing is allocated. Operations in flight are not overwritten as long as
/// others can be. Once a place is known, the memory is a file, which another process of the same user may read at any
/// time by this process's descriptor of it (/proc/PID/fd); see recording. In a folder it survives the process.
///
/// Called under the engine's lock, unless stated otherwise.
class flight_recorder {
 public:
  /// Records in memory. Throws std::bad_alloc.
  TUTTI_DECL flight_recorder(int rank, int size);
  flight_recorder(const flight_recorder&) = delete;
  flight_recorder& operator=(const flight_recorder&) = delete;
  /// Notes in the recording that the rank has left its world, unless this is a child made by fork().
  TUTTI_DECL ~flight_recorder();

  /// Keeps the recording in a file of the folder, and dumps there; without a folder, in a memfd where the kernel and
  /// the limits of this process allow one. Called before the first operation. Throws error{system} or
  /// {out_of_resources} if the folder takes no file; the recording is then kept in a memfd, too.
  TUTTI_DECL void keep_in(const flight_place& where);
  /// Does so where `other` is kept, as a world of the same ranks whose id is `world`.
  TUTTI_DECL void keep_beside(const flight_recorder& other, std::uint64_t world);
  /// Returns the number of the next world of this process. Any thread.
  [[nodiscard]] static std::uint32_t next_number() noexcept { return ++numbers_; }

  /// Records an operation that is issued now. Returns its id.
  [[gnu::always_inline]] std::uint64_t issue(const issued_operation& o, const std::source_location& where) noexcept {
    record* at = &slot(++next_);
    if (at->is_kept(kept_)) [[unlikely]]
      at = &step_over();
    at->write(next_, os::ticks_now(), site_of(where), o);
    return next_;
  }
  /// Records that an operation has ended inside the call that issued it.
  void ended_at_once(std::uint64_t id) noexcept { slot(id).end_at_once(); }
  /// Adds what is known of an operation once it was started.
  void describe(std::uint64_t id, std::uint64_t sequence, std::uint32_t context, algorithm via) noexcept {
    if (record& r = slot(id); r.id() == id) r.describe(sequence, context, via);
  }
  /// Records that an operation has made its first step, or its second one. Only the latter, which shows that the
  /// operation takes longer, is worth reading the counter.
  void started(std::uint64_t id) noexcept {
    if (record& r = slot(id); r.id() == id) r.start();
  }
  void proceeded(std::uint64_t id) noexcept {
    if (record& r = slot(id); r.id() == id) r.proceed(os::ticks_now());
  }
  void ended(std::uint64_t id, const status& how) noexcept {
    if (record& r = slot(id); r.id() == id) r.end(os::ticks_now(), how.code);
    if (!how.ok() && !failed_) fail(how);
  }

  /// Records the members of a group, as world ranks; none of the world itself, which has all.
  TUTTI_DECL void note_group(std::uint32_t context, std::span<const int> members) noexcept;

  /// Marks the collectives of a group that were issued at `since` (ticks) or later as those of a gradient reducer's
  /// bucket. Returns the id of the last one; 0 if there is none.
  TUTTI_DECL std::uint64_t mark_bucket(std::uint32_t context, std::uint64_t since, std::uint32_t bucket) noexcept;
  /// Returns the operation of an id; one with the id 0 if it is no longer recorded. Any thread, without the lock.
  [[nodiscard]] operation find(std::uint64_t id) const noexcept {
    const operation o = slot(id).read();
    return o.id == id ? o : operation{};
  }

  /// Gives all operations of this world to a receiver, once they have ended: from then on, records are not overwritten
  /// before. Called before the first operation.
  TUTTI_DECL void send_to(std::unique_ptr<operation_sink> sink);
  /// Gives what is in this log to all receivers, too. The log must outlive the recorder.
  void send_spans_of(tutti::detail::span_log& log) noexcept { spans_ = &log; }

  /// Reads the clocks again from time to time, passes operations on, and dumps when a signal has asked for it. Called
  /// by each tick.
  void tick(deadline now) noexcept {
    if (now - read_at_ >= std::chrono::seconds(1)) read_clocks(now);
    if (!sinks_.empty() && now - drained_at_ >= std::chrono::milliseconds(100)) {
      drained_at_ = now;
      drain();
    }
    if (signals_.load(std::memory_order_relaxed) != signals_seen_) [[unlikely]]
      dump_for_signal();
  }

  /// Writes the recording into a folder, as dump() in dump.hpp does. Any thread, without the lock. Throws error{system}
  /// or {out_of_resources}.
  TUTTI_DECL void dump(const std::string& folder, const std::string& reason) const;

  [[nodiscard]] const recording& memory() const noexcept { return *memory_; }
  /// Returns the recording of another rank of this world; see last_call.hpp. Nothing if this process cannot read it.
  [[nodiscard]] TUTTI_DECL std::optional<flight> recording_of(int rank, std::int32_t pid) const;

  /// Makes a signal ask all recorders of this process for a dump, at their next tick. Throws usage_error if the program
  /// handles that signal already, or if it cannot be handled.
  TUTTI_DECL static void dump_on(int signal);

 private:
  struct known_site {
    const char* file = nullptr;
    std::uint32_t line = 0;
    std::uint16_t index = 0;
  };
  static constexpr std::size_t site_places = 2 * recording::most_sites;

  [[nodiscard]] record& slot(std::uint64_t id) const noexcept { return memory_->records[id % recording::records_kept]; }
  [[nodiscard]] std::uint16_t site_of(const std::source_location& where) noexcept {
    const char* const file = where.file_name();
    const std::uint32_t line = where.line();
    const std::size_t place = (std::bit_cast<std::uintptr_t>(file) / 8 + line * std::size_t{31}) % site_places;
    const known_site& k = known_[place];
    return k.file == file && k.line == line ? k.index : find_site(where, place);
  }
  /// Returns the next record that may be overwritten; after many, one of an operation in flight.
  TUTTI_DECL record& step_over() noexcept;
  TUTTI_DECL int copy_to(const os::fd& file, os::shm_mapping& copy) const noexcept;
  TUTTI_DECL void take(os::fd file, os::shm_mapping copy) noexcept;
  TUTTI_DECL void keep_in_folder(const std::string& folder);
  TUTTI_DECL void keep_in_memfd() noexcept;
  TUTTI_DECL std::uint16_t find_site(const std::source_location& where, std::size_t place) noexcept;
  TUTTI_DECL void read_clocks(deadline now) noexcept;
  TUTTI_DECL void fail(const status& how) noexcept;
  TUTTI_DECL void drain() noexcept;
  TUTTI_DECL void drain_spans(const os::clock_reading& now, const os::tick_scale& scale) noexcept;
  template <class Call>
  void send(Call call) noexcept;
  TUTTI_DECL void dump_for_signal() noexcept;
  TUTTI_DECL void dump_in_place(const char* reason) noexcept;

  static inline std::atomic<std::uint32_t> signals_{0}, numbers_{0};

  recording* memory_;
  std::uint64_t next_ = 0;
  std::uint32_t kept_ = record::in_flight;
  bool failed_ = false;
  std::vector<known_site> known_;  // a table by hash
  deadline read_at_{}, drained_at_{};
  std::vector<std::unique_ptr<operation_sink>> sinks_;
  tutti::detail::span_log* spans_ = nullptr;
  std::vector<tutti::detail::time_span> taken_;
  std::uint32_t signals_seen_ = signals_.load(std::memory_order_relaxed);
  ::tutti::detail::fork_guard maker_;
  os::shm_mapping mapped_;
  os::fd file_;  // open for other processes to find
  std::string folder_;
};

}  // namespace tutti::watch

#if !defined(TUTTI_SEPARATE_COMPILATION)
#include <tutti/impl/watch/flight_recorder.hpp>
#endif
