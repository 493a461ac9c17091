#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/file.hpp"
#include "common/hash.hpp"

// The file, little-endian: magic (8 bytes), version (u32), bytes of an element (u32), epochs done (u64), tensors (u64),
// then per tensor the length of its name (u64), the name, the number of its elements (u64) and the elements; last the
// FNV-1a hash (u64) of all before.

namespace digits {

static_assert(std::endian::native == std::endian::little, "a checkpoint holds numbers as a little-endian machine does");

/// Some values with a name, in someone else's memory.
template <class T>
struct named_span {
  std::string_view name;
  std::span<T> values;
};

namespace detail {

inline constexpr std::string_view checkpoint_magic{"tuttidig"};
inline constexpr std::uint32_t checkpoint_version = 2;
inline constexpr std::uintmax_t largest_checkpoint = std::uintmax_t{1} << 32;

inline void append(std::vector<std::byte>& bytes, std::span<const std::byte> more) {
  bytes.insert(bytes.end(), more.begin(), more.end());
}

template <class Number>
void append_number(std::vector<std::byte>& bytes, Number number) {
  append(bytes, std::as_bytes(std::span{&number, 1}));
}

/// Takes a file apart from the front; every step past its end is an error.
class checkpoint_reader {
 public:
  checkpoint_reader(const std::filesystem::path& path, std::span<const std::byte> bytes) : path_{path}, rest_{bytes} {}

  std::span<const std::byte> take(std::uint64_t count) {
    if (count > rest_.size()) fail("it ends too early");
    const auto taken = rest_.first(static_cast<std::size_t>(count));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

  template <class Number>
  Number number() {
    Number value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }

  std::string_view text(std::uint64_t length) {
    const auto taken = take(length);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

  template <class Number>
  void expect(const std::string& what, Number expected) {
    const Number found = number<Number>();
    if (found != expected)
      fail("its " + what + " is " + std::to_string(found) + " where " + std::to_string(expected) + " is expected");
  }

  bool empty() const { return rest_.empty(); }

  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error{"cannot use the checkpoint " + path_.string() + ": " + why};
  }

 private:
  const std::filesystem::path& path_;
  std::span<const std::byte> rest_;
};

}  // namespace detail

/// Writes tensors and the number of epochs they have seen to a file, replacing it as a whole.
template <class T>
void save_checkpoint(const std::filesystem::path& path, std::uint64_t epochs_done,
                     std::span<const named_span<T>> tensors) {
  std::vector<std::byte> bytes;
  detail::append(bytes, std::as_bytes(std::span{detail::checkpoint_magic}));
  detail::append_number(bytes, detail::checkpoint_version);
  detail::append_number(bytes, std::uint32_t{sizeof(T)});
  detail::append_number(bytes, epochs_done);
  detail::append_number(bytes, std::uint64_t{tensors.size()});
  for (const auto& tensor : tensors) {
    detail::append_number(bytes, std::uint64_t{tensor.name.size()});
    detail::append(bytes, std::as_bytes(std::span{tensor.name}));
    detail::append_number(bytes, std::uint64_t{tensor.values.size()});
    detail::append(bytes, std::as_bytes(tensor.values));
  }
  detail::append_number(bytes, common::fnv1a(bytes));
  common::write_file_atomically(path, bytes);
}

/// Reads what `save_checkpoint` wrote for tensors of the same names and sizes and returns the number of epochs done.
///
/// The tensors are untouched unless the whole file is sound; else std::runtime_error says what is wrong with it.
template <class T>
std::uint64_t load_checkpoint(const std::filesystem::path& path, std::span<const named_span<T>> tensors) {
  const std::vector<std::byte> bytes = common::read_file(path, detail::largest_checkpoint);
  constexpr std::size_t hash_bytes = sizeof(std::uint64_t);
  const std::size_t hashed_bytes = bytes.size() < hash_bytes ? 0 : bytes.size() - hash_bytes;
  detail::checkpoint_reader file{path, std::span{bytes}.first(hashed_bytes)};
  if (file.text(detail::checkpoint_magic.size()) != detail::checkpoint_magic)
    file.fail("it is not a checkpoint of this program");
  file.expect("format version", detail::checkpoint_version);
  std::uint64_t hash = 0;
  std::memcpy(&hash, bytes.data() + hashed_bytes, hash_bytes);
  if (hash != common::fnv1a(std::span{bytes}.first(hashed_bytes)))
    file.fail("it is incomplete or damaged, as its checksum does not match");

  file.expect("number of bytes of an element", std::uint32_t{sizeof(T)});
  const auto epochs_done = file.number<std::uint64_t>();
  file.expect("number of tensors", std::uint64_t{tensors.size()});
  std::vector<std::span<const std::byte>> contents;
  for (const auto& tensor : tensors) {
    const std::string name{tensor.name};
    if (const auto found = file.text(file.number<std::uint64_t>()); found != name)
      file.fail("it holds " + std::string{found} + " where " + name + " is expected");
    file.expect("number of elements of " + name, std::uint64_t{tensor.values.size()});
    contents.push_back(file.take(tensor.values.size_bytes()));
  }
  if (!file.empty()) file.fail("it goes on after its last tensor");
  for (std::size_t i = 0; i < tensors.size(); ++i)
    std::memcpy(tensors[i].values.data(), contents[i].data(), contents[i].size());
  return epochs_done;
}

}  // namespace digits
