#pragma once
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <tutti/backend/driver.hpp>
#include <tutti/bootstrap/deferred_error.hpp>
#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/init_links.hpp>
#include <tutti/bootstrap/init_plan.hpp>
#include <tutti/bootstrap/job_secret.hpp>
#include <tutti/bootstrap/launch/environment.hpp>
#include <tutti/bootstrap/launch/held_place.hpp>
#include <tutti/bootstrap/launch/inner_environment.hpp>
#include <tutti/bootstrap/launch/launcher_report.hpp>
#include <tutti/bootstrap/launch/secret_remedy.hpp>
#include <tutti/bootstrap/launch/variable_lookup.hpp>
#include <tutti/bootstrap/options.hpp>
#include <tutti/bootstrap/own_joins.hpp>
#include <tutti/bootstrap/rendezvous/roll_call.hpp>
#include <tutti/bootstrap/rendezvous/store.hpp>
#include <tutti/bootstrap/tuning_file.hpp>
#include <tutti/bootstrap/watch_options.hpp>
#include <tutti/communicator.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/os/fd.hpp>
#include <tutti/os/resolve.hpp>
#include <tutti/transport/tcp/secure_channel.hpp>
#include <tutti/wire/hmac.hpp>
#include <tutti/wire/listen_policy.hpp>

namespace tutti {

namespace detail {

/// Joining of a world at a store, which makes a link. An error on one rank is raised on all ranks.
template <class Link, store S>
class joining {
 public:
  /// Prepares the joining. `secret` is the one that this process needed at the store, if it needed one.
  joining(S& store, const init_options& options, const init_plan& plan, roll_call_claim me, roll_call_options how,
          job_secret& source, std::optional<wire::secret> secret)
      : store_(store),
        options_(options),
        plan_(plan),
        me_(std::move(me)),
        until_(how.until),
        call_(store, me_, std::move(how)),
        source_(source),
        secret_(std::move(secret)) {}

  /// Returns false if the store still holds a roll call that this process has taken part in, or if its host is leaving:
  /// the next roll call begins soon.
  [[nodiscard]] bool begin() {
    try {
      if (attended_roll_calls::note(call_.nonce(), me_.rank)) return true;
    } catch (const error& e) {
      if (e.kind() != errc::peer_lost || clock::now() >= until_) throw;
    }
    if (clock::now() >= until_)
      throw error{{errc::rendezvous, 0, 0, 0},
                  describe(me_) + " waited for the next roll call at " + to_string(plan_.where) +
                      ", but the last one, at which it was, is not over; is rank 0 stopped?",
                  {me_.rank}};
    return false;
  }

  /// Runs the rounds of the roll call and returns this rank's link. An error in `own` is raised on all ranks.
  [[nodiscard]] std::unique_ptr<Link> run(const deferred_error& own) {
    links<Link> found;
    try {
      found.all = call_.call();
    } catch (const std::bad_alloc&) {
      static_cast<void>(call_.fail({errc::out_of_resources}, "out of memory"));
      throw;
    }
    called_ = true;
    try {
      own.raise();
      connect(found);
      found.job = {wire::job_id::of(plan_.job + "/" + std::to_string(call_.nonce())), 0, secret_,
                   plan_.encryption == encryption_choice::tls && found.listener};
      found.options.connections = plan_.connections;
      auto link = std::move(found).make();
      call_.confirm();
      return link;
    } catch (const error& e) {
      // Has no effect after a verdict, which is written once.
      const auto first = call_.fail(e.cause(), e.what());
      if (first && !own_doing(e.cause())) throw error{*first};
      const bool of_this_rank = e.kind() == errc::out_of_resources || e.kind() == errc::system;
      if (!of_this_rank || e.cause().peer >= 0) throw;
      throw error{{e.kind(), 0, me_.rank, e.cause().detail}, e.what(), {me_.rank}};
    } catch (const std::bad_alloc&) {
      static_cast<void>(call_.fail({errc::out_of_resources}, "out of memory"));
      throw;
    } catch (const std::exception& e) {
      static_cast<void>(call_.fail({errc::rendezvous}, e.what()));
      throw;
    }
  }

  /// Returns true once all ranks have met: after a failure, no rank needs to be waited for.
  [[nodiscard]] bool called() const noexcept { return called_; }

