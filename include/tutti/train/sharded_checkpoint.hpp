#pragma once
#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include <tutti/core/options.hpp>
#include <tutti/os/atomic_file.hpp>
#include <tutti/os/durable_folder.hpp>
#include <tutti/train/checkpoint.hpp>
#include <tutti/train/tensor_file.hpp>

namespace tutti::train {

/// The part of a tensor that a rank holds: elements [first, first + count) of the flattened tensor. `count` may be 0.
struct tensor_shard {
  named_tensor part;        ///< the rank's elements; shape {count}
  std::uint64_t first = 0;  ///< index of the first of them
  std::uint64_t total = 0;  ///< number of elements of the whole tensor
};

/// Names a rank's part of a tensor. Does not own the elements; const ones can only be saved. Errors: usage_error if
/// they lie beyond the end of the tensor.
template <class T, std::size_t N>
  requires number<std::remove_const_t<T>>
[[nodiscard]] tensor_shard shard(std::string name, std::span<T, N> values, std::uint64_t first, std::uint64_t total) {
  if (first > total || values.size() > total - first)
    throw usage_error("shard \"" + name + "\" is elements " + std::to_string(first) + " to " +
                      std::to_string(first + values.size()) + " of " + std::to_string(total));
  return {tensor(std::move(name), values), first, total};
}

namespace detail {

inline constexpr std::string_view reserved_words = "tutti.";
inline constexpr const char *shards_key = "tutti.shards", *id_key = "tutti.id", *place_key = "tutti.place.";
inline constexpr int most_shards = 1 << 20;

/// Returns the path of the index: the file with the metadata, which names the shard files. It is written last, so a
/// checkpoint becomes visible only when it is complete.
inline std::string index_path(const std::string& folder) { return folder + "/index.safetensors"; }
inline std::string shard_path(const std::string& folder, const std::string& id, int rank) {
  return folder + "/" + id + "-" + std::to_string(rank) + ".safetensors";
}

/// The number of digits of a checkpoint's id, which its index holds and its shard files have in their names.
inline constexpr std::size_t id_digits = 40;
inline bool is_id(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

inline std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed != std::errc{} || end != text.data() + text.size()) return {};
  return value;
}

/// Returns true if save_sharded() gives this name to a shard file of a checkpoint with another id than `id`.
inline bool is_old_shard(std::string_view file, std::string_view id) {
  constexpr std::string_view end = ".safetensors";
  if (file.size() < id_digits + end.size() + 2 || file[id_digits] != '-' || !file.ends_with(end)) return false;
  const std::string_view theirs = file.substr(0, id_digits);
  file.remove_prefix(id_digits + 1);
  file.remove_suffix(end.size());
  return is_id(theirs) && theirs != id && is_id(file) && file.size() <= 7;
}

/// The position of a stored shard in its tensor, in elements.
struct stored_place {
  std::uint64_t first = 0, total = 0;
};
inline std::optional<stored_place> place_of(const tensor_file& file, const stored_tensor& t) {
  const auto found = file.header().words.find(place_key + t.name);
  if (found == file.header().words.end() || t.shape.size() != 1) return {};
  const std::string_view text = found->second;
  const auto slash = text.find('/');
  if (slash == std::string_view::npos) return {};
  const auto first = whole_number(text.substr(0, slash)), total = whole_number(text.substr(slash + 1));
  if (!first || !total || *first > *total || t.shape[0] > *total - *first) return {};
  return stored_place{*first, *total};
}

/// Fills one shard from the shards in the files, which may overlap and be cut differently. Throws error{mismatch} if
/// elements are missing, or if type or size of the tensor differ.
inline void fill_shard(const tensor_shard& wanted, std::span<const tensor_file> files, const std::string& folder) {
  struct piece {
    std::uint64_t begin, end;
    const tensor_file* file;
    const stored_tensor* from;
    std::uint64_t first;
  };
  const std::string& name_of = wanted.part.name;
  const auto refuse = [&](const std::string& why) {
    throw error{{errc::mismatch}, "cannot use " + folder + ": tensor \"" + name_of + "\" " + why};
  };
  std::vector<piece> pieces;
  const std::uint64_t size = size_of(wanted.part.type), end = wanted.first + wanted.part.shape[0];
  bool known = false;
  for (const tensor_file& file : files) {
    const auto* t = find_any_prefix(name_of, [&](const std::string& n) { return file.header().find(n); });
    if (t == nullptr) continue;
    const auto place = place_of(file, *t);
    if (!place) file.refuse("it does not say where its part of \"" + t->name + "\" lies");
    if (!t->unknown_type.empty() || t->type != wanted.part.type || place->total != wanted.total)
      refuse("is " + std::to_string(place->total) + " x " +
             (t->unknown_type.empty() ? std::string(name(t->type)) : "the unknown \"" + t->unknown_type + "\"") +
             " where " + std::to_string(wanted.total) + " x " + std::string(name(wanted.part.type)) + " is expected");
    known = true;
    const std::uint64_t from = (std::max)(place->first, wanted.first), to = (std::min)(place->first + t->shape[0], end);
    if (from < to) pieces.push_back({from, to, &file, t, place->first});
  }
  if (!known) refuse("is in none of its files");
  std::sort(pieces.begin(), pieces.end(), [](const piece& a, const piece& b) { return a.begin < b.begin; });
  std::uint64_t done = wanted.first;
  for (const piece& p : pieces) {
    if (p.begin > done) break;
    if (p.end <= done) continue;
    const auto into = wanted.part.bytes.subspan((done - wanted.first) * size, (p.end - done) * size);
    p.file->read(*p.from, (done - p.first) * size, into);
    done = p.end;
  }
  if (done != end) refuse("has no element " + std::to_string(done) + " in any of its files");
}

}  // namespace detail

