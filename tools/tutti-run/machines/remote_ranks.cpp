#include "tutti-run/machines/remote_ranks.hpp"

#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>

#include <tutti/os/host.hpp>

#include "tutti-run/machines/choose_rendezvous.hpp"
#include "tutti-run/machines/message.hpp"
#include "tutti-run/output/output.hpp"
#include "tutti-run/ranks/spawn.hpp"

namespace tutti::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto longest_start = 60s;  // also for a login that asks several servers
constexpr std::size_t words_kept = 10;

// The exit status as a shell shows it; nothing while it runs.
std::optional<int> status_of(const piped_process& process, int milliseconds) {
  pollfd end{process.handle.value(), POLLIN, 0};
  ::poll(&end, 1, milliseconds);
  siginfo_t how{};
  if (::waitid(P_PID, static_cast<id_t>(process.pid), &how, WEXITED | WNOHANG | WNOWAIT) != 0 || how.si_pid == 0)
    return std::nullopt;
  return how.si_code == CLD_EXITED ? how.si_status : 128 + how.si_status;
}

// The rank that a message of a machine with `ranks` ranks from `first` on is about.
int rank_in(int first, int ranks, message_reader& in) {
  const auto index = in.number();
  if (index < 0 || index >= ranks) throw bad_message("names a rank of another machine");
  return first + static_cast<int>(index);
}

std::vector<std::string> exported_variables(const options& given) {
  std::vector<std::string> found;
  for (char** variable = environ; *variable; ++variable) {
    const std::string_view name = std::string_view{*variable}.substr(0, std::string_view{*variable}.find('='));
    const bool ours = name.starts_with("TUTTI_") && name != "TUTTI_SECRET_FILE" && !is_identity(name);
    if (ours || std::ranges::find(given.machines.exported, name) != given.machines.exported.end())
      found.emplace_back(*variable);
  }
  return found;
}

std::string working_directory(const options& given) {
  if (!given.machines.folder.empty()) return given.machines.folder;
  std::array<char, 4096> path{};
  if (!::getcwd(path.data(), path.size()))
    throw failure(1, text("cannot tell the working directory: ", std::strerror(errno)));
  return path.data();
}

}  // namespace

remote_ranks::remote_ranks(const options& given, const std::vector<machine_slots>& machines,
                           const signal_state& signals, int lifeline, poller& events)
    : given_(given), signals_(signals), lifeline_(lifeline), events_(events) {
  machines_.reserve(machines.size());
  int first = 0;
  for (const auto& one : machines) {
    connect(one, static_cast<int>(machines_.size()), first);
    first += one.slots;
  }
}

rank_names remote_ranks::names(const std::vector<machine_slots>& machines) {
  rank_names names;
  for (const auto& one : machines)
    names.hosts.insert(names.hosts.end(), static_cast<std::size_t>(one.slots), name_of(one));
  return names;
}

void remote_ranks::connect(const machine_slots& where, int index, int first) {
  const auto& how = given_.machines;
  const remote_shell shell{words_of(how.ssh), how.launcher.empty() ? own_path() : how.launcher};
  const bool here = is_here(where, os::hostname());
  auto process = start_piped(agent_command(shell, where.host, here), signals_);
  channel messages{std::move(process.out), std::move(process.in), events_, index, std::string{agent_banner}};
  events_.add(process.err.value(), EPOLLIN, source::words, index);
  machines_.push_back(
      {name_of(where), where.host, here, first, where.slots, std::move(process), std::move(messages), {}, {}, {}});
}

void remote_ranks::start(job_summary& job, output& shown) {
  job_ = &job;
  shown_ = &shown;
  const std::size_t all = machines_.size();
  await(state::met, 0, all, "did not answer");
  give_orders();
  await(state::prepared, 0, all, "did not start its ranks");
  job.started = clock::now();
  // Rank 0 first and alone, so that a program that cannot be run is reported once.
  machines_.front().messages.send(message::go);
  await(state::running, 0, 1, "did not start its ranks");
  for (std::size_t i = 1; i < all; ++i) machines_[i].messages.send(message::go);
  await(state::running, 1, all, "did not start its ranks");
  input_ = input::unwatched;
  pass_input();
  serve_status();
}