 private:
  void connect(links<Link>& found) {
    found.rank = me_.rank;
    rank_info& self = found.all[static_cast<std::size_t>(me_.rank)];
    const link_needs needs{found.all, self, plan_.transport};
    std::optional<shm_export> offer;
    if (needs.network) {
      if (plan_.where.kind == rendezvous_url::scheme::tcp && store_.is_host()) tell_address();
      if (!secret_) secret_ = source_.load(process_variable);
      if (plan_.encryption == encryption_choice::tls) check_encryption();
      const auto asked = secret_                               ? wire::protection::secret
                         : plan_.network == exposure::insecure ? wire::protection::insecure
                                                               : wire::protection::none;
      const auto at = address_for_peers(plan_, found.all, self, [this] { return told_address(); });
      require_protection(at, asked);
      found.listener.emplace(at, asked);
      self.endpoint = found.listener->endpoint();
      if (asked == wire::protection::insecure && options_.network != exposure::insecure) say_insecure(self.endpoint);
    }
    if (needs.memory && self.local_rank == 0) {
      offer.emplace(self.local_size, shm_options{0, needs.bells ? shm_control_block::sleep::on_descriptor
                                                                : shm_control_block::sleep::on_futex});
      self.shared_memory = offer->name();
    }
    call_.exchange_places(found.all, self);
    see_from_here(found.all, self);
    check_places(found.all);
    call_.note_served();
    if (store_.is_host()) call_.await_served();
    const bool host = store_.is_host();  // the rank that receives the others' failures
    if (offer)
      found.memory.emplace(offer->hand_out(found.all, me_.rank, until_, [&] {
        if (host) call_.expect_success();
      }));
    if (needs.memory && !offer)
      found.memory.emplace(shm_import(leader(found.all, self).shared_memory, found.all, me_.rank, until_));
  }

  void check_encryption() const {
    if (!secret_)
      throw usage_error(describe(me_) +
                        " is to encrypt its connections (TUTTI_ENCRYPTION or init_options::encryption is tls), but has "
                        "no secret: give all ranks the same one, by TUTTI_SECRET_FILE or init_options::secret");
    wire::require_hmac_provider();
    require_secure_channels();
  }

  /// Returns true if the failure is this rank's own. One that another rank's failure has caused is reported in the
  /// words of that rank.
  [[nodiscard]] bool own_doing(const status& why) const noexcept {
    const bool lack = why.code == errc::out_of_resources || why.code == errc::system || why.code == errc::auth_failed;
    return lack && (why.peer < 0 || why.peer == me_.rank);
  }

  /// Throws error{auth_failed}, in the words of the launcher, where the listener would refuse.
  void require_protection(const std::string& address, wire::protection asked) const {
    const os::endpoint where = os::resolve(address, 0).front();
    const auto who = where.is_loopback() ? wire::reach::this_machine : wire::reach::network;
    const std::string why = wire::why_not_listen(where.to_string(), who, asked, secret_remedy(plan_.by));
    if (!why.empty()) throw error{{errc::auth_failed, 0, me_.rank}, why, {me_.rank}};
  }
  /// Says once in the output of the job that the environment has switched its protection off.
  void say_insecure(const std::string& endpoint) const {
    if (me_.rank == 0)
      log(log_level::warning, "TUTTI_NETWORK=insecure: the ranks of this job listen without a secret, rank 0 on " +
                                  endpoint + ": everybody who can reach them can join the job and read its data");
  }

  /// Tells the ranks on the host's node the address by which other nodes know it; they need it, too.
  void tell_address() {
    const std::string known = store_.reached_at();
    store_.set("address of the host", std::as_bytes(std::span{known}));
  }
  [[nodiscard]] std::string told_address() {
    const auto known = store_.get("address of the host", until_);
    return printable({reinterpret_cast<const char*>(known.data()), known.size()});
  }

  static const rank_info& leader(const roster& all, const rank_info& self) {
    for (const rank_info& p : all)
      if (p.memory_domain == self.memory_domain) return p;
    return self;
  }

