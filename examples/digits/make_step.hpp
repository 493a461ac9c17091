#pragma once

#include <memory>
#include <tutti/tutti.hpp>
#include <utility>

#include <tutti/grad/adasum.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/reproducible.hpp>

#include "digits/compression.hpp"
#include "digits/model.hpp"
#include "digits/options.hpp"
#include "digits/reduced_step.hpp"
#include "digits/step.hpp"
#include "digits/zero2_step.hpp"

namespace digits {

/// Returns the step policy for some options, which must have been checked.
template <class T>
std::unique_ptr<step_policy<T>> make_step(const options& wanted, model<T>& net, tutti::communicator<>& world) {
  const auto reduced = [&](auto hook) -> std::unique_ptr<step_policy<T>> {
    return std::make_unique<reduced_step<T, decltype(hook)>>(wanted, net, world, std::move(hook));
  };
  using tutti::grad::adasum_hook;
  if (wanted.zero == 2) return std::make_unique<zero2_step<T>>(wanted, net, world);
  if (wanted.shards != 0) return reduced(tutti::grad::reproducible_hook{world, wanted.shards});
  if (!wanted.adasum) return reduced(compression_hook{wanted.compress});
  if (wanted.compress == compression::bf16) return reduced(tutti::grad::compress_hook<tutti::bfloat16, adasum_hook>{});
  return reduced(adasum_hook{});
}

}  // namespace digits
