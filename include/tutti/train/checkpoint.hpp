#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <tutti/core/error.hpp>
#include <tutti/core/hash.hpp>
#include <tutti/core/options.hpp>
#include <tutti/grad/pass/comparison.hpp>
#include <tutti/os/throw_errno.hpp>
#include <tutti/train/tensor_file.hpp>

namespace tutti::train {

namespace detail {

/// Calls `f()` on every rank. If it throws on some, all ranks call `undo()`, which must not throw, and throw the error
/// of the lowest of these, with its number. A rank that cannot learn the outcome, as the world has failed, does not
/// call `undo()`: the others may have gone on. Collective; blocks.
template <class Comm, class F, class Undo>
void all_or_none(Comm& world, const call_options& how, F f, Undo undo) {
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
  } catch (const std::bad_alloc& e) {
    mine = {1, 0, {errc::out_of_resources}};
    text = e.what();
  } catch (const std::system_error& e) {  // as of std::filesystem, for a folder on a full disk
    const int why = e.code().value();
    mine = {1, 0, {os::classify_errno(why), 0, -1, static_cast<std::uint64_t>(why)}};
    text = e.what();
  } catch (const std::exception& e) {
    mine = {1, 0, {errc::system}};
    text = e.what();
  }
  std::vector<outcome> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::span{&mine, 1}, all, how).wait();
  const auto bad = std::find_if(all.begin(), all.end(), [](const outcome& o) { return o.failed != 0; });
  if (bad == all.end()) return;
  undo();
  const auto who = static_cast<int>(bad - all.begin());
  world.broadcast(text, who, how).wait();
  text = "rank " + std::to_string(world.world_rank(who)) + ": " + text;
  if (bad->usage != 0) throw usage_error(text);
  throw error{bad->cause, text, {world.rank(), 0, "checkpoint", {}}};
}
template <class Comm, class F>
void all_or_none(Comm& world, const call_options& how, F f) {
  all_or_none(world, how, f, [] {});
}

/// Returns a line of text for each tensor, such as `"weight", float32 [64, 10]`.
inline std::vector<std::string> lines_of(std::span<const named_tensor> tensors) {
  std::vector<std::string> lines;
  for (const named_tensor& t : tensors)
    lines.push_back("\"" + t.name + "\", " + std::string(name(t.type)) + " " + shape_text(t.shape) +
                    (t.constant ? ", const" : ""));
  return lines;
}

/// Throws error{mismatch} on all ranks if their lists of tensors differ, with the first rank that differs from rank 0
/// and the first tensor that does. Collective; blocks. Cost for equal lists: one all_gather of 8 bytes.
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
  // Both ranks broadcast their lists line by line, so that all ranks stop at the same line.
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

/// Writes rank 0's tensors and metadata to a safetensors file, which replaces an older one atomically. Returns on all
/// ranks once the file is durable. Collective; blocks. The other ranks' arguments are ignored and may be empty. Errors,
/// equal on all ranks: as of write_tensors. `how.timeout` limits the wait for rank 0, by default to the communicator's
/// deadline; if writing takes longer, the world ends with error{timed_out}.
template <class Comm>
void save_checkpoint(Comm& world, const std::string& path, std::span<const named_tensor> tensors,
                     const metadata& words = {}, call_options how = {}) {
  detail::all_or_none(world, how, [&] {
    if (world.rank() == 0) write_tensors(path, tensors, words);
  });
}

/// Reads tensors from a safetensors file on rank 0 and broadcasts them; returns the metadata on all ranks. Only rank 0
/// needs access to the file. Collective; blocks. The lists must be equal on all ranks in names, types, shapes and
/// order; they are compared first. A prefix "module." of a name, here or in the file, is ignored. Errors, equal on all
/// ranks: as of read_tensors, and error{mismatch} if the lists differ. The tensors are unchanged then, unless reading
/// the data fails on rank 0. `how.timeout` limits the wait for rank 0 as in save_checkpoint. Cost: one broadcast for
/// each tensor.
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
