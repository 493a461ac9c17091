#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <tutti/algo/mismatch/absent.hpp>
#include <tutti/backend/composed.hpp>
#include <tutti/backend/driver.hpp>
#include <tutti/impl/backend/composed_core.hpp>
#include <tutti/watch/flight.hpp>
#include <tutti/watch/last_call.hpp>

// Defined outside of their classes and not inline, so that an explicit instantiation declaration suppresses their
// instantiation.

namespace tutti {

namespace detail {

template <class T, operation_args Args>
void composed_call<T, Args>::start(composed_core<T>& b, const Args& a, op_state& s, algo::decision d) noexcept {
  b.start(a, s, d);
}
template <class T, operation_args Args>
algo::decision composed_call<T, Args>::begin([[maybe_unused]] composed_core<T>& b, [[maybe_unused]] const Args& a,
                                             [[maybe_unused]] algo::when_posted meanwhile) noexcept {
  if constexpr (mapped_transport<T> && immediate_collective<Args>) return b.begin(a, meanwhile);
  return {};
}
template <class T, operation_args Args>
algorithm composed_call<T, Args>::chosen(const composed_core<T>& b, const Args& a) noexcept {
  return b.chosen(a);
}
template <class T, operation_args Args>
bool composed_call<T, Args>::can(const composed_core<T>& b, algorithm via, std::size_t element_bytes) noexcept {
  return b.template can<Args>(via, element_bytes);
}
template <class T, operation_args Args>
std::string composed_call<T, Args>::refusal(const composed_core<T>& b, algorithm via, std::size_t element_bytes) {
  return b.template refusal<Args>(via, element_bytes);
}

}  // namespace detail

template <class T>
composed<T>::composed(std::shared_ptr<driver<T>> d)
    : core_(std::make_unique<detail::composed_core<T>>(std::move(d))), members_(&core_->members()) {}
template <class T>
composed<T>::composed(std::shared_ptr<driver<T>> d, group g)
    : core_(std::make_unique<detail::composed_core<T>>(std::move(d), std::move(g))), members_(&core_->members()) {}
template <class T>
composed<T>::composed(composed&&) noexcept = default;
template <class T>
composed<T>::~composed() = default;

template <class T>
const roster& composed<T>::peers() const noexcept
  requires has_roster<T>
{
  return shared_driver()->link().peers();
}
template <class T>
const std::shared_ptr<driver<T>>& composed<T>::shared_driver() const noexcept {
  return core_->shared_driver();
}
template <class T>
const std::shared_ptr<engine>& composed<T>::shared_engine() const noexcept {
  return shared_driver()->shared_engine();
}
template <class T>
watch::flight_recorder& composed<T>::recorder() const noexcept {
  return shared_driver()->recorder();
}
template <class T>
std::unique_ptr<world_view> composed<T>::make_world_view() const {
  return std::make_unique<driver_world_view<driver<T>>>(shared_driver());
}
template <class T>
status composed<T>::failure() const noexcept {
  return core_->failure();
}
template <class T>
std::string composed<T>::describe(int world_rank) const {
  return core_->describe(world_rank);
}
template <class T>
void composed<T>::abort(status why) noexcept {
  core_->abort(why);
}
template <class T>
algo::connectivity composed<T>::links() const noexcept {
  return core_->links();
}
template <class T>
bool composed<T>::folds_at_once() const noexcept {
  return core_->folds_at_once();
}
template <class T>
std::string composed<T>::explain_mismatch(const op_state& s) const {
  return core_->explain_mismatch(s);
}
template <class T>
std::string composed<T>::absent(const op_state& s) const {
  const auto recording = [&](int r) -> std::optional<watch::flight> {
    if constexpr (has_roster<T>)
      if (is_near(r)) return recorder().recording_of(r, peers()[static_cast<std::size_t>(r)].pid);
    return std::nullopt;
  };
  return algo::absent_text(
      core_->shm_state(), *members_, s.info.sequence, [this](int r) { return describe(r); }, recording);
}
template <class T>
std::string composed<T>::last_call_of(int world_rank) const {
  if constexpr (has_roster<T>) {
    const std::int32_t pid = is_near(world_rank) ? peers()[static_cast<std::size_t>(world_rank)].pid : 0;
    if (const auto f = recorder().recording_of(world_rank, pid)) return watch::last_call_text(*f);
  }
  return "";
}
template <class T>
bool composed<T>::is_near(int world_rank) const noexcept
  requires has_roster<T>
{
  const roster& all = peers();
  return all[static_cast<std::size_t>(world_rank)].memory_domain ==
         all[static_cast<std::size_t>(this->world_rank())].memory_domain;
}
template <class T>
int composed<T>::outlier(const op_state& s) const noexcept {
  return core_->outlier(s);
}
template <class T>
algo::call_chain composed<T>::calls() const noexcept {
  return core_->calls();
}
template <class T>
bool composed<T>::busy(const op_owner& owner) const noexcept {
  return core_->busy(owner);
}

template <class T>
std::uint32_t composed<T>::begin_split() {
  return shared_driver()->begin_split(members_->context);
}
template <class T>
void composed<T>::end_split() noexcept {
  shared_driver()->end_split();
}

template <class T>
std::shared_ptr<std::byte> composed<T>::allocate(std::size_t bytes) const {
  return detail::allocate_shared(shared_driver(), bytes);
}
template <class T>
registration composed<T>::register_buffer(std::span<std::byte> memory, std::string words) const {
  return detail::register_buffer(shared_driver(), memory, std::move(words));
}

}  // namespace tutti
