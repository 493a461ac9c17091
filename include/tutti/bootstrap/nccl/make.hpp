#pragma once
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/backend/bounded_call.hpp>
#include <tutti/backend/nccl/basic_nccl.hpp>
#include <tutti/backend/world_view.hpp>
#include <tutti/bootstrap/nccl/device_inventory.hpp>
#include <tutti/bootstrap/nccl/environment.hpp>
#include <tutti/communicator.hpp>
#include <tutti/core/deadline.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/core/log.hpp>
#include <tutti/cuda/error.hpp>
#include <tutti/cuda/relaxed_capture.hpp>
#include <tutti/os/host.hpp>
#include <tutti/os/ticks.hpp>
#include <tutti/watch/flight_recorder.hpp>

namespace tutti {

/// Options of make_nccl() and shrink_nccl().
struct nccl_options {
  std::optional<int> device;  ///< as this process numbers them; else the only one, or its local rank's
  device_sharing sharing = device_sharing::refused;  ///< the same on all ranks
  nccl_calls calls = nccl_calls::nonblocking;        ///< the same on all ranks
  duration timeout = std::chrono::minutes{5};        ///< deadline of each operation
  duration join_timeout = std::chrono::seconds{60};  ///< time to connect all ranks with nonblocking calls
  duration patience = std::chrono::seconds{10};      ///< time for NCCL and the device to stop after a failure
};

namespace detail {

/// Returns the reason why libraries that are loaded at run time cannot be used; empty if they can, or if they are
/// linked.
template <nccl_functions Api>
std::string_view what_is_missing() {
  std::string_view why;
  if constexpr (requires { Api::cuda::missing(); }) why = Api::cuda::missing();
  if constexpr (requires { Api::missing(); })
    if (why.empty()) why = Api::missing();
  return why;
}

/// Returns the description of this rank's device, or the reason why there is none. If no device is given, a process
/// that sees one GPU takes it (a launcher has assigned it), and one that sees several takes the one at its local rank;
/// if ranks may share devices, they are assigned in turn.
template <nccl_functions Api>
device_claim claim_device(const nccl_options& options, int local_rank) {
  using runtime = typename Api::cuda;
  device_claim c;
  put_text(c.host, os::hostname());
  const nccl_environment around = nccl_environment_of();
  c.machine = around.machine;
  c.shm_device = around.shm_device;
  c.shm_free = around.shm_free;
  put_text(c.unreachable, around.no_interface);
  c.pid = ::getpid();
  c.calls = static_cast<int>(options.calls);
  const auto counted = runtime::device_count(c.devices);
  const bool in_turn = c.devices == 1 || (c.devices > 1 && options.sharing == device_sharing::allowed);
  const int device = c.device = options.device.value_or(in_turn ? local_rank % c.devices : local_rank);
  const auto report = [&](cuda::result r, const char* call) {
    c.cuda = static_cast<int>(r);
    put_text(c.reason, cuda::describe<runtime>(r, call, device));
  };
  if (const std::string_view missing = what_is_missing<Api>(); !missing.empty()) {
    put_text(c.reason, missing);
  } else if (counted != cuda::result::success) {
    report(counted, "cudaGetDeviceCount");
  } else if (device < 0 || device >= c.devices) {
    put_text(c.reason, "device " + std::to_string(device) + " of " + std::to_string(c.devices) +
                           " that it sees; start fewer ranks on this machine, set nccl_options::device, or look at "
                           "CUDA_VISIBLE_DEVICES");
  } else if (const auto who = runtime::identify(device, c.who); who != cuda::result::success) {
    report(who, "cudaGetDeviceProperties");
  }
  int version = 0;
  if (Api::version(version) == nccl_result::success)
    c.nccl_version = version;
  else if (text_of(c.reason).empty())
    put_text(c.reason, "NCCL could not be asked for its version; is libnccl.so.2 there?");
  return c;
}

/// Id of the communicator, which rank 0 creates and broadcasts, or the error of that call.
struct nccl_invitation {
  nccl_unique_id id;
  std::int32_t result = 0;
  std::array<char, 256> words{};
};

/// Owner of a communicator of NCCL that no driver owns yet. The destructor aborts it, within 10 s, unless it was
/// released.
template <nccl_functions Api>
class spare_nccl_comm {
 public:
  explicit spare_nccl_comm(nccl_comm comm) noexcept : comm_(comm) {}
  spare_nccl_comm(const spare_nccl_comm&) = delete;
  spare_nccl_comm& operator=(const spare_nccl_comm&) = delete;
  ~spare_nccl_comm() {
    if (!comm_) return;
    call_bounded(after(std::chrono::seconds(10)), [comm = comm_] {
      const cuda::relaxed_capture<typename Api::cuda> any_time;
      static_cast<void>(Api::abort(comm));
    });
  }
  [[nodiscard]] explicit operator bool() const noexcept { return comm_ != nullptr; }
  [[nodiscard]] nccl_comm release() noexcept { return std::exchange(comm_, nullptr); }

