#include "tutti-run/machines/agent.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <optional>

#include "tutti-run/machines/channel.hpp"
#include "tutti-run/machines/order.hpp"
#include "tutti-run/machines/rank_pipes.hpp"
#include "tutti-run/ranks/environment.hpp"
#include "tutti-run/ranks/limits.hpp"
#include "tutti-run/ranks/local_ranks.hpp"
#include "tutti-run/ranks/process_tree.hpp"
#include "tutti-run/status/child.hpp"

namespace tutti::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto patience_with_kill = 10s;
constexpr auto kill_again_after = 50ms;

// stdin and stdout carry messages; what this process or a rank writes to its stdout must not get among them.
unique_fd lift(int fd) { return unique_fd{check(::fcntl(fd, F_DUPFD_CLOEXEC, 10), "move a descriptor")}; }

channel take_channel(poller& events) {
  unique_fd in = lift(STDIN_FILENO);
  unique_fd out = lift(STDOUT_FILENO);
  const unique_fd nothing{check(::open("/dev/null", O_RDONLY | O_CLOEXEC), "open /dev/null")};
  check(::dup2(nothing.value(), STDIN_FILENO), "redirect stdin");
  check(::dup2(STDERR_FILENO, STDOUT_FILENO), "redirect stdout");
  return {std::move(in), std::move(out), events, 0, ""};
}

greeting introduce() {
  greeting hello;
  hello.version = library_version();
  if (const char* connection = std::getenv("SSH_CONNECTION")) hello.ssh_connection = connection;
  hello.port = free_network_port();
  do hello.other_port = free_network_port();
  while (hello.other_port == hello.port);
  return hello;
}

class agent {
 public:
  explicit agent(const supervision_place& here)
      : here_(here), messages_(take_channel(events_)), asked_(here.signals, events_) {
    events_.add(here_.lifeline.value(), EPOLLIN, source::lifeline);
  }
  int run();

 private:
  enum class phase { waiting, running, terminating, killing, done };

  void handle(const event& happened);
  void obey_lifeline();
  void obey(message kind, std::string_view content);
  void prepare(machine_order order);
  void go();
  void refuse(const failure& why);
  void tell_ends();
  void advance(clock::time_point now);
  void terminate();
  void kill(clock::time_point now);
  clock::time_point next_deadline() const noexcept;
  void show(int index, rank_pipes::side which, std::string_view bytes);
  rank_pipes::taker shower() {
    return [this](int index, rank_pipes::side which, std::string_view bytes) { show(index, which, bytes); };
  }

  const supervision_place& here_;
  poller events_;
  channel messages_;
  status_child asked_;
  std::int64_t status_round_ = 0;
  machine_order order_;
  std::optional<rank_pipes> pipes_;
  std::optional<local_ranks> ranks_;
  std::vector<rank_end> ends_;
  std::vector<bool> told_;
  phase phase_ = phase::waiting;
  clock::time_point next_word_ = clock::now();
  clock::time_point deadline_ = clock::time_point::max();
  clock::time_point next_tick_ = clock::time_point::max();
  clock::time_point next_kill_ = clock::time_point::max();
  int status_ = 0;
};

int agent::run() {
  messages_.send_raw(agent_banner);
  messages_.send(message::hello, encode(introduce()));
  while (phase_ != phase::done) {
    const auto happened = events_.wait(next_deadline());
    if (ranks_) ranks_->observe();
    for (const auto& one : happened) handle(one);
    const auto now = clock::now();
    if (ranks_) {
      next_tick_ = ranks_->tick(now);
      if (const auto passed = pipes_->pass_input(); passed > 0)
        messages_.send(message::credit, message_writer{}.number(passed).bytes());
    }
    advance(now);
    messages_.flush();
  }
  // What was said last must get there; who does not read for so long has gone.
  for (const auto end = clock::now() + lost_after; messages_.pending() > 0 && clock::now() < end; messages_.flush())
    events_.wait(clock::now() + 10ms);
  return status_;
}

clock::time_point agent::next_deadline() const noexcept {
  return std::min(
      {deadline_, next_word_, next_tick_, phase_ == phase::killing ? next_kill_ : clock::time_point::max()});
}

void agent::handle(const event& happened) {
  switch (happened.from) {
    case source::lifeline:
      return obey_lifeline();
    case source::machine: {
      const bool open = messages_.receive([this](message kind, std::string_view content) { obey(kind, content); });
      if (open || !messages_.is_open()) return;
      messages_.close();
      return terminate();
    }
    case source::out:
    case source::err:
    case source::input:
      if (pipes_) pipes_->handle(happened, shower());
      return;
    case source::status:
      if (const auto said = asked_.read(); said && !said->out.empty())
        messages_.send(message::status, message_writer{}.number(status_round_).text(said->out).bytes());
      return;
    default:
      if (ranks_) ranks_->handle(happened);
  }
}

void agent::obey_lifeline() {
  int signal = 0;
  const auto length = ::recv(here_.lifeline.value(), &signal, sizeof signal, MSG_DONTWAIT);
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (length > 0 && (signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT))
    return terminate();
  if (length > 0) return;
  events_.remove(here_.lifeline.value());
  status_ = 1;
  terminate();
}

