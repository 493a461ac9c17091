#include <doctest/doctest.h>

#include <cstddef>
#include <limits>
#include <span>
#include <tutti/core/error.hpp>
#include <tutti/grad/residuals.hpp>
#include <vector>

using namespace tutti::grad;

TEST_CASE("residuals: kept by bucket, zeros where a bucket is new or has another size") {
  residuals r;
  r.of(2, 3)[1] = 5;
  CHECK(r.of(0, 4).size() == 4);
  CHECK(r.of(2, 3)[1] == 5);
  CHECK(r.of(2, 4)[1] == 0);
  r.of(2, 4)[1] = 6;
  r.reset();
  CHECK(r.of(2, 4)[1] == 0);
  constexpr float most = std::numeric_limits<float>::max(), none = std::numeric_limits<float>::infinity();
  std::vector<float> values{1, none, -none, std::numeric_limits<float>::quiet_NaN(), -most, most};
  residuals::drop_non_finite(values);
  CHECK(values == std::vector<float>{1, 0, 0, 0, -most, most});
}

TEST_CASE("residuals: what is saved is loaded; of anything else nothing is taken over") {
  residuals from;
  from.of(0, 2)[1] = 3;
  (void)from.of(1, 0);
  from.of(2, 1)[0] = 4;
  state_writer writer;
  from.save(writer);
  writer.put(77);
  const auto bytes = writer.take();
  residuals to;
  state_reader reader{bytes};
  to.load(reader);
  CHECK(reader.number() == 77);
  reader.end();
  CHECK(to.of(0, 2)[1] == 3);
  CHECK(to.of(2, 1)[0] == 4);
  for (std::size_t n = 0; n + 8 < bytes.size(); ++n) {
    state_reader cut{std::span{bytes}.first(n)};
    CHECK_THROWS_AS(to.load(cut), tutti::usage_error);
  }
  auto huge = bytes;
  for (std::size_t i = 8; i < 16; ++i) huge[i] = std::byte{0xff};  // numbers of the first bucket: no memory for them
  state_reader damaged{huge}, longer{bytes};
  CHECK_THROWS_AS(to.load(damaged), tutti::usage_error);
  CHECK(to.of(0, 2)[1] == 3);
  CHECK_THROWS_AS(longer.end(), tutti::usage_error);
}
