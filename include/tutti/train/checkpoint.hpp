#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/core/options.hpp>
#include <tutti/grad/pass/comparison.hpp>
#include <tutti/train/tensor_file.hpp>

namespace tutti::train {

namespace detail {

/// Runs `f` on this rank, and throws on all ranks what the lowest failing one threw. Collective.
template <class Comm, class F>
void all_or_none(Comm& world, const call_options& how, F f) {
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

/// "\"weight\", float32 [64, 10]", a line for each.
inline std::vector<std::string> lines_of(std::span<const named_tensor> tensors) {
  std::vector<std::string> lines;
  for (const named_tensor& t : tensors)
    lines.push_back("\"" + t.name + "\", " + std::string(name(t.type)) + " " + shape_text(t.shape) +
                    (t.constant ? ", const" : ""));
  return lines;
}

/// Throws error{mismatch} on all ranks where their lists of tensors differ: the first rank that differs from rank 0,
/// and what it has. Collective. 8 bytes of each rank, where they are equal.
template <class Comm>
void require_equal_lists(Comm& world, const call_options& how, std::span<const named_tensor> tensors) {
  const std::vector<std::string> lines = lines_of(tensors);
  std::uint64_t mine = tutti::detail::fnv_start;
  for (const std::string& line : lines) {
    mine = tutti::detail::fnv(mine, line.size());
    mine = tutti::detail::fnv(mine, std::string_view{line});
  }
  grad::detail::comparison ids;
  ids.begin(world, mine, how).wait();
  const int odd = ids.odd().rank;
  if (odd < 0) return;
  // Line by line, from the two ranks that are compared; the others take part.
  const auto line_of = [&](int rank, std::size_t i) {
    std::string text = i < lines.size() ? lines[i] : "missing";
    world.broadcast(text, rank, how).wait();
    return text;
  };
  std::string ours, theirs;
  std::size_t i = 0;
  for (;; ++i) {
    ours = line_of(0, i);
    theirs = line_of(odd, i);
    if (ours != theirs || ours == "missing") break;
  }
  throw error{{errc::mismatch, 0, world.world_rank(odd), 0},
              "load_checkpoint: tensor " + std::to_string(i) + " is " + theirs + " on rank " +
                  std::to_string(world.world_rank(odd)) + " and " + ours + " on rank " +
                  std::to_string(world.world_rank(0)) + "; give the same list on all ranks",
              {world.rank(), 0, "checkpoint", {}}};
}

}  // namespace detail

/// Rank 0 writes tensors and words to a safetensors file, replacing it as a whole; returns when it is durable.
/// Collective; blocks. What the others pass is not looked at, so they may pass nothing. Errors, on all ranks alike: as
/// of write_tensors. `how.timeout` bounds the wait for rank 0: 5 minutes unless said otherwise.
template <class Comm>
void save_checkpoint(Comm& world, const std::string& path, std::span<const named_tensor> tensors,
                     const metadata& words = {}, call_options how = {}) {
  detail::all_or_none(world, how, [&] {
    if (world.rank() == 0) write_tensors(path, tensors, words);
  });
}

/// Rank 0 reads the file and tells the others, who need not see it: all have equal tensors then, and get the words.
/// Collective; blocks. The list must be the same on all ranks, in names, types, shapes and order, which is compared
/// first. Names fit with or without "module.". Errors, on all ranks alike: as of read_tensors, and error{mismatch} for
/// lists that differ; tensors are untouched then, unless reading itself fails half-way on rank 0.
template <class Comm>
metadata load_checkpoint(Comm& world, const std::string& path, std::span<const named_tensor> tensors,
                         call_options how = {}) {
  detail::require_equal_lists(world, how, tensors);
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
