#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <tutti/tutti.hpp>
#include <vector>

#include "digits/checkpoint.hpp"
#include "digits/model.hpp"
#include "digits/step.hpp"

// All that a training goes on with: parameters, momentum, and where the loss scale is.

namespace digits {

namespace detail {

template <class T>
std::vector<named_span<T>> tensors_of(model<T>& net, std::span<T> velocity, std::span<T> scaler) {
  std::vector<named_span<T>> all;
  for (const auto& tensor : net.tensors())
    all.push_back({tensor.name, net.parameters().subspan(tensor.first, tensor.count)});
  all.push_back({"velocity", velocity});
  all.push_back({"loss scaler", scaler});
  return all;
}

}  // namespace detail

/// Rank 0 writes it to a file; all ranks call this after the same step.
template <class T>
tutti::task<> save_training(const std::filesystem::path& path, std::uint64_t epochs_done, int rank, model<T>& net,
                            step_policy<T>& step) {
  auto velocity = co_await step.velocity();
  auto scaler = step.scaler();
  if (rank == 0)
    save_checkpoint<T>(path, epochs_done, detail::tensors_of(net, std::span{velocity}, std::span<T>{scaler}));
}

/// Each rank reads it; returns the epochs done. Whether the optimizer was divided, and the loss scaled, may differ from
/// what they are now.
template <class T>
std::size_t load_training(const std::filesystem::path& path, model<T>& net, step_policy<T>& step) {
  std::vector<T> velocity(net.parameters().size());
  std::array<T, 2> scaler{};
  const auto tensors = detail::tensors_of(net, std::span{velocity}, std::span<T>{scaler});
  const auto done = static_cast<std::size_t>(load_checkpoint<T>(path, tensors));
  step.set_velocity(velocity);
  step.set_scaler(scaler);
  return done;
}

}  // namespace digits
