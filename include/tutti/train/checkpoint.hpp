#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/core/options.hpp>
#include <tutti/train/tensor_file.hpp>

namespace tutti::train {

namespace detail {

/// Runs `f` on this rank, and throws on all ranks what the lowest failing one threw. Collective.
template <class Comm, class F>
void all_or_none(Comm& world, const issue& how, F f) {
  struct outcome {
    std::int32_t failed = 0, usage = 0;
    status cause;
  } mine;
  std::string text;
  try {
    f();
  } catch (const error& e) {
    mine = {1, 0, e.cause()};
    text = e.what();
  } catch (const usage_error& e) {
    mine = {1, 1, {}};
    text = e.what();
  } catch (const std::exception& e) {
    mine = {1, 0, {errc::system}};
    text = e.what();
  }
  std::vector<outcome> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::span{&mine, 1}, all, how).wait();
  const auto bad = std::find_if(all.begin(), all.end(), [](const outcome& o) { return o.failed != 0; });
  if (bad == all.end()) return;
  const auto who = static_cast<int>(bad - all.begin());
  world.broadcast(text, who, how).wait();
  text = "rank " + std::to_string(world.world_rank(who)) + ": " + text;
  if (bad->usage != 0) throw usage_error(text);
  throw error{bad->cause, text, {world.rank(), 0, "checkpoint", {}}};
}

}  // namespace detail

/// Rank 0 writes tensors and words to a safetensors file, replacing it as a whole; returns when it is durable.
/// Collective; blocks. What the others pass is not looked at, so they may pass nothing. Errors, on all ranks alike: as
/// of write_tensors. `how.timeout` bounds the wait for rank 0: 5 minutes unless said otherwise.
template <class Comm>
void save_checkpoint(Comm& world, const std::string& path, std::span<const named_tensor> tensors,
                     const metadata& words = {}, issue how = {}) {
  detail::all_or_none(world, how, [&] {
    if (world.rank() == 0) write_tensors(path, tensors, words);
  });
}

/// Rank 0 reads the file and tells the others, who need not see it: all have equal tensors then, and get the words.
/// Collective; blocks. Tensors must be equal in name, type and shape on all ranks. Names fit with or without "module.".
/// Errors, on all ranks alike: as of read_tensors; tensors are untouched then.
template <class Comm>
metadata load_checkpoint(Comm& world, const std::string& path, std::span<const named_tensor> tensors, issue how = {}) {
  safetensors_header words;
  detail::all_or_none(world, how, [&] {
    if (world.rank() == 0) words.words = read_tensors(path, tensors);
  });
  std::string text = words.encode();
  world.broadcast(text, 0, how).wait();
  words = safetensors_header::parse(text, 0);
  for (const named_tensor& t : tensors) world.broadcast(t.bytes, 0, how).wait();
  return words.words;
}

}  // namespace tutti::train
