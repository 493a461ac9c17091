#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <tutti/tutti.hpp>
#include <vector>

#include <tutti/train/checkpoint.hpp>

#include "digits/model.hpp"
#include "digits/step.hpp"

// The state of a training: parameters, velocity and loss scale as tensors, the number of epochs as metadata.

namespace digits {

namespace detail {

template <class T>
std::vector<tutti::train::named_tensor> tensors_of(model<T>& net, std::span<T> velocity, std::array<T, 2>& scaler) {
  using tutti::train::tensor;
  std::vector<tutti::train::named_tensor> all;
  for (std::size_t i = 0; i < net.tensors().size(); ++i) {
    const auto& t = net.tensors()[i];
    const auto values = net.parameters().subspan(t.first, t.count);
    if (i % 2 == 1) {
      all.push_back(tensor(std::string(t.name), values));
    } else {  // a weight, which precedes its bias: a row for each input
      const std::size_t outputs = net.tensors()[i + 1].count;
      all.push_back(tensor(std::string(t.name), values, {t.count / outputs, outputs}));
    }
  }
  all.push_back(tensor("optimizer.velocity", velocity));
  all.push_back(tensor("loss_scaler.scale", scaler[0]));
  all.push_back(tensor("loss_scaler.clean_steps", scaler[1]));
  return all;
}

}  // namespace detail

/// Saves the state of a training to a file, on rank 0. Collective: all ranks call it after the same step.
template <class T>
tutti::task<> save_training(tutti::communicator<>& world, std::filesystem::path path, std::uint64_t epochs_done,
                            model<T>& net, step_policy<T>& step) {
  auto velocity = co_await step.velocity();
  auto scaler = step.scaler();
  const auto tensors = detail::tensors_of(net, std::span{velocity}, scaler);
  tutti::train::save_checkpoint(world, path.string(), tensors, {{"epoch", std::to_string(epochs_done)}});
}

/// Loads the state of a training, which rank 0 reads, on all ranks; returns the number of epochs done. Collective. The
/// options --zero and --scaler may differ from those of the training that saved it.
template <class T>
std::size_t load_training(tutti::communicator<>& world, const std::filesystem::path& path, model<T>& net,
                          step_policy<T>& step) {
  std::vector<T> velocity(net.parameters().size());
  std::array<T, 2> scaler{};
  const auto tensors = detail::tensors_of(net, std::span{velocity}, scaler);
  const auto words = tutti::train::load_checkpoint(world, path.string(), tensors);
  const auto epoch = words.find("epoch");
  if (epoch == words.end()) throw std::runtime_error{path.string() + " does not say after which epoch it was written"};
  step.set_velocity(velocity);
  step.set_scaler(scaler);
  return std::stoull(epoch->second);
}

}  // namespace digits
