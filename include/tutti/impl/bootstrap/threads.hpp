#pragma once
#include <memory>
#include <string>
#include <utility>

#include <tutti/backend/driver.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/core/error.hpp>
#include <tutti/transport/threads.hpp>

namespace tutti {

template <class B>
communicator<B> join(std::shared_ptr<threads_hub> hub, int rank, duration timeout) {
  using link = typename B::transport_type;
  if (rank < 0 || rank >= hub->size())
    throw usage_error("join: rank " + std::to_string(rank) + " is not in a world of " + std::to_string(hub->size()));
  auto engine = std::make_shared<tutti::engine>();
  auto d = std::make_shared<driver<link>>(engine, std::make_unique<link>(std::move(hub), rank));
  return {B{std::move(d)}, std::move(engine), timeout};
}

template <class Hub>
std::shared_ptr<Hub> detail::make_hub(int size) {
  return std::make_shared<Hub>(size);
}

}  // namespace tutti
