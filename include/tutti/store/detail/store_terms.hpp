#pragma once
#include <chrono>
#include <cstdint>

#include <tutti/os/socket_options.hpp>
#include <tutti/store/tcp_store_options.hpp>
#include <tutti/wire/handshake.hpp>

namespace tutti::detail {

// Timeouts are longer than those of os::tcp_options: a rendezvous survives a short failure of the network.
inline constexpr os::tcp_options store_tcp_options{
    true, {std::chrono::seconds{10}, std::chrono::seconds{5}, 3}, std::chrono::milliseconds{25000}, 0, 0};

/// Returns the terms of a handshake. They hold a pointer to the secret in `o`, which must outlive them.
inline wire::handshake_terms handshake_terms_of(const tcp_store_options& o, wire::proof how) noexcept {
  wire::handshake_terms t;
  t.how = how;
  t.key = o.secret ? &*o.secret : nullptr;
  t.role = wire::connection_role::store_client;
  t.rank = static_cast<std::uint32_t>(o.rank);
  t.world = static_cast<std::uint32_t>(o.world);
  t.generation = o.generation;
  t.job = o.job;
  t.any_job = o.any_job;
  return t;
}

}  // namespace tutti::detail
