#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/os/atomic_file.hpp>
#include <tutti/os/readable_file.hpp>
#include <tutti/train/safetensors.hpp>

namespace tutti::train {

static_assert(std::endian::native == std::endian::little, "safetensors hold numbers as a little-endian machine does");

/// A named tensor in the user's memory, which it does not own. Its elements are contiguous, in row-major order.
struct named_tensor {
  std::string name;
  dtype type = dtype::f32;
  std::vector<std::uint64_t> shape;
  std::span<std::byte> bytes;
  bool constant = false;  ///< can only be saved; loading throws usage_error
};

namespace detail {
template <class T>
named_tensor name_memory(std::string name, T* first, std::size_t count, std::vector<std::uint64_t> shape) {
  using element_type = std::remove_const_t<T>;
  constexpr dtype type = dtype_of<element_type>();
  static_assert(!safetensors_name(type).empty(), "safetensors has no name for this type");
  const std::span<element_type> memory{const_cast<element_type*>(first), count};
  return {std::move(name), type, std::move(shape), std::as_writable_bytes(memory), std::is_const_v<T>};
}
}  // namespace detail

/// Name memory as a tensor: a vector, a tensor of some shape, or a scalar, with shape [] as torch's counters. The
/// memory must outlive the result; const elements can only be saved. Errors: usage_error for a shape of another number
/// of elements.
template <class T, std::size_t N>
  requires number<std::remove_const_t<T>>
[[nodiscard]] named_tensor tensor(std::string name, std::span<T, N> values) {
  return detail::name_memory(std::move(name), values.data(), values.size(), {values.size()});
}
template <class T, std::size_t N>
  requires number<std::remove_const_t<T>>
[[nodiscard]] named_tensor tensor(std::string name, std::span<T, N> values, std::vector<std::uint64_t> shape) {
  std::uint64_t count = 1;
  for (const std::uint64_t d : shape) count *= d;
  if (count != values.size())
    throw usage_error("tensor \"" + name + "\" has " + std::to_string(values.size()) + " elements, not the " +
                      std::to_string(count) + " of its shape " + detail::shape_text(shape));
  return detail::name_memory(std::move(name), values.data(), values.size(), std::move(shape));
}
template <class T>
  requires number<std::remove_const_t<T>>
[[nodiscard]] named_tensor tensor(std::string name, T& scalar) {
  return detail::name_memory(std::move(name), &scalar, 1, {});
}

/// A safetensors file that is open for reading. Its header has been parsed, and fits the size of the file.
class tensor_file {
 public:
  /// Opens a file and parses its header. Errors: error{system} if it cannot be read; error{protocol} if it is of
  /// another kind, or truncated.
  explicit tensor_file(const std::string& path) : file_(path) {
    std::uint64_t length = 0;
    if (file_.size() < sizeof length) refuse("it is shorter than a header");
    file_.read(0, std::as_writable_bytes(std::span{&length, 1}));
    if (length > safetensors_header::most_bytes || length > file_.size() - sizeof length)
      refuse("its header would have " + std::to_string(length) + " bytes: it is another kind of file, or truncated");
    std::string text(length, '\0');
    file_.read(sizeof length, std::as_writable_bytes(std::span{text}));
    data_ = sizeof length + length;
    try {
      header_ = safetensors_header::parse(text, file_.size() - data_);
    } catch (const error& e) {
      refuse(e.what());
    }
  }

  [[nodiscard]] const safetensors_header& header() const noexcept { return header_; }

  /// Fills `into` with a tensor's bytes from `first_byte` on, which must lie within the tensor. Errors: error{system}.
  void read(const stored_tensor& from, std::uint64_t first_byte, std::span<std::byte> into) const {
    file_.read(data_ + from.begin + first_byte, into);
    if (from.type == dtype::boolean)
      for (std::byte& b : into) b = b == std::byte{0} ? b : std::byte{1};  // other values of a bool are undefined
  }

  /// Throws error{protocol}: the file is not sound.
  [[noreturn]] void refuse(const std::string& why) const {
    throw error{{errc::protocol}, "cannot use " + file_.path() + ": " + why};
  }
  /// Throws error{mismatch}: the file is sound, but of another model.
  [[noreturn]] void mismatch(const std::string& why) const {
    throw error{{errc::mismatch}, "cannot use " + file_.path() + ": " + why};
  }

