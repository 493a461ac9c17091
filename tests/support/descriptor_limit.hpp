#pragma once
#include <doctest/doctest.h>
#include <sys/resource.h>

namespace tutti_test {

/// While it lives no descriptor of this number or above is given out.
class descriptor_limit {
 public:
  explicit descriptor_limit(int first_refused) {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit tight{static_cast<rlim_t>(first_refused), before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
  }
  descriptor_limit(const descriptor_limit&) = delete;
  descriptor_limit& operator=(const descriptor_limit&) = delete;
  ~descriptor_limit() { ::setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

}  // namespace tutti_test
