#pragma once
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <vector>

namespace tutti::detail {

/// Messages that came before anybody asked for them, in their order. What they lay in is kept for the next ones, up to
/// `most_kept` bytes: a steady loop allocates nothing. They stay where they are: one of them may be half filled.
class early_messages {
 public:
  static constexpr std::size_t most_kept = std::size_t{512} << 10;

  struct message {
    std::uint64_t tag;
    std::uint16_t call;
    std::vector<std::byte> bytes;
    bool complete = false;
  };
  using list = std::list<message>;
  using iterator = list::iterator;

  /// What one takes, its bookkeeping included.
  static constexpr std::size_t cost(std::size_t bytes) noexcept { return bytes + 64; }

  /// Room for one more; its bytes are unspecified. Throws bad_alloc.
  message& add(std::uint64_t tag, std::uint16_t call, std::size_t bytes) {
    const iterator spare = spare_for(bytes);
    if (spare == spare_.end()) {
      all_.push_back({tag, call, std::vector<std::byte>(bytes)});
    } else {
      const std::size_t before = cost(spare->bytes.capacity());
      spare->bytes.resize(bytes);
      kept_ -= before;
      all_.splice(all_.end(), spare_, spare);
      all_.back().tag = tag;
      all_.back().call = call;
      all_.back().complete = false;
    }
    held_ += cost(bytes);
    return all_.back();
  }
  void remove(iterator m) noexcept {
    held_ -= cost(m->bytes.size());
    if (cost(m->bytes.capacity()) > most_kept - kept_) {
      all_.erase(m);
      return;
    }
    kept_ += cost(m->bytes.capacity());
    spare_.splice(spare_.end(), all_, m);
  }
  void remove_last() noexcept { remove(std::prev(all_.end())); }
  void clear() noexcept {
    all_.clear();
    held_ = 0;
  }

  [[nodiscard]] iterator begin() noexcept { return all_.begin(); }
  [[nodiscard]] iterator end() noexcept { return all_.end(); }
  [[nodiscard]] list::const_iterator begin() const noexcept { return all_.begin(); }
  [[nodiscard]] list::const_iterator end() const noexcept { return all_.end(); }
  /// What those take that are here, and what was kept of others.
  [[nodiscard]] std::size_t held() const noexcept { return held_; }
  [[nodiscard]] std::size_t kept() const noexcept { return kept_; }

 private:
  // The smallest that is large enough, else the largest, which grows.
  [[nodiscard]] iterator spare_for(std::size_t bytes) noexcept {
    iterator best = spare_.begin();
    for (iterator s = spare_.begin(); s != spare_.end(); ++s) {
      const std::size_t room = s->bytes.capacity(), so_far = best->bytes.capacity();
      if (so_far < bytes ? room > so_far : room >= bytes && room < so_far) best = s;
    }
    return best;
  }

  list all_, spare_;
  std::size_t held_ = 0, kept_ = 0;
};

}  // namespace tutti::detail
