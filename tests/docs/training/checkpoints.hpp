#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <tutti/train/checkpoint.hpp>
#include <tutti/train/sharded_checkpoint.hpp>
#include <tutti/tutti.hpp>

// What stands around the code of docs/training/checkpoints.md.

namespace docs_checkpoints {

using world_t = tutti::communicator<tutti::threads>;

inline void train(std::vector<float>& weight, std::vector<float>& bias) { weight[3] = bias[3] += 1; }
inline int checkpoints(world_t& world, const std::string& path, std::vector<float>& weight, std::vector<float>& bias,
                       int resume) {
  int epoch = 0;
  std::int64_t batches = 0;
  std::vector tensors{tutti::train::tensor("layer.weight", std::span{weight}, {64, 10}),  // name, memory, shape
                      tutti::train::tensor("layer.bias", std::span{bias}),                // a vector
                      tutti::train::tensor("num_batches_tracked", batches)};              // a number: of shape []
  if (resume) {
    const auto words = tutti::train::load_checkpoint(world, path, tensors);  // rank 0 reads and tells the others
    epoch = std::stoi(words.at("epoch"));
  }
  train(weight, bias);
  tutti::train::save_checkpoint(world, path, tensors, {{"epoch", std::to_string(epoch + 1)}});  // rank 0 writes
  return epoch;
}

inline std::string shards_of(world_t& world, const std::string& folder, std::vector<float>& part) {
  const auto first = part.size() * static_cast<std::size_t>(world.rank());
  const auto total = part.size() * static_cast<std::size_t>(world.size());
  std::vector shards{tutti::train::shard("momentum", std::span{part}, first, total)};  // elements first, first + 1, ...
  tutti::train::save_sharded(world, folder, shards, {{"step", "100"}});
  const auto words = tutti::train::load_sharded(world, folder, shards);  // cut in another way, if need be
  return words.at("step");
}

}  // namespace docs_checkpoints
