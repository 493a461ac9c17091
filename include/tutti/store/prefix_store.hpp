#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tutti/core/deadline.hpp>
#include <tutti/store/concept.hpp>
#include <tutti/store/errors.hpp>

namespace tutti {

/// A view of another store that puts a prefix before every key, so that the keys of several users of one store differ.
/// Does not own that store, which must outlive it. Models `store`; thread safety and errors are that store's. The limit
/// of a key's length applies with the prefix.
template <store S>
class prefix_store {
 public:
  prefix_store(S& inner, std::string prefix) : inner_(&inner), prefix_(std::move(prefix)) {}

  void set(std::string_view key, std::span<const std::byte> value) { inner_->set(full(key), value); }
  [[nodiscard]] std::vector<std::byte> get(std::string_view key, deadline until) {
    return inner_->get(full(key), until);
  }
  [[nodiscard]] std::optional<std::vector<std::byte>> try_get(std::string_view key) {
    return inner_->try_get(full(key));
  }
  std::int64_t add(std::string_view key, std::int64_t delta) { return inner_->add(full(key), delta); }
  std::vector<std::byte> compare_set(std::string_view key, std::span<const std::byte> expected,
                                     std::span<const std::byte> desired) {
    return inner_->compare_set(full(key), expected, desired);
  }
  bool erase(std::string_view key) { return inner_->erase(full(key)); }

  [[nodiscard]] const std::string& prefix() const noexcept { return prefix_; }
  [[nodiscard]] S& inner() const noexcept { return *inner_; }

 private:
  [[nodiscard]] std::string full(std::string_view key) const {
    detail::check_key(key);
    return prefix_ + std::string{key};
  }

  S* inner_;
  std::string prefix_;
};

}  // namespace tutti