 private:
  os::readable_file file_;
  std::uint64_t data_ = 0;
  safetensors_header header_;
};

namespace detail {
inline void require_text(std::string_view what, std::string_view text) {
  const auto at = not_utf8(text);
  if (at == std::string_view::npos) return;
  std::string shown;  // the valid beginning, as JSON
  append_json(shown, text.substr(0, at));
  throw usage_error("write_tensors: " + std::string(what) + " that begins with " + shown + " is no UTF-8 from byte " +
                    std::to_string(at) + " on; other programs could not read the file");
}

/// Returns the header of a file of these tensors and words. Errors: usage_error for all that tensor_file would refuse.
inline std::string header_of(std::span<const named_tensor> tensors, const metadata& words) {
  safetensors_header header;
  header.words = words;
  for (const auto& [key, value] : words) {
    require_text("a word of the metadata", key);
    require_text("the metadata's \"" + key + "\"", value);
  }
  std::uint64_t end = 0;
  for (const named_tensor& t : tensors) {
    require_text("the name of a tensor", t.name);
    const auto refuse = [&](const std::string& why) {
      throw usage_error("write_tensors: tensor \"" + t.name + "\" " + why);
    };
    if (t.name == safetensors_header::reserved) refuse("has the name of the metadata; give it another");
    if (header.find(t.name) != nullptr) refuse("comes twice; give each tensor a name of its own");
    if (safetensors_name(t.type).empty())
      refuse("is of type " + std::string(name(t.type)) + ", which safetensors do not have; save another type");
    if (const std::uint64_t needed = bytes_of_shape(t.type, t.shape); needed != t.bytes.size())
      refuse("has " + std::to_string(t.bytes.size()) + " bytes, not the " + std::to_string(needed) + " of " +
             std::string(name(t.type)) + " " + shape_text(t.shape));
    header.tensors.push_back({t.name, t.type, t.shape, end, t.bytes.size()});
    end += t.bytes.size();
  }
  std::string text = header.encode();
  if (text.size() > safetensors_header::most_bytes)
    throw usage_error("write_tensors: names, shapes and metadata take " + std::to_string(text.size()) +
                      " bytes as JSON, and readers accept " + std::to_string(safetensors_header::most_bytes) +
                      "; save less metadata, or large values as tensors");
  return text;
}

inline void write_file(os::atomic_file& file, std::string_view header, std::span<const named_tensor> tensors) {
  const std::uint64_t length = header.size();
  file.write(std::as_bytes(std::span{&length, 1}));
  file.write(std::as_bytes(std::span{header}));
  for (const named_tensor& t : tensors) file.write(t.bytes);
}

}  // namespace detail

/// Writes tensors and metadata to a safetensors file, which replaces an older one atomically and is durable on return.
/// A symbolic link is followed. Names must differ; names and metadata must be UTF-8. Not collective. Errors:
/// usage_error, before anything is written, for a file that could not be read: names, metadata or types that the format
/// does not have, bytes that do not fit a shape, a header above safetensors_header::most_bytes; error{system} or
/// {out_of_resources}.
inline void write_tensors(const std::string& path, std::span<const named_tensor> tensors, const metadata& words = {}) {
  const std::string header = detail::header_of(tensors, words);
  os::atomic_file file{path};
  detail::write_file(file, header, tensors);
  file.commit();
}

namespace detail {

/// Returns `find(name)`, or that of the name with or without the prefix "module.", which torch's
/// DistributedDataParallel puts before names.
template <class Find>
auto find_any_prefix(std::string_view name, Find find) {
  constexpr std::string_view prefix = "module.";
  if (auto t = find(std::string(name))) return t;
  if (name.starts_with(prefix)) return find(std::string(name.substr(prefix.size())));
  return find(std::string(prefix) + std::string(name));
}

inline void refuse_constant(const named_tensor& t) {
  if (t.constant) throw usage_error("tensor \"" + t.name + "\" is const: it can be saved, not loaded");
}

}  // namespace detail

/// Fills tensors from a safetensors file by their names, and returns its metadata. Other tensors of the file are
/// ignored, and so is a prefix "module." of a name, here or in the file. Not collective. The tensors are unchanged
/// unless the file has all of them, with equal types and shapes. Errors: as of tensor_file; error{mismatch} if a tensor
/// is missing or differs; usage_error for const tensors.
inline metadata read_tensors(const std::string& path, std::span<const named_tensor> tensors) {
  for (const named_tensor& t : tensors) detail::refuse_constant(t);
  const tensor_file file{path};
  std::vector<const stored_tensor*> found;
  for (const named_tensor& t : tensors) {
    const auto* s = detail::find_any_prefix(t.name, [&](const std::string& name) { return file.header().find(name); });
    if (s == nullptr) file.mismatch("it has no tensor \"" + t.name + "\"");
    if (!s->unknown_type.empty() || s->type != t.type || s->shape != t.shape)
      file.mismatch("tensor \"" + t.name + "\" is " + text_of(*s) + " where " + std::string(name(t.type)) + " " +
                    detail::shape_text(t.shape) + " is expected");
    found.push_back(s);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) file.read(*found[i], 0, tensors[i].bytes);
  return file.header().words;
}

}  // namespace tutti::train
