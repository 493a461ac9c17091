#pragma once
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <tutti/config.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/log.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/host.hpp>
#include <tutti/os/process.hpp>
#include <tutti/os/throw_errno.hpp>
#include <tutti/watch/dump.hpp>
#include <tutti/watch/flight.hpp>
#include <tutti/watch/flight_recorder.hpp>
#include <tutti/watch/last_call.hpp>

namespace tutti::watch {

TUTTI_DECL flight_recorder::flight_recorder(int rank, int size) : known_(site_places) {
  void* const at = ::mmap(nullptr, sizeof(recording), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc{};
  mapped_ = {at, sizeof(recording)};
  memory_ = static_cast<recording*>(at);  // zero bytes are an empty recording
  recording_head& h = memory_->head;
  h.rank = rank;
  h.size = size;
  h.sites.store(1, std::memory_order_relaxed);
  h.failed_peer.store(-1, std::memory_order_relaxed);
  h.magic = recording_head::sign;
  h.version = recording_head::known_version;
  h.number = 1;
  h.first.write(os::read_clocks());
  h.last.write(os::read_clocks());
}

TUTTI_DECL flight_recorder::~flight_recorder() {
  if (maker_.inherited()) {
    for (auto& sink : sinks_) static_cast<void>(sink.release());  // its file is the parent's
    return;
  }
  if (!sinks_.empty()) drain();
  memory_->head.last.write(os::read_clocks());
  memory_->head.left.store(os::ticks_now(), std::memory_order_release);
}

TUTTI_DECL void flight_recorder::keep_in(const flight_place& where) {
  recording_head& own = memory_->head;
  own.number = where.number;
  own.world = where.world;
  own.pid = ::getpid();
  own.start_time = os::process_start_time(::getpid()).value_or(0);
  put_text(own.host, os::hostname());
  put_text(own.boot, kernel_and_pids());
  put_text(own.job, where.job);
  if (where.folder.empty()) return keep_in_memfd();
  try {
    keep_in_folder(where.folder);
  } catch (const std::exception&) {
    keep_in_memfd();
    throw;
  }
}

TUTTI_DECL void flight_recorder::keep_in_folder(const std::string& where) {
  const std::string path = ring_path(where, memory_->head.rank, memory_->head.number), fresh = path + ".tmp";
  ::unlink(fresh.c_str());  // left by an earlier process
  os::fd file{::open(fresh.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)};
  if (!file) os::throw_errno(errno, "cannot create " + fresh);
  const auto fail = [&](int why, const std::string& name) {
    ::unlink(fresh.c_str());
    os::throw_errno(why, "cannot write " + name);
  };
  std::string folder = where;
  os::shm_mapping copy;
  if (const int why = copy_to(file, copy); why != 0) fail(why, fresh);
  if (std::rename(fresh.c_str(), path.c_str()) != 0) fail(errno, path);
  take(std::move(file), std::move(copy));  // from here on nothing fails
  folder_ = std::move(folder);
}

/// Maps an empty file and copies the recording there. Returns 0 or an errno.
TUTTI_DECL int flight_recorder::copy_to(const os::fd& file, os::shm_mapping& copy) const noexcept {
  rlimit most{};  // at a larger file the kernel would end the process
  if (::getrlimit(RLIMIT_FSIZE, &most) == 0 && most.rlim_cur < sizeof(recording)) return EFBIG;
  // Blocks that the disk has not got later would end the process at a store.
  int full = EINTR;
  while (full == EINTR) full = ::posix_fallocate(file.native(), 0, sizeof(recording));
  if (full != 0) return full;
  void* const at = ::mmap(nullptr, sizeof(recording), PROT_READ | PROT_WRITE, MAP_SHARED, file.native(), 0);
  if (at == MAP_FAILED) return errno;
  std::memcpy(at, static_cast<const void*>(memory_), sizeof(recording));
  copy = os::shm_mapping{at, sizeof(recording)};
  return 0;
}

/// Records in the copy from now on.
TUTTI_DECL void flight_recorder::take(os::fd file, os::shm_mapping copy) noexcept {
  mapped_ = std::move(copy);
  memory_ = reinterpret_cast<recording*>(mapped_.data());
  file_ = std::move(file);
}

TUTTI_DECL void flight_recorder::keep_in_memfd() noexcept {
  os::fd file{::memfd_create(recording_head::memory_name, MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  os::shm_mapping copy;
  if (!file || copy_to(file, copy) != 0) return;
  take(std::move(file), std::move(copy));
  static_cast<void>(::fcntl(file_.native(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL));
}

TUTTI_DECL std::optional<flight> flight_recorder::recording_of(int rank, std::int32_t pid) const {
  return watch::recording_of(*memory_, folder_, rank, pid);
}

TUTTI_DECL void flight_recorder::keep_beside(const flight_recorder& other, std::uint64_t world) {
  const recording_head& there = other.memory_->head;
  memory_->head.rank = there.rank;
  memory_->head.size = there.size;
  keep_in({other.folder_, std::string(text_of(there.job)), world, next_number()});
}

TUTTI_DECL void flight_recorder::note_group(std::uint32_t context, std::span<const int> members) noexcept {
  recording_head& h = memory_->head;
  const std::uint32_t at = h.group_words.load(std::memory_order_relaxed);
  const std::size_t end = at + 2 + members.size();
  if (end > memory_->groups.size()) return;
  memory_->groups[at] = context;
  memory_->groups[at + 1] = static_cast<std::uint32_t>(members.size());
  std::ranges::transform(members, memory_->groups.begin() + at + 2,
                         [](int r) { return static_cast<std::uint32_t>(r); });
  h.group_words.store(static_cast<std::uint32_t>(end), std::memory_order_release);
}

TUTTI_DECL std::uint64_t flight_recorder::mark_bucket(std::uint32_t context, std::uint64_t since,
                                                      std::uint32_t bucket) noexcept {
  std::uint64_t last = 0;
  for (std::uint64_t id = next_; id > 0 && next_ - id < recording::records_kept; --id) {
    const operation o = find(id);
    if (o.id == 0) continue;  // stepped over
    if (o.issued < since) break;
    if (o.call.is_message() || o.context != static_cast<std::uint16_t>(context)) continue;
    slot(id).mark_bucket(bucket);
    last = (std::max)(last, id);
  }
  return last;
}

TUTTI_DECL record& flight_recorder::step_over() noexcept {
  constexpr int most = 64;
  for (int i = 0;; ++i, ++next_) {
    record& r = slot(next_);
    if (kept_ == record::not_taken && r.is_ended_and_not_taken()) drain();
    if (i == most || !r.is_kept(record::in_flight)) return r;
  }
}

TUTTI_DECL void flight_recorder::send_to(std::unique_ptr<operation_sink> sink) {
  sinks_.push_back(std::move(sink));
  kept_ = record::not_taken;
}

TUTTI_DECL void flight_recorder::drain() noexcept {
  const os::clock_reading now = os::read_clocks();
  const os::tick_scale scale{memory_->head.first.read(), now};
  // Ids ascend from the slot after the newest one on, but for operations that were stepped over.
  for (std::uint64_t i = 1; i <= recording::records_kept; ++i) {
    record& r = slot(next_ + i);
    if (!r.is_ended_and_not_taken()) continue;
    const operation o = r.read();
    r.note_taken();
    const auto wall = [&](std::uint64_t ticks) { return ticks == 0 ? scale.wall(o.issued) : scale.wall(ticks); };
    send([&](operation_sink& s) {
      s.take(o, wall(o.issued), wall(o.started), wall(o.ended), memory_->sites[o.site % recording::most_sites]);
    });
  }
  if (spans_) drain_spans(now, scale);
  send([&](operation_sink& s) { s.end_batch(now.wall); });
}

TUTTI_DECL void flight_recorder::drain_spans(const os::clock_reading& now, const os::tick_scale& scale) noexcept {
  try {
    spans_->exchange(taken_);
  } catch (const std::bad_alloc&) {
    return;
  }
  const auto wall = [&](deadline at) {
    return at == deadline{} ? 0 : now.wall + os::detail::nanoseconds(at) - now.steady;
  };
  for (const tutti::detail::time_span& one : taken_) {
    std::int64_t ended = wall(one.ended);
    // A task notices the end of a bucket later.
    if (const operation o = find(one.operation); o.id != 0 && o.ended != 0)
      ended = (std::min)(ended, scale.wall(o.ended));
    send([&](operation_sink& s) { s.take_span(one, wall(one.begun), wall(one.middle), ended); });
  }
}

template <class Call>
void flight_recorder::send(Call call) noexcept {
  for (auto& sink : sinks_) {
    try {
      if (sink) call(*sink);
    } catch (const std::exception& e) {
      sink.reset();
      ::tutti::detail::log(log_level::warning, e.what());
    }
  }
}

TUTTI_DECL std::uint16_t flight_recorder::find_site(const std::source_location& where, std::size_t place) noexcept {
  recording_head& h = memory_->head;
  const char* const file = where.file_name();
  for (std::size_t tries = 0; tries < site_places; ++tries, place = (place + 1) % site_places) {
    known_site& k = known_[place];
    if (k.file == file && k.line == where.line()) return k.index;
    if (k.file) continue;
    const std::uint32_t fresh = h.sites.load(std::memory_order_relaxed);
    if (fresh >= memory_->sites.size()) return 0;
    call_site& s = memory_->sites[fresh];
    s.line = where.line();
    put_text(s.file, file);
    put_text(s.function, std::string_view{where.function_name()}.substr(0, s.function.size() - 1));
    h.sites.store(fresh + 1, std::memory_order_release);
    k = {file, where.line(), static_cast<std::uint16_t>(fresh)};
    return k.index;
  }
  return 0;
}

TUTTI_DECL void flight_recorder::read_clocks(deadline now) noexcept {
  read_at_ = now;
  memory_->head.last.write(os::read_clocks());
}

TUTTI_DECL void flight_recorder::fail(const status& how) noexcept {
  failed_ = true;
  recording_head& h = memory_->head;
  h.failure.store(static_cast<std::int32_t>(how.code), std::memory_order_relaxed);
  h.failed_peer.store(how.peer, std::memory_order_relaxed);
  h.failed.store(os::ticks_now(), std::memory_order_release);
  dump_in_place("failure");
}

TUTTI_DECL void flight_recorder::dump(const std::string& folder, const std::string& reason) const {
  flight f = copy_of(*memory_, os::read_clocks(), true);
  f.reason = reason;
  watch::dump(f, folder);
  if (folder != folder_) dump_ring(*memory_, folder);
}

TUTTI_DECL void flight_recorder::dump_in_place(const char* reason) noexcept {
  if (folder_.empty()) return;
  try {
    dump(folder_, reason);
  } catch (const std::exception& e) {
    try {
      ::tutti::detail::log(log_level::warning, std::string("the flight recorder was not dumped: ") + e.what());
    } catch (const std::bad_alloc&) {  // nothing can be said
    }
  }
}

TUTTI_DECL void flight_recorder::dump_for_signal() noexcept {
  signals_seen_ = signals_.load(std::memory_order_relaxed);
  dump_in_place("signal");
}

TUTTI_DECL void flight_recorder::dump_on(int signal) {
  constexpr auto count = [](int) { signals_.fetch_add(1, std::memory_order_relaxed); };
  const auto refuse = [signal](const char* why) {
    throw usage_error("the flight recorder cannot dump on signal " + std::to_string(signal) + ": " + why +
                      "; choose another, such as USR2");
  };
  // A handler that counts would return to the instruction that faults, again and again.
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    if (signal == fault) refuse("the processor raises it");
  struct sigaction before{};
  if (::sigaction(signal, nullptr, &before) != 0) refuse("it cannot be handled");
  const bool takes_more = (before.sa_flags & SA_SIGINFO) != 0;
  if (!takes_more && before.sa_handler == +count) return;
  if (takes_more || (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN))
    refuse("the program has a handler for it");
  struct sigaction counting{};
  counting.sa_handler = count;
  counting.sa_flags = SA_RESTART;  // calls that it interrupts continue
  ::sigemptyset(&counting.sa_mask);
  if (::sigaction(signal, &counting, nullptr) != 0) refuse("it cannot be handled");
}

}  // namespace tutti::watch
