#pragma once
#include <algorithm>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <tutti/cuda/kernels/compressed_elements.hpp>
#include <tutti/cuda/kernels/with_float.hpp>
#include <tutti/grad/device_reducer.hpp>
#include <utility>
#include <vector>

#include "grad/rounds.hpp"
#include "support/gpus.hpp"
#include "support/kernels_on_host.hpp"

// Passes of ranks whose gradients lie on the fake machine's devices.

namespace device_ranks {

using tutti::dtype;
using tutti::grad::device_reducer;
using shapes = std::vector<tutti::grad::parameter_shape>;

/// The kernels that a device would have.
struct kernels {
  static tutti::status cast(const void* in, dtype from, void* out, dtype to, std::size_t count, double factor,
                            tutti::cuda::stream_handle s) {
    {
      const std::scoped_lock guard{fake::machine::here().mutex};
      if (fake::machine::here().verdict("cast") != 0) return {tutti::errc::device};
    }
    fake::machine::here().launch(s, [=] {
      tutti::nccl_operand a, b;
      tutti::detail::nccl_type_of(from, a);
      tutti::detail::nccl_type_of(to, b);
      for (std::size_t i = 0; i < count; ++i) {
        const double x = fake::load(a.type, in, i) * factor;
        fake::store(b.type, out, i, from == dtype::f64 && to == dtype::f64 ? x : static_cast<float>(x));
      }
      return true;
    });
    return {};
  }
};

/// And those that remember, by the code of the device's.
struct remembering_kernels : kernels {
  static tutti::status compress(const void* in, dtype from, float* left, void* out, dtype to, std::size_t count,
                                double factor, tutti::cuda::stream_handle s) {
    {
      const std::scoped_lock guard{fake::machine::here().mutex};
      if (fake::machine::here().verdict("compress") != 0) return {tutti::errc::device};
    }
    const auto times = static_cast<float>(factor);
    fake::machine::here().launch(s, [=] {
      (void)tutti::cuda::detail::with_float(from, [&]<class From>() noexcept {
        return tutti::cuda::detail::with_float(to, [&]<class To>() noexcept {
          if constexpr (sizeof(To) < sizeof(From) && sizeof(To) <= 2)
            on_host::sweep_all(
                tutti::cuda::detail::compressed_elements<To, From>{static_cast<const From*>(in), left,
                                                                   static_cast<To*>(out), times, 1 / times},
                count, 3);
          return tutti::status{};
        });
      });
      return true;
    });
    return {};
  }
};

/// Work in a stream: it runs when what comes before it has.
inline void in_stream(tutti::stream_ref s, std::function<void()> f) {
  fake::machine::here().launch(s.native(), [g = std::move(f)] { return g(), true; });
}
template <class T>
void write(tutti::stream_ref s, tutti::cuda::device_span<T> to, std::vector<T> values) {
  in_stream(s, [to, v = std::move(values)] { std::copy(v.begin(), v.end(), to.data()); });
}
/// What lies there when the stream is done with what it holds.
template <class T>
std::vector<T> read(gpus& g, fake_stream& s, tutti::cuda::device_span<T> from) {
  std::vector<T> to(from.size());
  in_stream(s, [&] { std::copy(from.begin(), from.end(), to.data()); });
  while (!s.done()) g.engine().poll();
  return to;
}

/// rounds::run on devices; `end(completion)` ends the pass so that `after` comes after it.
template <class Reducer, class End>
rounds::image run(const rounds::round& r, gpus& g, Reducer& reducer, fake_stream& compute, fake_stream& after,
                  End end) {
  const auto rank = static_cast<std::size_t>(g.rank());
  auto pass = reducer.begin(r.weights[rank], compute, r.what);
  for (const std::size_t i : r.order[rank]) {
    tutti::grad::visit_gradient(r.shapes[i].type, [&]<class T>() {
      std::vector<T> v;
      for (const double x : r.values[rank][i]) v.push_back(fake::narrowed<T>(x));
      write(compute, reducer.template gradient<T>(i), std::move(v));
    });
    pass.ready(i);
  }
  end(pass.finish());
  rounds::image all;
  for (std::size_t i = 0; i < r.shapes.size(); ++i)
    tutti::grad::visit_gradient(r.shapes[i].type, [&]<class T>() {
      const auto v = read(g, after, reducer.template gradient<T>(i));
      const auto bytes = std::as_bytes(std::span{v});
      all.insert(all.end(), bytes.begin(), bytes.end());
    });
  return all;
}

/// A pass with one value for all elements of all gradients, which are of float, and a weight; joins `s`.
template <class Reducer>
tutti::grad::step pass_of(Reducer& r, tutti::stream_ref s, float value, double weight = 1) {
  auto pass = r.begin(weight, s);
  for (std::size_t i = r.size(); i-- > 0;) {
    const auto g = r.template gradient<float>(i);
    write(s, g, std::vector<float>(g.size(), value));
    pass.ready(i);
  }
  return pass.finish().join(s);
}

}  // namespace device_ranks
