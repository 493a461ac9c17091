#pragma once
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <tutti/backend/driver.hpp>
#include <tutti/bootstrap/environment.hpp>
#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/init_links.hpp>
#include <tutti/bootstrap/init_meeting.hpp>
#include <tutti/bootstrap/init_plan.hpp>
#include <tutti/bootstrap/launcher_report.hpp>
#include <tutti/bootstrap/options.hpp>
#include <tutti/bootstrap/own_trouble.hpp>
#include <tutti/bootstrap/roll_call.hpp>
#include <tutti/bootstrap/tuning_file.hpp>
#include <tutti/bootstrap/variable_lookup.hpp>
#include <tutti/communicator.hpp>
#include <tutti/core/deadline.hpp>

namespace tutti {

namespace detail {

struct joined_place {
  std::string name;
  std::uint64_t times = 0;
};

/// How often this process has joined a world at that place: ranks of a first world and of a second one must not mix.
inline std::uint64_t next_generation(const std::string& place) {
  static std::mutex mutex;
  static std::vector<joined_place> places;
  const std::scoped_lock guard(mutex);
  for (joined_place& p : places)
    if (p.name == place) return ++p.times - 1;
  places.push_back({place, 1});
  return 0;
}

/// Joins at a meeting, over any store, and makes a link of any kind. What fails here on one rank fails on all.
template <class Link, store S>
class joining {
 public:
  joining(S& meeting, const init_options& options, const init_plan& plan, roll_call_claim me, roll_call_options how)
      : meeting_(meeting),
        options_(options),
        plan_(plan),
        me_(std::move(me)),
        until_(how.until),
        call_(meeting, me_, std::move(how)) {}

  [[nodiscard]] std::unique_ptr<Link> run(const own_trouble& own, const std::optional<wire::secret>& secret,
                                          std::uint64_t generation) {
    links<Link> found;
    try {
      found.all = call_.call();
    } catch (const std::bad_alloc&) {
      call_.fail({errc::out_of_resources}, "out of memory");
      throw;
    }
    called_ = true;
    try {
      own.raise();
      connect(found, secret);
      found.job = {wire::job_id::of(plan_.job + "/" + std::to_string(call_.nonce())), generation, secret};
      found.options.connections = plan_.connections;
      auto link = std::move(found).make();
      call_.confirm();
      return link;
    } catch (const error& e) {
      // Those who failed with a verdict change nothing by this; it is written once.
      call_.fail(e.cause(), e.what());
      const bool own = e.kind() == errc::out_of_resources || e.kind() == errc::system;
      if (!own || e.cause().peer >= 0) throw;
      throw error{{e.kind(), 0, me_.rank, e.cause().detail}, e.what(), {me_.rank}};
    } catch (const std::bad_alloc&) {
      call_.fail({errc::out_of_resources}, "out of memory");
      throw;
    } catch (const std::exception& e) {
      call_.fail({errc::rendezvous}, e.what());
      throw;
    }
  }

  /// All ranks were there: nobody has to be waited for after a failure.
  [[nodiscard]] bool called() const noexcept { return called_; }

 private:
  void connect(links<Link>& found, const std::optional<wire::secret>& secret) {
    found.rank = me_.rank;
    peer& self = found.all[static_cast<std::size_t>(me_.rank)];
    const link_needs needs{found.all, self, plan_.transport};
    std::optional<shm_offer> offer;
    if (needs.network) {
      const auto asked = secret                                   ? wire::protection::secret
                         : options_.network == exposure::insecure ? wire::protection::insecure
                                                                  : wire::protection::none;
      found.listener.emplace(address_for_peers(plan_, found.all, self), asked);
      self.endpoint = found.listener->endpoint();
    }
    if (needs.memory && self.local_rank == 0) {
      offer.emplace(self.local_size,
                    shm_options{0, needs.bells ? shared_area::sleep::on_descriptor : shared_area::sleep::on_futex});
      self.shared_memory = offer->name();
    }
    call_.exchange_places(found.all, self);
    check_places(found.all);
    call_.note_served();
    if (meeting_.is_host()) call_.await_served();
    const bool host = meeting_.is_host();  // who hears what others have failed of
    if (offer)
      found.memory.emplace(offer->hand_out(found.all, me_.rank, until_, [&] {
        if (host) call_.expect_success();
      }));
    if (needs.memory && !offer)
      found.memory.emplace(shm_accept(leader(found.all, self).shared_memory, found.all, me_.rank, until_));
  }