// Without a socket there is no status, and the job runs all the same.
void remote_ranks::serve_status() try {
  std::vector<std::string> names;
  for (const auto& one : machines_) names.push_back(one.name);
  status_.emplace(events_, std::move(names), [this](std::int64_t round) {
    tell([&](machine& one) { one.messages.send(message::status, message_writer{}.number(round).bytes()); });
  });
} catch (const std::exception& why) {
  shown_->say(text("tutti-run: --status cannot show this job: ", why.what(), '\n'));
}

void remote_ranks::give_orders() {
  std::vector<met_machine> met;
  for (const auto& one : machines_) met.push_back({one.name, one.here, one.hello});
  machine_order order;
  order.rendezvous = choose_rendezvous(met, given_.machines.master_address, given_.machines.master_port);
  // Where the user trusts the network, a program without HMAC-SHA256 can join, too.
  const char* network = std::getenv("TUTTI_NETWORK");
  if (!network || std::string_view{network} != "insecure") order.secret = random_secret();
  order.folder = working_directory(given_);
  order.exported = exported_variables(given_);
  order.given = given_;
  for (std::size_t i = 0; i < machines_.size(); ++i) {
    auto& one = machines_[i];
    order.given.ranks = one.ranks;
    order.part = {one.first, given_.ranks, static_cast<int>(i)};
    std::string bytes = encode(order);
    one.messages.send(message::order, bytes);
    ::explicit_bzero(bytes.data(), bytes.size());
  }
  ::explicit_bzero(order.secret.data(), order.secret.size());
}

void remote_ranks::await(state wanted, std::size_t from, std::size_t to, const char* what) {
  const auto deadline = clock::now() + longest_start;
  const auto there = [&](const machine& one) { return one.at >= wanted; };
  const auto first = machines_.begin() + static_cast<std::ptrdiff_t>(from);
  const auto last = machines_.begin() + static_cast<std::ptrdiff_t>(to);
  while (!std::all_of(first, last, there)) {
    const auto now = clock::now();
    if (now >= deadline) {
      const auto late = std::find_if_not(first, last, there);
      const bool by_ssh = wanted == state::met && !late->here;
      throw failure(1, text(late->name, " ", what, " within ", longest_start.count(), " s",
                            by_ssh ? "; try: " + ssh_to_try(*late) : ""));
    }
    tick(now);
    for (const auto& happened : events_.wait(std::min(deadline, next_word_))) {
      if (happened.from == source::lifeline)
        obey_while_starting(lifeline_);
      else if (happened.from == source::sink)
        shown_->handle(happened);
      else
        handle(happened);
    }
    for (const auto& one : machines_) check_start(one);
    shown_->flush();
  }
}

std::string remote_ranks::ssh_to_try(const machine& one) const {
  return text(given_.machines.ssh, " -o BatchMode=yes ", one.target, " true");
}

void remote_ranks::check_start(const machine& one) const {
  if (!one.broken || one.at > state::prepared) return;
  const auto status = status_of(one.process, 1000);
  const std::string ended = status ? text(" ended with exit code ", *status) : " has closed its output";
  std::string why = text(one.name, ": ");
  const bool met = one.at > state::starting;
  const std::string command = given_.machines.launcher.empty() ? own_path() : given_.machines.launcher;
  if (one.here || met)
    why += text("its launcher", ended, " before the ranks ran");
  else if (status == 127)
    why += text("there is no ", command,
                "; install tutti-run there at the same path, or say where it is with "
                "--remote-tutti-run PATH");
  else if (status == 126)
    why += text(command, " cannot be run there; is it built for another system?");
  else
    why += text(words_of(given_.machines.ssh).front(), ended, "; it must get there without a question: try ",
                ssh_to_try(one));
  for (const auto& line : one.said) why += text("\n  | ", line);
  throw failure(1, why);
}