 private:
  nccl_comm comm_;
};

/// Exchanges the device claims of all ranks of `world`; returns them in rank order. Collective. Throws on all ranks if
/// the devices cannot form a world of GPUs.
template <nccl_functions Api, backend Host>
std::vector<device_claim> nccl_census(communicator<Host>& world, const nccl_options& options) {
  std::vector<device_claim> all(static_cast<std::size_t>(world.size()));
  device_claim mine;
  try {
    mine = claim_device<Api>(options, world.local_rank());
  } catch (const std::exception& e) {
    put_text(mine.reason, e.what());  // the others wait for this claim
  }
  world.all_gather(std::span{&mine, 1}, all).wait();
  if (const auto [why, text] = why_no_device_world(all, options.sharing); !why.ok())
    throw error{{why.code, 0, world.world_rank(why.peer), 0}, text, {world.rank()}};
  return all;
}

/// Returns the id with which the ranks of `world` create their communicator of NCCL, made by rank 0. Collective.
template <nccl_functions Api, backend Host>
nccl_unique_id invite(communicator<Host>& world, const std::vector<device_claim>& all) {
  nccl_invitation invitation;
  if (world.rank() == 0) {
    const nccl_result r = Api::unique_id(invitation.id);
    invitation.result = static_cast<int>(r);
    if (r != nccl_result::success) put_text(invitation.words, Api::words(r));
  }
  world.broadcast(std::span{&invitation, 1}, 0).wait();
  if (invitation.result != 0)
    throw error{{errc::device, 0, world.world_rank(0), static_cast<std::uint64_t>(invitation.result)},
                "NCCL on " + describe(all[0], 0) + " could not begin: \"" + text_of(invitation.words) +
                    "\"; does it find a network interface (NCCL_SOCKET_IFNAME)? NCCL_DEBUG=WARN tells more",
                {world.rank()}};
  return invitation.id;
}

/// Keeps the recording of GPUs' operations where that of the host's world is kept. Collective.
template <nccl_functions Api, backend Host>
void record_beside(communicator<Host>& world, nccl_driver<Api>& gpus) {
  if constexpr (requires { world.backend().recorder(); }) {
    const watch::flight_recorder& host = world.backend().recorder();
    std::uint64_t id = mix(host.memory().head.world, os::ticks_now());
    world.broadcast(std::span{&id, 1}, 0).wait();
    const auto guard = world.engine().lock();
    try {
      gpus.recorder().keep_beside(host, id);
    } catch (const error& e) {
      log(log_level::warning, std::string("the flight recorder of this rank's GPU has no file: ") + e.what());
    }
  }
}

/// Returns the communicator beside `world` that `connect(driver)` begins on each rank, called under the engine's lock.
/// Collective; blocks until all ranks are connected, or for options.join_timeout.
template <nccl_functions Api, backend Host, class Connect>
communicator<basic_nccl<Api>> bring_up_nccl(communicator<Host>& world, const nccl_options& options,
                                            const std::vector<device_claim>& all, Connect connect) {
  const Host& beside = world.backend();
  const device_claim& mine = all[static_cast<std::size_t>(world.rank())];
  const nccl_place place{mine.device,         world.rank(),      world.size(),
                         beside.world_rank(), mine.nccl_version, options.patience};
  std::shared_ptr<nccl_driver<Api>> made;
  std::exception_ptr failed;
  try {
    made = std::make_shared<nccl_driver<Api>>(beside.shared_engine(), place, beside.make_world_view());
  } catch (...) {
    failed = std::current_exception();
  }
  // All ranks must be prepared before NCCL makes them wait for each other.
  const int ready = failed ? 0 : 1;
  const int all_ready = world.all_reduce(ready, min).wait();
  if (failed) std::rethrow_exception(failed);
  if (all_ready == 0)
    throw error{{errc::device}, "another rank could not prepare its device; its own output says why", {world.rank()}};

  engine& e = world.engine();
  const deadline until = after(options.join_timeout);
  {
    const auto guard = e.lock();
    connect(*made);
  }
  e.run_until([&] { return made->settled() || clock::now() >= until; });
  const status f = [&] {
    const auto guard = e.lock();
    if (!made->settled())
      made->time_out(
          "not all ranks were connected in time; a firewall between hosts, or a network "
          "interface that others cannot reach (NCCL_SOCKET_IFNAME), is the usual cause");
    return made->failure();
  }();
  if (!f.ok()) {
    const std::string who = f.peer >= 0 ? beside.describe(f.peer) : std::string("a rank");
    throw error{
        f,
        "NCCL did not come up: " +
            (made->words().empty() ? who + ": " + category().message(static_cast<int>(f.code)) : made->words()) +
            scarce_shm(all),
        {world.rank()}};
  }
  record_beside(world, *made);
  return {basic_nccl<Api>{std::move(made), beside.members()}, beside.shared_engine(), options.timeout};
}

}  // namespace detail

/// Makes a communicator over the GPUs of the ranks of a host's world. Collective over `world`; blocks for at most
/// options.join_timeout plus the world's own deadlines, but with nccl_calls::blocking for as long as NCCL waits for the
/// peers.
///
/// First all ranks exchange which GPU and which NCCL they have: two ranks on one GPU, a rank without one, and different
/// versions fail at once on all ranks, with both ranks named. Then NCCL connects them with an id that is broadcast in
/// `world`. The two worlds share an engine and fail together: the host's world detects a rank that dies, and errors of
/// both name it; abort() of one ends both. `world` may be destroyed first. For a subset of the ranks, split `world`
/// before.
///
/// Errors: error{device}, {rendezvous}, {protocol}, {unsupported}, {timed_out}, and those of the host's world, which
/// has ended, too, after an error of NCCL itself.
template <nccl_functions Api, backend Host>
  requires(Host::where == space::host)
[[nodiscard]] communicator<basic_nccl<Api>> make_nccl(communicator<Host>& world, const nccl_options& options = {}) {
  const auto all = detail::nccl_census<Api>(world, options);
  const nccl_unique_id id = detail::invite<Api>(world, all);
  return detail::bring_up_nccl<Api>(world, options, all, [&](nccl_driver<Api>& d) { d.connect(id, options.calls); });
}

}  // namespace tutti