  static const peer& leader(const roster& all, const peer& self) {
    for (const peer& p : all)
      if (p.memory_domain == self.memory_domain) return p;
    return self;
  }

  S& meeting_;
  const init_options& options_;
  const init_plan& plan_;
  roll_call_claim me_;
  deadline until_;
  roll_call<S> call_;
  bool called_ = false;
};

template <class Link>
std::unique_ptr<Link> join_alone(const init_options& options, deadline until) {
  links<Link> found;
  found.all = make_roster(std::vector<blob>{encode(roll_call_claim::of_this_process(0, 1, options.memory_domain))});
  found.memory.emplace(shm_offer{1}.hand_out(found.all, 0, until));
  return std::move(found).make();
}

template <class Link>
std::unique_ptr<Link> join_others(const init_options& options, const init_plan& plan, const variable_lookup auto& get,
                                  std::uint64_t tuning, own_trouble own, deadline until) {
  const std::string place = plan.job + " at " + to_string(plan.where);
  visitor who{plan.rank, plan.world_size, next_generation(place), {}, {}, options.network, until, options.stop};
  who.secret = own.noting([&] { return options.secret.load(get); });
  if (!plan.job.empty()) who.job = wire::job_id::of(plan.job);
  auto me = roll_call_claim::of_this_process(plan.rank, plan.world_size, options.memory_domain);
  me.job = who.job;
  me.job_name = plan.job.substr(0, roll_call_claim::longest_text);
  me.links = own ? roll_call_claim::unknown : static_cast<std::uint32_t>(plan.transport);
  me.connections = own ? roll_call_claim::unknown : static_cast<std::uint32_t>(plan.connections);
  me.tuning = own ? roll_call_claim::unknown : tuning;
  const auto meet = [&] {
    try {
      return meeting{plan.where, who, get};
    } catch (...) {
      own.raise();
      throw;
    }
  };

  auto where = meet();
  roll_call_options how;
  how.until = until;
  how.stop = options.stop;
  if (plan.vouched) how.settle = duration{0};
  joining<Link, decltype(where)> join{where, options, plan, std::move(me), std::move(how)};
  try {
    auto link = join.run(own, who.secret, who.generation);
    where.leave(until);
    return link;
  } catch (...) {
    where.leave_failed(std::chrono::milliseconds{join.called() ? 100 : 500});
    own.raise();
    throw;
  }
}

/// Finds the other ranks and makes the links to them. `tuning` stands for the table that all must have.
template <class Link>
std::unique_ptr<Link> join_world(const init_options& options, std::uint64_t tuning, own_trouble own) {
  if (options.timeout <= duration{0} || options.join_timeout <= duration{0})
    throw usage_error("init_options: timeout and join_timeout must be positive; nothing waits without a deadline");
  const deadline until = after(options.join_timeout);
  changed_environment get{process_variable};
  own.noting([&] { return chosen_transport(options, process_variable); });
  own.noting([&] { return chosen_connections(options, process_variable); });
  for (const char* unread : {"TUTTI_TRANSPORT", "TUTTI_CONNECTIONS"})
    if (own) get.set(unread, std::nullopt);
  const init_plan plan = plan_init(options, get, ::getuid());
  if (plan.world_size > 1) return join_others<Link>(options, plan, process_variable, tuning, std::move(own), until);
  own.raise();
  return join_alone<Link>(options, until);
}

}  // namespace detail

template <class Backend>
communicator<Backend> init(const init_options& options) {
  using link = typename Backend::transport_type;
  detail::own_trouble own;
  const algo::tuning table = own.noting([&] { return detail::load_tuning(options, process_variable); });
  auto joined = detail::join_world<link>(options, table.hash(), std::move(own));
  joined->tell_of_failure(detail::launcher_listener(process_variable, joined->rank(), joined->size()));
  auto home = std::make_shared<engine>();
  auto d = std::make_shared<driver<link>>(home, std::move(joined));
  d->tune(table);
  return {Backend{std::move(d)}, std::move(home), options.timeout};
}

}  // namespace tutti