namespace detail {

/// Returns the metadata of an index without the checkpoint's id. Errors: usage_error for words of the library's own.
inline metadata words_of_index(const metadata& words, int ranks) {
  for (const auto& [key, value] : words)
    if (key.starts_with(reserved_words))
      throw usage_error("save_sharded: the metadata has \"" + key + "\", and words that begin with \"" +
                        std::string(reserved_words) + "\" are the library's; give it another name");
  metadata all = words;
  all[shards_key] = std::to_string(ranks);
  return all;
}

/// Removes the shard files of other checkpoints than `id`, of as many as it can: they take space, and nothing reads
/// them.
inline void remove_old_shards(const std::string& folder, const std::string& id) {
  std::error_code ignored;
  std::vector<std::filesystem::path> old;
  for (std::filesystem::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored))
    if (is_old_shard(at->path().filename().string(), id)) old.push_back(at->path());
  for (const auto& path : old) std::filesystem::remove(path, ignored);
}

}  // namespace detail

/// Writes a checkpoint of shards that the ranks hold. Each rank writes its shards to a file of its own in `folder`,
/// which is created if needed; then rank 0 writes the index, with its metadata, and removes the files of older
/// checkpoints, if it can. After a crash at any moment, the folder holds the old checkpoint or the new one. Collective;
/// blocks; all ranks must have access to the folder. Shards may overlap; together they should cover every element,
/// which is checked when they are loaded. If a rank cannot write its shards, all remove what they have written. Errors,
/// equal on all ranks: as of save_checkpoint; usage_error, before anything is written, for words of the metadata that
/// begin with "tutti.". `how.timeout` limits the wait for the slowest rank, by default to the communicator's deadline;
/// if writing takes longer, the world ends with error{timed_out}.
template <class Comm>
void save_sharded(Comm& world, const std::string& folder, std::span<const tensor_shard> shards,
                  const metadata& words = {}, call_options how = {}) {
  std::string id, header;
  detail::all_or_none(world, how, [&] {
    if (world.rank() != 0) return;
    metadata all = detail::words_of_index(words, world.size());
    std::random_device random;
    while (id.size() < detail::id_digits) id += static_cast<char>('0' + random() % 10);
    all[detail::id_key] = id;
    header = detail::header_of({}, all);
    os::make_durable_folder(folder);
  });
  world.broadcast(id, 0, how).wait();
  const std::string mine = detail::shard_path(folder, id, world.rank());
  std::optional<os::atomic_file> index;  // ready to be renamed before any rank can rely on it
  detail::all_or_none(
      world, how,
      [&] {
        std::vector<named_tensor> parts;
        metadata places;
        for (const tensor_shard& s : shards) {
          parts.push_back(s.part);
          places[detail::place_key + s.part.name] = std::to_string(s.first) + "/" + std::to_string(s.total);
        }
        write_tensors(mine, parts, places);
        if (world.rank() != 0) return;
        index.emplace(detail::index_path(folder));
        detail::write_file(*index, header, {});
      },
      [&] {
        std::error_code ignored;
        std::filesystem::remove(mine, ignored);
      });
  detail::all_or_none(world, how, [&] {
    if (world.rank() != 0) return;
    index->commit();
    detail::remove_old_shards(folder, id);
  });
}

/// Fills this rank's shards from a checkpoint, which any number of ranks may have saved in other parts. Returns the
/// metadata. Collective; blocks, by default for at most the communicator's deadline; all ranks must have access to the
/// folder. A prefix "module." of a name, here or in the files, is ignored. Each rank reads the headers of all files,
/// and the data of its own shards. Errors, equal on all ranks: error{system} if the index or a shard file is missing or
/// cannot be read, error{protocol} if one is not whole or of another kind, error{mismatch} if it is of another model or
/// lacks elements, usage_error for const elements. The contents of the shards are undefined then.
template <class Comm>
metadata load_sharded(Comm& world, const std::string& folder, std::span<const tensor_shard> shards,
                      call_options how = {}) {
  metadata words;
  detail::all_or_none(world, how, [&] {
    for (const tensor_shard& s : shards) detail::refuse_constant(s.part);
    const tensor_file index{detail::index_path(folder)};
    words = index.header().words;
    const auto ranks = detail::whole_number(words[detail::shards_key]);
    const std::string id = words[detail::id_key];
    if (!ranks || *ranks > detail::most_shards || !detail::is_id(id))
      index.refuse("it is not the index of a sharded checkpoint");
    std::vector<tensor_file> files;
    for (int r = 0; r < static_cast<int>(*ranks); ++r) files.emplace_back(detail::shard_path(folder, id, r));
    for (const tensor_shard& s : shards) detail::fill_shard(s, files, folder);
    words.erase(detail::shards_key);
    words.erase(detail::id_key);
  });
  return words;
}

}  // namespace tutti::train
