#pragma once

#include <tutti/tutti.hpp>

#include <tutti/grad/compress.hpp>
#include <tutti/grad/quantize.hpp>

#include "digits/options.hpp"

namespace digits {

/// The reducer's hook for `--compress`.
class compression_hook {
 public:
  explicit compression_hook(compression how) : how_{how} {}

  template <class Comm, class T>
  tutti::task<> operator()(Comm& world, tutti::grad::bucket_view<T> bucket) {
    if (how_ == compression::bf16) return half_(world, bucket);
    if (how_ == compression::int8) return quarter_(world, bucket);
    return tutti::grad::in_a_task(world.all_reduce(bucket.elements));
  }
  /// Clears the errors that --compress int8 keeps for the next step.
  void forget_pass() noexcept { quarter_.forget_pass(); }

 private:
  compression how_;
  tutti::grad::compress_hook<tutti::bfloat16> half_;
  tutti::grad::quantize_hook quarter_;
};

}  // namespace digits
