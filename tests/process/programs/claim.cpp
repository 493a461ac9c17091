// Comes to a roll call as a process of another make would: with another version, protocol or transport.
#include <chrono>
#include <cstdio>

#include <tutti/bootstrap/init.hpp>
#include <tutti/impl/bootstrap/init.hpp>

#include "process/programs/options.hpp"

int main(int argc, char** argv) {
  const tutti_test::words w{argc, argv};
  const auto options = tutti_test::options_from(w);
  try {
    const auto url = tutti::parse_rendezvous(options.rendezvous);
    auto me = tutti::roll_call_claim::of_this_process(*options.rank, *options.world_size);
    me.version[2] = static_cast<std::uint16_t>(me.version[2] + w.number("patch"));
    me.protocols += static_cast<std::uint32_t>(w.number("protocols"));
    if (w.has("job")) me.job = tutti::wire::job_id::of(me.job_name = w.text("job"));
    tutti::detail::participant who;
    who.rank = *options.rank;
    who.world_size = *options.world_size;
    who.until = tutti::after(options.join_timeout);
    tutti::detail::rendezvous_store where{url, who};
    tutti::roll_call_options how;
    how.until = who.until;
    try {
      static_cast<void>(tutti::roll_call<decltype(where)>{where, me, how}.call());
    } catch (...) {
      where.leave_failed(std::chrono::milliseconds{500});
      throw;
    }
    std::puts("joined");
    return 0;
  } catch (const tutti::error& e) {
    std::printf("error kind %d peer %d %s\n", static_cast<int>(e.kind()), e.peer(), e.what());
    return 1;
  }
}
