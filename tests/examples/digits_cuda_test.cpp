#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "common/random.hpp"
#include "digits/batch.hpp"
#include "digits/optimizer.hpp"
#include "digits_cuda/network.hpp"

// The network of the GPU example without a GPU: its elements one after the other, its products by a loop.

namespace {

struct host_device {
  template <class T>
  class array {
   public:
    array(host_device&, std::size_t count) : values_(count, T{77}) {}
    T* data() { return values_.data(); }
    [[nodiscard]] std::size_t size() const { return values_.size(); }

   private:
    std::vector<T> values_;
  };

  template <class Element>
  void each(std::size_t count, Element element) {
    for (std::size_t i = count; i-- > 0;) element(i);  // any order will do
  }
  void multiply(digits::cuda::product size, const float* a, bool a_turned, const float* b, bool b_turned, float keep,
                float* c) {
    for (std::size_t i = 0; i < size.rows; ++i)
      for (std::size_t j = 0; j < size.columns; ++j) {
        double sum = 0;
        for (std::size_t p = 0; p < size.inner; ++p)
          sum += static_cast<double>(a[a_turned ? p * size.rows + i : i * size.inner + p]) *
                 static_cast<double>(b[b_turned ? j * size.inner + p : p * size.columns + j]);
        float& to = c[i * size.columns + j];
        to = static_cast<float>(sum) + (keep == 0 ? 0.0F : keep * to);
      }
  }
  void upload(std::span<const float> from, float* to) { std::ranges::copy(from, to); }
};

digits::batch<float> random_batch(digits::image_shape shape, std::size_t count, std::uint64_t seed) {
  common::random_source random{seed};
  digits::batch<float> result;
  for (std::size_t i = 0; i < count * shape.size(); ++i)
    result.pixels.push_back(static_cast<float>(random.symmetric(1.0)));
  for (std::size_t i = 0; i < count; ++i) result.labels.push_back(static_cast<std::uint8_t>(random.below(10)));
  return result;
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(static_cast<double>(a[i] - b[i])));
  return largest;
}

// Two steps: so that what a step leaves behind in a buffer would show in the next one.
void compare(digits::image_shape shape) {
  digits::model<float> theirs{shape, 3};
  host_device device;
  std::vector<float> own(theirs.parameters().size() + 1);
  digits::cuda::network<host_device>::gradient_places places{};
  for (std::size_t i = 0; i < theirs.tensors().size(); ++i) places[i] = own.data() + theirs.tensors()[i].first;
  places.back() = &own.back();
  digits::cuda::network<host_device> ours{device, shape, theirs, 6, places};
  digits::sgd<float> rule{theirs.parameters().size()};
  std::vector<float> arena(theirs.parameters().size());
  std::vector<std::span<float>> views;
  for (const auto& t : theirs.tensors()) views.push_back(std::span{arena}.subspan(t.first, t.count));
  for (const std::size_t images : {std::size_t{6}, std::size_t{5}}) {
    const auto batch = random_batch(shape, images, 9 + images);
    const double loss = theirs.backward(batch, views, [](std::size_t) {});
    for (float& g : arena) g /= static_cast<float>(images);
    std::vector<std::size_t> order;
    ours.backward({batch.pixels.data(), batch.labels.data(), images}, [&](std::size_t i) { order.push_back(i); });
    CHECK(order == std::vector<std::size_t>{8, 7, 6, 5, 4, 3, 2, 1, 0});
    for (float& g : own) g /= static_cast<float>(images);  // as a reducer does
    float noted = 0;
    ours.note_loss(&noted);
    CHECK(static_cast<double>(noted) == doctest::Approx(loss / static_cast<double>(images)).epsilon(1e-5));
    CHECK(largest_difference(arena, own) < 2e-5);
    CHECK(largest_difference(arena, std::vector<float>(arena.size())) > 1e-2);  // there is something to compare
    rule.step(theirs.parameters(), views, 0.1);
    ours.step(0.1, digits::momentum_rule.momentum);
    CHECK(largest_difference(ours.parameters(), theirs.parameters()) < 2e-5);
  }
  ours.backward({}, [](std::size_t) {});  // a rank without images
  CHECK(std::ranges::all_of(own, [](float g) { return g == 0; }));
}

TEST_CASE("digits_cuda: the network of the GPU computes what the host's does") {
  compare({8, 8, 1});
  compare({20, 18, 1});  // halved by the first convolution
}

}  // namespace
