#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>

#include <support/pretended_hmac.hpp>
#include <tutti/wire/client_handshake.hpp>
#include <tutti/wire/server_handshake.hpp>

// Whatever a peer without the secret sends, and in whatever pieces, neither side of a handshake with a secret accepts
// it.

namespace {

using namespace tutti::wire;

template <class Side>
void feed(Side& side, std::span<const std::byte> data, std::size_t segment_header) {
  while (!data.empty() && side.wanted() > 0) {
    side.sent(side.output().size());
    const auto n = std::min({segment_header, data.size(), side.wanted()});
    side.receive(data.first(n));
    data = data.subspan(n);
  }
  if (side.state() == handshake_state::accepted) std::abort();
  static_cast<void>(explain(side.why(), {}, side.counterpart()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  static const tutti_test::pretended_hmac_scope hmac;
  static const secret key = secret::random();
  if (size == 0) return 0;
  const std::size_t segment_header = 1 + bytes[0] % 64U;
  const auto data = std::as_bytes(std::span{bytes + 1, size - 1});
  handshake_terms terms;
  terms.how = proof::hmac;
  terms.key = &key;
  terms.world = 4;
  terms.rank = 1;
  server_handshake server{terms};
  feed(server, data, segment_header);
  client_handshake client{terms};
  feed(client, data, segment_header);
  server_handshake at_once{terms};
  at_once.receive(data);
  if (at_once.state() == handshake_state::accepted) std::abort();
  return 0;
}