void remote_ranks::handle(const event& happened) {
  if (happened.from == source::input) return pass_input();
  if (happened.from == source::status_server) return status_->accept();
  auto& from = machines_[static_cast<std::size_t>(happened.index)];
  if (happened.from == source::words) return read_words(from);
  if (happened.from != source::machine || from.broken || !from.messages.is_open()) return;
  from.messages.flush();
  const auto take = [&](message kind, std::string_view content) { obey(from, kind, content); };
  try {
    if (from.messages.receive(take) || !from.messages.is_open()) return;
  } catch (const bad_message& why) {
    throw failure(1, text(from.name, ": ", why.what()));
  }
  read_words(from);
  from.broken = true;
  from.messages.close();
}

void remote_ranks::obey(machine& from, message kind, std::string_view content) {
  message_reader in{content};
  switch (kind) {
    case message::hello:
      from.hello = decode_greeting(content);
      if (from.hello.version != library_version())
        throw failure(1, text(from.name, ": its tutti-run is version ", from.hello.version, ", and this one is ",
                              library_version(), "; install the same one, or name it with --remote-tutti-run PATH"));
      from.at = state::met;
      return;
    case message::prepared:
      for (int i = 0; i < from.ranks; ++i) job_->ranks[static_cast<std::size_t>(from.first + i)].pid = in.small();
      from.at = state::prepared;
      return;
    case message::running:
      from.at = state::running;
      from.said.clear();
      return;
    case message::refused: {
      const int status = in.small();
      throw failure(status, text(from.name, ": ", in.text()));
    }
    case message::output:
    case message::output_end: {
      const int index = rank_in(from.first, from.ranks, in);
      const auto which = in.small() == 0 ? source::out : source::err;
      if (kind == message::output_end) return shown_->end_of(which, index);
      const auto bytes = in.text();
      shown_->take(which, index, bytes);
      from.owed += static_cast<std::int64_t>(bytes.size());
      return;
    }
    case message::credit: {
      const auto more = in.number();
      if (&from != &machines_.front() || more < 0 || more > input_window - input_credit_)
        throw bad_message("takes more input than was sent");
      input_credit_ += more;
      return pass_input();
    }
    case message::ended:
      return record_end(from, content);
    case message::status: {
      const auto round = in.number();
      if (status_) status_->take(static_cast<std::size_t>(&from - machines_.data()), round, in.text());
      return;
    }
    case message::finished:
      if (from.at != state::lost) from.at = state::finished;
      return;
    default:
      return;
  }
}

void remote_ranks::record_end(machine& of, std::string_view content) {
  message_reader in{content};
  auto& end = job_->ranks[static_cast<std::size_t>(rank_in(of.first, of.ranks, in))];
  if (end.ended) return;
  end.ended = true;
  end.code = in.small();
  end.status = in.small();
  end.blames = in.small();
  end.died = {++seen_, clock::now()};
  end.by_launcher = ending_;
  ++newly_ended_;
}

void remote_ranks::read_words(machine& of) {
  std::array<char, 4096> some;
  const auto take = [&](std::string_view line) {
    if (of.at == state::running || of.at == state::finished) {
      shown_->say(text("tutti-run: ", of.name, ": ", line, '\n'));
      return;
    }
    of.said.emplace_back(line);
    if (of.said.size() > words_kept) of.said.pop_front();
  };
  for (pollfd ready{of.process.err.value(), POLLIN, 0}; of.process.err && ::poll(&ready, 1, 0) > 0;) {
    const auto count = ::read(of.process.err.value(), some.data(), some.size());
    if (count < 0 && errno == EINTR) continue;
    if (count > 0) {
      of.words.feed({some.data(), static_cast<std::size_t>(count)}, take);
      continue;
    }
    of.words.end(take);
    of.process.err.reset();
  }
}

