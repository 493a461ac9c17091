#pragma once
#include <tutti/config.hpp>

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include <tutti/async/routine.hpp>
#include <tutti/core/args.hpp>
#include <tutti/transport/concept.hpp>
#include <tutti/transport/shm/registrations.hpp>

namespace tutti::algo {

/// Use of registered memory by one operation, which a registration's end waits for. A buffer that reaches into pages
/// which its registration fills only in part is replaced by its image in the heap, which other ranks map: bytes
/// in such pages are copied there before the operation, and the results back after it. Move-only.
class registered_use {
 public:
  /// Takes up the registered memory that a call of `rank` uses, and replaces its buffers if need be. May throw
  /// std::bad_alloc.
  template <class Args>
  registered_use(shm_registrations& all, Args& a, int rank) : registered_use(all) {
    if constexpr (std::same_as<Args, all_reduce_coalesced_args>) {
      for (std::size_t i = 0; i < a.data.size; ++i) add(a.data[i].data(), a.data[i].size());
      if (must_replace()) replace(a.data);
    } else if constexpr (std::same_as<Args, broadcast_args>) {
      add(a.data.data, a.data.bytes());
      if (must_replace()) replace(a.data, a.root == rank ? way::read : way::write);
    } else if constexpr (has_registrable<Args>) {
      add(a.in.data, a.in.bytes());
      add(a.out.data, a.out.bytes());
      // All or none: algorithms compare the addresses of both.
      if (must_replace()) {
        replace(a.in, way::read);
        replace(a.out, way::write);
      }
    }
  }
  registered_use(registered_use&& other) noexcept
      : all_(other.all_),
        used_(std::exchange(other.used_, {})),
        results_(std::move(other.results_)),
        list_(std::move(other.list_)),
        ragged_(other.ragged_),
        crosses_(other.crosses_) {}
  registered_use& operator=(registered_use&&) = delete;
  ~registered_use() {
    for (shm_registration* r : used_) r->uses.fetch_sub(1, std::memory_order_release);
  }

  /// True for the arguments of a collective whose buffers other ranks may map.
  template <class Args>
  static constexpr bool has_registrable =
      std::same_as<Args, all_reduce_coalesced_args> || std::same_as<Args, broadcast_args> || requires(const Args& a) {
        a.in.data;
        a.out.data;
      };

  /// Returns true if the call uses no registered memory.
  [[nodiscard]] bool none() const noexcept { return used_.empty(); }
  /// Copies the results that lie in the images of pages to their places. Called once the operation has succeeded.
  void bring_results() const noexcept {
    for (const edge& e : results_) std::memcpy(e.own, e.image, e.bytes);
  }

 private:
  explicit registered_use(shm_registrations& all) noexcept : all_(&all) {}

  enum class way { read, write };
  /// Part of a buffer in a page that its registration does not fill.
  struct edge {
    std::byte* own;
    std::byte* image;
    std::size_t bytes;
  };

  void add(const void* p, std::size_t bytes) {
    all_->for_each_touched(p, bytes, [&](shm_registration& r) {
      used_.push_back(&r);
      r.uses.fetch_add(1, std::memory_order_relaxed);
      const bool held = r.holds(p, bytes);
      crosses_ = crosses_ || !held;
      ragged_ = ragged_ || (held && !r.aliases(p, bytes));
    });
  }
  // A buffer that is registered in part only has no image.
  [[nodiscard]] bool must_replace() const noexcept { return ragged_ && !crosses_; }

  std::byte* image_of(const void* p, std::size_t bytes, way how) {
    std::byte* const own = static_cast<std::byte*>(const_cast<void*>(p));
    std::byte* found = own;
    all_->for_each_touched(p, bytes, [&](const shm_registration& r) {
      const auto keep = [&](std::byte* begin, std::byte* end) {
        if (begin >= end) return;
        const edge e{begin, r.image_of(begin), static_cast<std::size_t>(end - begin)};
        std::memcpy(e.image, e.own, e.bytes);  // results too: not all of them may be written
        if (how == way::write) results_.push_back(e);
      };
      std::byte* const end = own + bytes;
      keep(own, (std::min)(end, r.whole.data()));
      keep((std::max)(own, r.whole.data() + r.whole.size()), end);
      found = r.image_of(p);
    });
    return found;
  }
  template <class Void>
  void replace(basic_buffer<Void>& b, way how) {
    b.data = image_of(b.data, b.bytes(), how);
  }
  void replace(buffer_list& l) {
    list_.reserve(l.size);
    for (std::size_t i = 0; i < l.size; ++i)
      list_.push_back({image_of(l[i].data(), l[i].size(), way::write), l[i].size()});
    l.items = list_.data();
    l.item = [](const void* items, std::size_t i) noexcept {
      return static_cast<const std::span<std::byte>*>(items)[i];
    };
  }

  shm_registrations* all_;
  std::vector<shm_registration*> used_;
  std::vector<edge> results_;
  std::vector<std::span<std::byte>> list_;
  bool ragged_ = false, crosses_ = false;
};

/// Returns true if a buffer of the call shares a byte with registered memory.
template <mapped_transport T>
bool is_registered([[maybe_unused]] T& link, [[maybe_unused]] const all_reduce_args& a) noexcept {
  if constexpr (registering_transport<T>)
    if (shm_registrations* all = link.registrations(); all && !all->empty()) {
      bool any = false;
      const auto found = [&any](const shm_registration&) { any = true; };
      all->for_each_touched(a.in.data, a.in.bytes(), found);
      all->for_each_touched(a.out.data, a.out.bytes(), found);
      return any;
    }
  return false;
}

/// Runs `work`, an operation on registered memory.
inline routine with_registered(routine work, registered_use use) {
  co_await std::move(work);
  use.bring_results();
}

}  // namespace tutti::algo
