#pragma once
#include <cstddef>
#include <string>
#include <utility>

#include <tutti/config.hpp>
#include <tutti/core/dtype.hpp>
#include <tutti/core/error.hpp>
#include <tutti/grad/pass/placement.hpp>

namespace tutti::grad {

TUTTI_DECL placement::placement(std::span<const parameter_shape> shapes, plan p)
    : plan_(std::move(p)), places_(shapes.size()) {
  for (std::size_t b = 0; b < plan_.buckets.size(); ++b) {
    const bucket& k = plan_.buckets[b];
    const std::size_t size = size_of(k.type);
    starts_.push_back(bytes_);
    for (const bucket_slot& s : k.slots)
      places_[static_cast<std::size_t>(s.parameter)] = {bytes_ + s.offset * size, s.count, k.type, b};
    if (bytes_ > most || k.count > (most - bytes_) / size)
      throw usage_error("the gradients have more bytes than memory has addresses");
    bytes_ += k.count * size + k.tail_lines * slot_alignment;
    if (k.tail_lines != 0) bytes_ = (bytes_ + page - 1) / page * page;
  }
}

TUTTI_DECL auto placement::of(std::size_t parameter, dtype asked) const -> const place& {
  if (parameter >= places_.size())
    throw usage_error("there is no gradient " + std::to_string(parameter) + " among " + std::to_string(places_.size()));
  const place& p = places_[parameter];
  if (p.type != asked)
    throw usage_error("gradient " + std::to_string(parameter) + " is " + std::string(name(p.type)) + ", asked for as " +
                      std::string(name(asked)));
  return p;
}

}  // namespace tutti::grad
