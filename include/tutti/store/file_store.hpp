#pragma once
#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/store/detail/rendezvous_file.hpp>
#include <tutti/store/errors.hpp>
#include <tutti/store/file_store_options.hpp>
#include <tutti/store/key_value_table.hpp>
#include <tutti/store/text.hpp>
#include <tutti/wire/rendezvous_file.hpp>

namespace tutti {

/// A store in a file that all ranks can open: on one machine, or on a file system that machines share and that supports
/// flock(). Models `store`. Each rank has its own object, which one thread at a time uses. Every call reads what others
/// have appended; get() does so every 10 ms or more often. The process that created the file must live until all ranks
/// have finished. A file that a killed job has left is replaced: if its creator has ended, or, if that was on another
/// machine, after `stale_after` without a change. A rank whose file was removed or replaced gets error{rendezvous}. The
/// last rank to finish removes the file.
class file_store {
 public:
  /// Opens or creates the file at `path`. Throws error{rendezvous} if that is a directory, a file of another kind
  /// (which is left unchanged), a file or link of another user, or cannot be written; {timed_out} if other processes
  /// hold its lock for `options.timeout`.
  explicit file_store(const std::string& path, file_store_options options = {})
      : options_(options), file_(path, options), table_(options.limits) {}
  file_store(const file_store&) = delete;
  file_store& operator=(const file_store&) = delete;
  ~file_store() { finish(); }

  void set(std::string_view key, std::span<const std::byte> value) {
    detail::check_entry(key, value);
    const auto held = lock();
    put(key, value);
  }

  [[nodiscard]] std::vector<std::byte> get(std::string_view key, deadline until) {
    detail::check_key(key);
    require_open();
    const auto since = clock::now();
    auto next_beat = since;
    duration pause = std::chrono::microseconds{100};
    for (;;) {
      refresh();
      if (const auto* value = table_.find(key)) return *value;
      const auto now = clock::now();
      if (now >= until) detail::throw_get_timed_out(key, since, " in " + file_.path());
      file_.require_current();
      if (now >= next_beat) {
        file_.beat();
        next_beat = now + beat_interval;
      }
      // Polls, as no notification of changes works on every shared file system.
      std::this_thread::sleep_for((std::min)(pause, remaining(until)));
      pause = std::min<duration>(pause * 2, std::chrono::milliseconds{10});
    }
  }

  [[nodiscard]] std::optional<std::vector<std::byte>> try_get(std::string_view key) {
    detail::check_key(key);
    require_open();
    file_.require_current();
    refresh();
    const auto* value = table_.find(key);
    return value != nullptr ? std::optional{*value} : std::nullopt;
  }

  std::int64_t add(std::string_view key, std::int64_t delta) {
    detail::check_key(key);
    const auto held = lock();
    std::uint64_t now = 0;
    if (const auto* value = table_.find(key)) {
      if (value->size() != sizeof now) detail::throw_unless_done(wire::store_answer::not_a_number, key);
      now = wire::byte_reader{*value}.u64();
    }
    now += static_cast<std::uint64_t>(delta);
    std::array<std::byte, sizeof now> bytes{};
    wire::byte_writer{bytes}.u64(now);
    put(key, bytes);
    return static_cast<std::int64_t>(now);
  }

  std::vector<std::byte> compare_set(std::string_view key, std::span<const std::byte> expected,
                                     std::span<const std::byte> desired) {
    detail::check_entry(key, expected);
    detail::check_entry(key, desired);
    const auto held = lock();
    const auto* value = table_.find(key);
    const bool replace = value == nullptr ? expected.empty()
                                          : !expected.empty() && std::equal(value->begin(), value->end(),
                                                                            expected.begin(), expected.end());
    if (replace) put(key, desired);
    value = table_.find(key);
    return value != nullptr ? *value : std::vector<std::byte>{};
  }

  bool erase(std::string_view key) {
    detail::check_key(key);
    const auto held = lock();
    if (table_.find(key) == nullptr) return false;
    append(wire::rendezvous_record::change::erase, key, {});
    return true;
  }

  /// Leaves the rendezvous, as the destructor does; later calls throw usage_error. Waits at most a second for the lock.
  void finish() noexcept { file_.finish(); }

  [[nodiscard]] const std::string& path() const noexcept { return file_.path(); }

 private:
  static constexpr std::chrono::milliseconds beat_interval{250};

  void require_open() const {
    if (!file_) throw usage_error{"the file store " + file_.path() + " was already finished"};
  }

  /// Takes the lock, brings the table up to date and removes an incomplete record at the end of the file.
  [[nodiscard]] detail::rendezvous_file::guard lock() {
    require_open();
    auto held = file_.lock(after(options_.timeout));
    file_.require_current();
    refresh();
    file_.cut(end_);
    return held;
  }

  void put(std::string_view key, std::span<const std::byte> value) {
    if (!table_.fits(key, value.size())) detail::throw_unless_done(wire::store_answer::full, key);
    append(wire::rendezvous_record::change::set, key, value);
  }

  void append(wire::rendezvous_record::change what, std::string_view key, std::span<const std::byte> value) {
    wire::rendezvous_record r;
    r.what = what;
    r.key = key;
    r.value = value;
    r.total_bytes = wire::rendezvous_record::head_bytes + key.size() + value.size();
    // Each change appends a record and none is removed, so the size of the file needs a bound beside the table's.
    if (end_ + r.total_bytes > 4 * options_.limits.bytes) {
      detail::throw_unless_done(wire::store_answer::full, key);
    }
    std::vector<std::byte> bytes;
    bytes.reserve(r.total_bytes);
    const auto head = wire::encode_record_head(r);
    const auto name = bytes_of(key);
    bytes.insert(bytes.end(), head.data(), head.data() + head.size());
    bytes.insert(bytes.end(), name.data(), name.data() + name.size());
    bytes.insert(bytes.end(), value.data(), value.data() + value.size());
    file_.append(end_, bytes);
    apply(r);
  }

  void apply(const wire::rendezvous_record& r) {
    if (r.what == wire::rendezvous_record::change::erase) {
      table_.erase(r.key);
    } else {
      detail::throw_unless_done(table_.set(r.key, r.value), r.key);
    }
    end_ += r.total_bytes;
  }

  /// Applies the complete records that were appended since the last call.
  void refresh() {
    std::size_t room = chunk_bytes;
    for (;;) {
      buffer_.resize(room);
      buffer_.resize(file_.read_at(end_, buffer_));
      std::span<const std::byte> rest{buffer_};
      bool found = false;
      while (const auto record = wire::decode_record(rest)) {
        apply(*record);
        rest = rest.subspan(record->total_bytes);
        found = true;
      }
      const bool more = buffer_.size() == room;
      if (!more || (!found && room > largest_record)) return;
      // The buffer may have been too small for the next record.
      if (!found) room = 2 * largest_record;
    }
  }

  static constexpr std::size_t chunk_bytes = 1 << 16;
  static constexpr std::size_t largest_record =
      wire::rendezvous_record::head_bytes + wire::max_key_bytes + wire::max_value_bytes;

  file_store_options options_;
  detail::rendezvous_file file_;
  key_value_table table_;
  std::uint64_t end_ = wire::rendezvous_head::bytes;  // offset behind the records that are in the table
  std::vector<std::byte> buffer_;
};

}  // namespace tutti
