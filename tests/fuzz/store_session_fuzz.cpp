#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include <tutti/store/detail/store_terms.hpp>
#include <tutti/store/store_server.hpp>
#include <tutti/store/tcp_store_options.hpp>
#include <tutti/wire/client_handshake.hpp>

// A member of the job says anything at all to a live host: the connection ends or is answered, the host goes on, and
// what another member has put there stays.

namespace {

using namespace tutti;

tcp_store_options options() {
  tcp_store_options o;
  o.world = 4;
  o.rank = 1;
  o.limits = {.keys = 64, .bytes = 1 << 20};
  return o;
}

class session {
 public:
  explicit session(store_server& host) : host_(host), socket_(os::start_connect(host.endpoint()).socket) {
    const auto o = options();
    wire::client_handshake h{detail::handshake_terms_of(o, wire::proof::kernel)};
    std::array<std::byte, 256> buffer;
    for (int i = 0; i < 100 && h.state() == wire::handshake_state::running; ++i) {
      host_.step(duration{0});
      h.sent(os::send_some(socket_.native(), h.output()).bytes);
      const auto r = os::receive_some(socket_.native(), std::span{buffer}.first(h.wanted()));
      h.receive(std::span{buffer}.first(r.bytes));
    }
    if (h.state() != wire::handshake_state::accepted) std::abort();
  }

  void say(std::span<const std::byte> data, std::size_t segment_header) {
    std::array<std::byte, 4096> sink;
    while (!data.empty()) {
      const auto r = os::send_some(socket_.native(), data.first(std::min(segment_header, data.size())));
      if (r.closed) return;
      data = data.subspan(r.bytes);
      host_.step(duration{0});
      static_cast<void>(os::receive_some(socket_.native(), sink));
    }
  }

 private:
  store_server& host_;
  os::fd socket_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static store_server host{os::endpoint::unix_socket("@tutti-fuzz-" + std::to_string(::getpid())), options()};
  if (size == 0) return 0;
  if (host.table().find("\x01mine") == nullptr) {
    static_cast<void>(host.change("\x01mine", [](auto& t) { return t.set("\x01mine", {}); }));
  }
  session{host}.say(std::as_bytes(std::span{bytes + 1, size - 1}), 1 + std::size_t{bytes[0]} * 8);
  for (int i = 0; i < 10 && host.clients() > 0; ++i) host.step(duration{0});
  if (host.clients() > 0) std::abort();
  return 0;
}