// Everything that the terminal or file has, as rank 0 takes it.
void remote_ranks::pass_input() {
  if (input_ == input::none) return;
  auto& to = machines_.front();
  const auto stop = [&](input now) {
    if (input_ == input::watched) events_.remove(STDIN_FILENO);
    input_ = now;
  };
  if (to.at != state::running || job_->ranks.front().ended) return stop(input::none);
  std::array<char, input_window> some;
  for (pollfd ready{STDIN_FILENO, POLLIN, 0}; input_credit_ > 0 && ::poll(&ready, 1, 0) > 0;) {
    const auto count =
        ::read(STDIN_FILENO, some.data(), std::min(some.size(), static_cast<std::size_t>(input_credit_)));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0) {
      to.messages.send(message::input_end);
      return stop(input::none);
    }
    to.messages.send(message::input, {some.data(), static_cast<std::size_t>(count)});
    input_credit_ -= count;
  }
  if (input_credit_ <= 0) return stop(input::unwatched);
  if (input_ == input::watched) return;
  events_.add(STDIN_FILENO, EPOLLIN, source::input);  // what epoll does not take, a file, is at its end by now
  input_ = input::watched;
}

int remote_ranks::observe() { return std::exchange(newly_ended_, 0); }

clock::time_point remote_ranks::tick(clock::time_point now) {
  for (auto& one : machines_) {
    if (one.broken && one.at == state::running) {
      const auto status = status_of(one.process, 0);
      const std::string how = status && !one.here ? text(" (ssh ended with exit code ", *status, ')') : "";
      lose(one, text(one.here ? "the launcher of its machine ended" : "the connection to its machine broke", how));
    }
    if (one.owed > 0 && !shown_->is_full())
      one.messages.send(message::credit, message_writer{}.number(std::exchange(one.owed, 0)).bytes());
  }
  for (const auto which : {source::out, source::err})
    if (auto& dropped = dropped_[which == source::out ? 0 : 1]; !dropped && shown_->reader_left(which)) {
      dropped = true;
      tell([&](machine& one) {
        one.messages.send(message::drop_output, message_writer{}.number(which == source::out ? 0 : 1).bytes());
      });
    }
  if (now >= next_word_) {
    next_word_ = now + alive_every;
    tell([](machine& one) {
      if (one.at > state::starting) one.messages.send(message::alive);
    });
  }
  lose_silent(now, ending_ ? silent_after : lost_after);
  for (auto& one : machines_) one.messages.flush();
  const auto next = status_ ? std::min(next_word_, status_->tick(now)) : next_word_;
  return newly_ended_ > 0 ? now : next;
}

void remote_ranks::lose_silent(clock::time_point now, clock::duration longest) {
  for (auto& one : machines_) {
    if (one.at != state::running || now - one.messages.last_heard() < longest) continue;
    if (one.messages.has_waiting()) continue;  // it is this process that is late
    const auto silence = std::chrono::duration_cast<std::chrono::milliseconds>(now - one.messages.last_heard());
    std::array<char, 32> seconds{};
    std::snprintf(seconds.data(), seconds.size(), "%.1f s", static_cast<double>(silence.count()) / 1000);
    lose(one, text("its machine has not answered for ", seconds.data()));
  }
}

void remote_ranks::lose(machine& which, const std::string& why) {
  which.at = state::lost;
  which.messages.close();
  pidfd_send_signal(which.process.handle.value(), SIGKILL);
  for (int i = 0; i < which.ranks; ++i) {
    auto& end = job_->ranks[static_cast<std::size_t>(which.first + i)];
    if (end.ended) continue;
    end.ended = true;
    end.lost = why;
    end.died = {++seen_, clock::now()};
    end.by_launcher = ending_;
    ++newly_ended_;
  }
}

void remote_ranks::begin_ending() {
  lose_silent(clock::now(), silent_after);  // that is why others have failed
  ending_ = true;
}

template <class Send>
void remote_ranks::tell(const Send& send) {
  for (auto& one : machines_)
    if (one.at < state::finished && !one.broken) send(one);
}

void remote_ranks::signal_everything(std::initializer_list<int> signals) {
  message_writer numbers;
  for (const int signal : signals) numbers.number(signal);
  tell([&](machine& one) { one.messages.send(message::signals, numbers.bytes()); });
}

void remote_ranks::signal_ranks(int signal) {
  tell([&](machine& one) { one.messages.send(message::signal_ranks, message_writer{}.number(signal).bytes()); });
}

bool remote_ranks::gone() {
  return std::ranges::all_of(machines_, [](const machine& one) { return one.at >= state::finished; });
}

}  // namespace tutti::launch
