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

/// A tensor in the user's memory, with a name. Does not own.
struct named_tensor {
  std::string name;
  dtype type = dtype::f32;
  std::vector<std::uint64_t> shape;
  std::span<std::byte> bytes;
  bool constant = false;  ///< to be saved only: loading refuses it
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

/// Names some memory, that of const elements only to be saved: a vector, a tensor of some shape, or a scalar, which is
/// of shape [] as torch's counters are. Errors: usage_error for a shape of another number of elements.
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

/// A safetensors file that is open for reading; its header has been understood, and fits the length of the file.
class tensor_file {
 public:
  /// Errors: error{system} when it cannot be read; error{protocol} for what is no such file, or not all of one.
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

  /// Reads a part of a tensor's bytes.
  void read(const stored_tensor& from, std::uint64_t first_byte, std::span<std::byte> into) const {
    file_.read(data_ + from.begin + first_byte, into);
    if (from.type == dtype::boolean)
      for (std::byte& b : into) b = b == std::byte{0} ? b : std::byte{1};  // a bool has no other values
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw error{{errc::protocol}, "cannot use " + file_.path() + ": " + why};
  }
  /// For a file that is sound but another model's.
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
  std::string shown;  // with the bytes that are none of its text as escapes
  append_json(shown, text.substr(0, at));
  throw usage_error("write_tensors: " + std::string(what) + " that begins with " + shown + " is no UTF-8 from byte " +
                    std::to_string(at) + " on; other programs could not read the file");
}
}  // namespace detail

/// Writes tensors to a safetensors file, replacing it as a whole; through a symbolic link, the file that it names.
/// Names must differ. This process alone. Errors: usage_error for names, words or types that the format has not: names
/// and words are UTF-8; error{system} or {out_of_resources}.
inline void write_tensors(const std::string& path, std::span<const named_tensor> tensors, const metadata& words = {}) {
  safetensors_header header;
  header.words = words;
  for (const auto& [key, value] : words) {
    detail::require_text("a word of the metadata", key);
    detail::require_text("the metadata's \"" + key + "\"", value);
  }
  std::uint64_t end = 0;
  for (const named_tensor& t : tensors) {
    detail::require_text("the name of a tensor", t.name);
    if (t.name == safetensors_header::reserved || header.find(t.name) != nullptr || safetensors_name(t.type).empty())
      throw usage_error("write_tensors: tensor \"" + t.name + "\" comes twice, or the format has no such name or type");
    header.tensors.push_back({t.name, t.type, t.shape, end, t.bytes.size()});
    end += t.bytes.size();
  }
  const std::string text = header.encode();
  const std::uint64_t length = text.size();
  os::atomic_file file{path};
  file.write(std::as_bytes(std::span{&length, 1}));
  file.write(std::as_bytes(std::span{text}));
  for (const named_tensor& t : tensors) file.write(t.bytes);
  file.commit();
}

namespace detail {

/// The stored tensor of this name, with or without the "module." that DistributedDataParallel puts before names.
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

/// Fills tensors from a safetensors file by their names, "module." before them or not; others in the file are left
/// alone. Returns its metadata. This process alone. The tensors are untouched unless the file has all of them, with
/// their types and shapes. Errors: as of tensor_file; error{mismatch} where the file is another model's; usage_error
/// for const ones.
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
