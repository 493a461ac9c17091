#pragma once
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/bootstrap/rendezvous/roll_call.hpp>
#include <tutti/bootstrap/spawn.hpp>
#include <tutti/bootstrap/spawn/calls.hpp>
#include <tutti/bootstrap/spawn/processes.hpp>
#include <tutti/bootstrap/spawn/report.hpp>
#include <tutti/communicator.hpp>
#include <tutti/config.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/text.hpp>
#include <tutti/impl/bootstrap/init.hpp>
#include <tutti/wire/random.hpp>

namespace tutti::detail {

/// Throws the failure of a rank as spawn() does.
[[noreturn]] TUTTI_DECL void raise(const spawn_report& r, const spawn_call& call);

/// Course of a call of spawn() in the process that has started the ranks.
class spawn_supervision {
 public:
  spawn_supervision(spawned_processes& ranks, const spawn_call& call, const spawn_options& options)
      : ranks_(ranks),
        call_(call),
        options_(options),
        arrived_(static_cast<std::size_t>(call.size)),
        returned_(arrived_.size()),
        failed_(arrived_.size()),
        turn_(after(options.init.join_timeout)) {}

  /// Returns once all processes have ended, and the failure that was the cause, if there was one.
  [[nodiscard]] std::optional<spawn_report> run() {
    constexpr std::chrono::milliseconds between_looks_at_stop{100};
    while (ranks_.running() > 0) {
      const bool may_be_stopped = options_.init.stop.stop_possible() && stage_ <= stage::running;
      const auto look = may_be_stopped ? after(between_looks_at_stop) : (deadline::max)();
      for (const spawn_report& news : ranks_.next((std::min)(look, turn_))) handle(news);
      if (may_be_stopped && options_.init.stop.stop_requested()) {
        cause_ = {spawn_report::what::failed, -1, {errc::aborted}, 0, "init_options::stop was requested"};
        turn_ = clock::now();
        stage_ = stage::settling;
      }
      if (clock::now() >= turn_) go_on();
    }
    return cause_ ? cause_ : consequence_;
  }

 private:
  enum class stage : std::uint8_t { arriving, running, settling, terminating, killed };

  void handle(const spawn_report& news) {
    const auto r = static_cast<std::size_t>(news.rank);
    if (news.kind == spawn_report::what::arrived) {
      arrived_[r] = true;
      if (stage_ == stage::arriving && std::ranges::find(arrived_, false) == arrived_.end()) {
        stage_ = stage::running;
        turn_ = (deadline::max)();
      }
    } else if (news.kind == spawn_report::what::returned) {
      returned_[r] = true;
    } else if (news.kind != spawn_report::what::ended) {
      fail(news);
    } else if (!failed_[r] && !(returned_[r] && is_clean(news.why.detail))) {
      spawn_report end = news;
      end.text = returned_[r]  ? "after its function had returned"
                 : arrived_[r] ? "before its function had returned"
                               : never_came();
      fail(end);
    }
  }
  void fail(const spawn_report& why) {
    failed_[static_cast<std::size_t>(why.rank)] = true;
    if (stage_ > stage::settling) return;  // this process has ended it
    auto& first = why.is_consequence() ? consequence_ : cause_;
    if (!first) first = why;
    if (stage_ == stage::settling) return;
    stage_ = stage::settling;
    turn_ = after(options_.settle);
  }
  /// Takes the next step towards the end of all ranks.
  void go_on() {
    if (stage_ == stage::arriving) {
      const auto absent = std::ranges::find(arrived_, false) - arrived_.begin();
      fail({spawn_report::what::late,
            static_cast<int>(absent),
            {errc::timed_out, 0, static_cast<int>(absent)},
            0,
            "did not come to this call within " + in_seconds(options_.init.join_timeout) +
                " (init_options::join_timeout): is it stuck, or slow, in what main() does before?"});
    }
    ranks_.signal(stage_ <= stage::settling ? SIGTERM : SIGKILL);
    turn_ = stage_ <= stage::settling ? after(options_.grace) : (deadline::max)();
    stage_ = stage_ <= stage::settling ? stage::terminating : stage::killed;
  }

  static bool is_clean(std::uint64_t status) noexcept {
    return status == 0 || status == spawned_processes::unknown_status;
  }
  [[nodiscard]] std::string never_came() const {
    return "before it came to this call (" + call_.where +
           "): it runs this program again, with the same arguments, and main() must take the same way each time";
  }