  S& store_;
  const init_options& options_;
  const init_plan& plan_;
  roll_call_claim me_;
  deadline until_;
  roll_call<S> call_;
  job_secret& source_;
  std::optional<wire::secret> secret_;
  bool called_ = false;
};

/// Link to the other ranks of a world, and the socket that holds this rank's place in its job while the link exists.
template <class Link>
struct joined_world {
  std::unique_ptr<Link> link;
  std::shared_ptr<os::fd> place;
  std::string job;
};

template <class Link>
std::unique_ptr<Link> join_alone(const init_options& options, deadline until) {
  links<Link> found;
  found.all = make_roster(std::vector<blob>{encode(roll_call_claim::of_this_process(0, 1, options.memory_domain))});
  found.memory.emplace(shm_export{1}.hand_out(found.all, 0, until));
  return std::move(found).make();
}

template <class Link>
std::unique_ptr<Link> join_others(const init_options& options, const init_plan& plan, const variable_lookup auto& get,
                                  std::uint64_t tuning, deferred_error own, deadline until) {
  constexpr std::chrono::seconds time_to_tell{10};
  const joining_thread thread{plan.job + " at " + to_string(plan.where), plan.rank};
  own.noting([&] {
    thread.expect_alone();
    return 0;
  });
  participant who{plan.rank, plan.world_size, plan.local_size, {}, {}, plan.network, until, options.stop, plan.by};
  job_secret secret{options, plan, until};
  if (plan.where.kind == rendezvous_url::scheme::tcp) who.secret = own.noting([&] { return secret.load(get); });
  if (own) who.until = (std::min)(until, after(time_to_tell));
  if (!plan.job.empty()) who.job = wire::job_id::of(plan.job);
  auto me = roll_call_claim::of_this_process(plan.rank, plan.world_size, options.memory_domain);
  me.job = who.job;
  me.job_name = plan.job.substr(0, roll_call_claim::longest_text);
  me.links = own ? roll_call_claim::unknown : static_cast<std::uint32_t>(plan.transport);
  me.connections = own ? roll_call_claim::unknown : static_cast<std::uint32_t>(plan.connections);
  me.encryption = own ? roll_call_claim::unknown : static_cast<std::uint32_t>(plan.encryption);
  me.tuning = own ? roll_call_claim::unknown : tuning;
  roll_call_options how;
  how.until = who.until;
  how.stop = options.stop;
  if (plan.exact_count) how.settle = duration{0};

  std::optional<rendezvous_store<>> where;
  std::optional<joining<Link, rendezvous_store<>>> join;
  try {
    where.emplace(plan.where, who);
    for (;; where->renew()) {
      join.emplace(*where, options, plan, me, how, secret, who.secret);
      if (join->begin()) break;
    }
    auto link = join->run(own);
    where->leave(until);
    return link;
  } catch (...) {
    if (where) where->leave_failed(std::chrono::milliseconds{join && join->called() ? 300 : 500});
    own.raise();
    throw;
  }
}

/// Knowledge that no process too many can come: the launcher's variables tell, or the caller has started exactly
/// world_size processes itself.
enum class process_count : std::uint8_t { as_launched, exact };

/// Finds the other ranks and makes the link to them. `tuning` is the hash of the table of algorithms, which must be
/// equal on all ranks; `own` holds an error to report to them.
template <class Link>
joined_world<Link> join_world(const init_options& options, process_count count, std::uint64_t tuning,
                              deferred_error own) {
  if (options.timeout <= duration{0} || options.join_timeout <= duration{0})
    throw usage_error("init_options: timeout and join_timeout must be positive; nothing waits without a deadline");
  const deadline until = after(options.join_timeout);
  changed_environment get{process_variable};
  own.noting([&] { return chosen_transport(options, process_variable); });
  own.noting([&] { return chosen_connections(options, process_variable); });
  own.noting([&] { return chosen_network(options, process_variable); });
  own.noting([&] { return chosen_encryption(options, process_variable); });
  for (const char* unread : {"TUTTI_TRANSPORT", "TUTTI_CONNECTIONS", "TUTTI_NETWORK", "TUTTI_ENCRYPTION"})
    if (own) get.set(unread, std::nullopt);
  init_plan plan = plan_init(options, get, ::getuid());
  plan.exact_count = plan.exact_count || count == process_count::exact;
  if (plan.world_size > 1) {
    // A launcher that has counted its processes gives them a rendezvous that no other job of this machine has.
    auto place = plan.exact_count ? hold_place(to_string(plan.where), plan.rank) : nullptr;
    return {join_others<Link>(options, plan, process_variable, tuning, std::move(own), until), std::move(place),
            plan.job};
  }
  own.raise();
  return {join_alone<Link>(options, until), nullptr, plan.job};
}

/// Does what init() does.
template <class Backend>
communicator<Backend> make_world(const init_options& options, process_count count) {
  using link = typename Backend::transport_type;
  deferred_error own;
  const algo::tuning table = own.noting([&] { return load_tuning(options, process_variable); });
  const watch_options watched = own.noting([&] { return watch_options_of(options, process_variable); });
  const duration stalls_after = own.noting([&] { return stall_warning_of(options, process_variable); });
  auto joined = join_world<link>(options, count, table.hash(), std::move(own));
  auto& way = *joined.link;
  way.tell_of_failure(launcher_listener(inner_environment{process_variable}, way.rank(), way.size()));
  auto engine = std::make_shared<tutti::engine>();
  auto d = std::make_shared<driver<link>>(engine, std::move(joined.link));
  d->tune(table);
  d->warn_after(stalls_after);
  start_watching(watched, d->link(), std::move(joined.job), *engine, d->recorder());
  if (joined.place) {
    using both = std::pair<std::shared_ptr<driver<link>>, std::shared_ptr<os::fd>>;
    auto kept = std::make_shared<both>(std::move(d), std::move(joined.place));
    d = {kept, kept->first.get()};
  }
  return {Backend{std::move(d)}, std::move(engine), options.timeout};
}

}  // namespace detail

template <class Backend>
communicator<Backend> init(const init_options& options) {
  return detail::make_world<Backend>(options, detail::process_count::as_launched);
}

}  // namespace tutti