void agent::obey(message kind, std::string_view content) {
  message_reader in{content};
  switch (kind) {
    case message::order:
      return prepare(decode_order(content));
    case message::go:
      return go();
    case message::credit:
      if (pipes_) pipes_->credit(in.number());
      return;
    case message::signals:
      while (!in.empty()) {
        const int signal = in.small();
        if (ranks_) ranks_->signal_everything({signal});
        if (signal == SIGKILL && !ranks_) phase_ = phase::done;
      }
      return;
    case message::signal_ranks:
      if (ranks_) ranks_->signal_ranks(in.small());
      return;
    case message::drop_output:
      if (pipes_) pipes_->drop(in.small() == 0 ? rank_pipes::side::out : rank_pipes::side::err);
      return;
    case message::status:
      status_round_ = in.number();
      static_cast<void>(asked_.start({"--status", std::to_string(::getpid()), "--encoded"}));
      return;
    case message::input:
      if (pipes_) pipes_->feed(content);
      return;
    case message::input_end:
      if (pipes_) pipes_->end_input();
      return;
    default:
      return;
  }
}

void agent::prepare(machine_order order) try {
  order_ = std::move(order);
  enter_working_directory(order_.folder);
  for (const auto& variable : order_.exported) {
    const auto equals = variable.find('=');
    ::setenv(variable.substr(0, equals).c_str(), variable.c_str() + equals + 1, 1);
  }
  const rlimit files = reserve_resources(order_.given.ranks, "ranks");
  ::unsetenv("TUTTI_SECRET_FILE");  // one of another job's, where this is the launcher's machine
  const std::string secret = order_.secret.empty() ? std::string{} : here_.secret.make(order_.secret);
  if (secret.empty() && !order_.secret.empty() && order_.part.world > order_.given.ranks)
    throw failure(1, "cannot write the file of the job's secret in TMPDIR, /tmp, XDG_RUNTIME_DIR or /dev/shm");
  ::explicit_bzero(order_.secret.data(), order_.secret.size());
  ends_.resize(static_cast<std::size_t>(order_.given.ranks));
  told_.resize(ends_.size());
  pipes_.emplace(order_.given.ranks, order_.part.first, events_);
  ranks_.emplace(order_.given, here_.signals, files, order_.part, order_.rendezvous, secret, here_.lifeline.value(),
                 events_);
  ranks_->prepare(ends_, *pipes_);
  message_writer pids;
  for (const auto& rank : ends_) pids.number(rank.pid);
  messages_.send(message::prepared, pids.bytes());
} catch (const failure& why) {
  refuse(why);
}

void agent::go() try {
  ranks_->release();
  phase_ = phase::running;
  messages_.send(message::running);
} catch (const failure& why) {
  refuse(why);
}

void agent::refuse(const failure& why) {
  messages_.send(message::refused, message_writer{}.number(why.status()).text(why.what()).bytes());
  status_ = why.status();
  kill(clock::now());
}

void agent::show(int index, rank_pipes::side which, std::string_view bytes) {
  message_writer out;
  out.number(index).number(static_cast<int>(which));
  if (!bytes.empty()) out.text(bytes);
  messages_.send(bytes.empty() ? message::output_end : message::output, out.bytes());
}

void agent::tell_ends() {
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const auto& one = ends_[i];
    if (!one.ended || told_[i]) continue;
    told_[i] = true;
    message_writer out;
    out.number(static_cast<std::int64_t>(i)).number(one.code).number(one.status).number(one.blames);
    messages_.send(message::ended, out.bytes());
  }
}

void agent::advance(clock::time_point now) {
  if (now >= next_word_) {
    messages_.send(message::alive);
    next_word_ = now + alive_every;
  }
  tell_ends();
  if (phase_ < phase::terminating && messages_.is_open() && now >= messages_.last_heard() + lost_after) {
    messages_.close();
    terminate();
  }
  const bool all_ended = std::ranges::all_of(ends_, &rank_end::ended);
  switch (phase_) {
    case phase::waiting:
      return;
    case phase::running:
      if (!all_ended || !ranks_->gone()) return;
      break;
    case phase::terminating:
    case phase::killing:
      if (ranks_ && !ranks_->gone() && !(phase_ == phase::killing && now >= deadline_)) {
        if (phase_ == phase::terminating && now >= deadline_) kill(now);
        if (phase_ == phase::killing && now >= next_kill_) {
          ranks_->signal_everything({SIGKILL});
          next_kill_ = now + kill_again_after;
        }
        return;
      }
      break;
    case phase::done:
      return;
  }
  if (pipes_) pipes_->finish(shower());
  messages_.send(message::finished);
  phase_ = phase::done;
}

void agent::terminate() {
  if (phase_ >= phase::terminating) return;
  phase_ = phase::terminating;
  deadline_ = clock::now() + order_.given.grace;
  if (ranks_) ranks_->signal_everything({SIGTERM, SIGCONT});
}

void agent::kill(clock::time_point now) {
  if (phase_ >= phase::killing) return;
  phase_ = phase::killing;
  deadline_ = now + patience_with_kill;
  next_kill_ = now;
}

}  // namespace

int run_agent(const supervision_place& here) {
  try {
    return agent{here}.run();
  } catch (...) {
    kill_descendants(clock::now() + patience_with_kill);
    throw;
  }
}

}  // namespace tutti::launch