  spawned_processes& ranks_;
  const spawn_call& call_;
  const spawn_options& options_;
  std::vector<bool> arrived_, returned_, failed_;
  std::optional<spawn_report> cause_;
  std::optional<spawn_report> consequence_;  ///< the first failure that another rank has caused
  stage stage_ = stage::arriving;
  deadline turn_;
};

TUTTI_DECL void raise(const spawn_report& r, const spawn_call& call) {
  if (r.rank < 0) throw error{r.why, "spawn: " + r.text};
  const std::string who = "spawn: rank " + std::to_string(r.rank) + " of " + std::to_string(call.size) + " ";
  switch (r.kind) {
    case spawn_report::what::misused:
      throw usage_error(who + "threw: " + r.text);
    case spawn_report::what::failed:
      throw error{r.why, who + "threw: " + r.text, {r.rank, r.sequence}};
    case spawn_report::what::no_program:
      throw error{r.why, who + "cannot run this program again: " + os::errno_text(r.why.error_number()), {r.rank}};
    case spawn_report::what::late:
      throw error{r.why, who + r.text, {r.rank}};
    case spawn_report::what::ended:
      break;
    case spawn_report::what::arrived:
    case spawn_report::what::returned:
    case spawn_report::what::threw:
      throw error{{errc::aborted, 0, r.rank}, who + "threw " + r.text, {r.rank}};
  }
  if (r.why.detail == spawned_processes::unknown_status)
    throw spawn_error{r.rank, 0, 0,
                      who + "ended " + r.text +
                          "; this program ignores SIGCHLD or has waited for the process itself, so "
                          "that nothing tells how"};
  const int status = static_cast<int>(r.why.detail);
  if (!WIFSIGNALED(status))
    throw spawn_error{r.rank, 0, WEXITSTATUS(status),
                      who + "ended by exit(" + std::to_string(WEXITSTATUS(status)) + ") " + r.text};
  const int signal = WTERMSIG(status);
  throw spawn_error{r.rank, signal, 0,
                    who + "was ended by signal " + std::to_string(signal) + " (" + ::strsignal(signal) + ") " + r.text +
                        (signal == SIGKILL ? "; the kernel kills processes when memory runs out" : "")};
}

/// Returns the place at which the ranks of a call meet.
TUTTI_DECL std::string make_spawn_rendezvous() {
  std::uint64_t random = 0;
  if (!wire::kernel_random(std::as_writable_bytes(std::span{&random, 1})))
    throw error{{errc::system}, "spawn: the kernel gave no random bytes"};
  return "unix:@tutti-spawn-" + std::to_string(::getpid()) + "-" + std::to_string(random);
}

/// Starts the ranks, and returns or throws as spawn() does.
TUTTI_DECL void supervise_ranks(const spawn_call& call, const spawn_options& options) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    os::throw_errno(errno, "spawn: cannot make a socket pair");
  os::fd here{ends[0]}, there{ends[1]};
  const os::fd order = spawn_order{call, make_spawn_rendezvous(), spawn_calls::failures()}.write();
  spawn_image image{options.arguments, order, there};
  spawned_processes ranks{call.size, image, std::move(here)};
  there.reset();
  if (const auto why = spawn_supervision{ranks, call, options}.run()) {
    spawn_calls::note(call, *why);
    raise(*why, call);
  }
}

/// Joins the world as a rank and runs its function. Ends this process.
template <class Backend>
[[noreturn]] void run_spawned_rank(const spawned_process& me, const spawn_order& order, const spawn_options& options,
                                   rank_function<Backend> f) {
  me.close_on_exec();
  me.send({spawn_report::what::arrived, me.rank(), {}, 0, {}});
  std::optional<communicator<Backend>> world;
  try {
    init_options joining = options.init;
    joining.rendezvous = order.rendezvous;
    joining.rank = me.rank();
    joining.world_size = order.call.size;
    world.emplace(make_world<Backend>(joining, process_count::exact));
    f.call(f.f, *world);
    world.reset();
  } catch (...) {
    me.send(report_of_exception(me.rank()));  // before the others are told: the first report is that of the cause
    if (world) world->abort();
    world.reset();
    std::exit(EXIT_FAILURE);
  }
  me.send({spawn_report::what::returned, me.rank(), {}, 0, {}});
  std::exit(EXIT_SUCCESS);
}

template <class Backend>
void spawn_ranks(int size, const std::source_location& where, const spawn_options& options, rank_function<Backend> f) {
  if (size < 1 || size > roll_call<rendezvous_store<>>::most_ranks)
    throw usage_error("spawn: " + std::to_string(size) + " ranks; a world has 1 to 65536");
  if (options.init.rank || options.init.world_size || !options.init.rendezvous.empty())
    throw usage_error(
        "spawn: spawn_options::init has a rank, a world size or a rendezvous, which spawn() gives itself");
  if (options.init.join_timeout <= duration{0} || options.settle < duration{0} || options.grace < duration{0})
    throw usage_error("spawn: spawn_options has a negative duration");
  const auto me = spawned_process::here();
  const spawn_call call = spawn_calls::begin(size, where, options.arguments);
  if (!me) return supervise_ranks(call, options);

  me->expect_parent();
  static std::optional<spawn_order> order;
  static bool entered = false;
  if (entered) throw usage_error("spawn: a rank that spawn() has started cannot spawn ranks itself");
  if (!order) order = spawn_order::read(me->order());
  if (!order) throw usage_error("spawn: a descriptor that spawn() uses was closed by this program before it came here");
  if (order->call.is_at(call)) {
    if (order->call != call)
      throw usage_error("spawn: this process was started for " + std::to_string(order->call.size) + " ranks at " +
                        order->call.where + ", and main() came to a call for " + std::to_string(size) + " at " +
                        call.where + " instead; it must take the same way each time");
    entered = true;
    run_spawned_rank(*me, *order, options, f);
  }
  for (const auto& failure : order->before)
    if (failure.call == call) raise(failure.why, call);
}

}  // namespace tutti::detail
