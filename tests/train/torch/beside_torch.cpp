// What beside_torch.py compares with torch and with exact numbers. Each line that it reads is a name and its arguments,
// each line that it writes the numbers that come of it: doubles as hexadecimal, so that none is rounded on the way.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <map>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tutti/async/sync_wait.hpp>
#include <tutti/bootstrap/sim.hpp>
#include <tutti/bootstrap/threads.hpp>
#include <tutti/grad/adasum.hpp>
#include <tutti/grad/compress.hpp>
#include <tutti/grad/powersgd.hpp>
#include <tutti/grad/quantize.hpp>
#include <tutti/grad/reducer.hpp>
#include <tutti/train/batch_norm.hpp>
#include <tutti/train/batch_split.hpp>
#include <tutti/train/gradient_norm.hpp>
#include <tutti/train/loss_scaler.hpp>
#include <tutti/train/master.hpp>
#include <tutti/train/metrics/histogram.hpp>
#include <tutti/train/metrics/top_k_accuracy.hpp>
#include <tutti/train/sampler.hpp>
#include <tutti/train/update_rule.hpp>
#include <vector>

namespace {
using namespace tutti;
using namespace tutti::train;

/// The arguments of a line, one after the other.
class arguments {
 public:
  explicit arguments(const std::string& line) : in_(line) {}

  std::string word() {
    std::string w;
    if (!(in_ >> w)) throw std::runtime_error("an argument is missing");
    return w;
  }
  double number() { return std::strtod(word().c_str(), nullptr); }
  std::uint64_t whole() { return std::strtoull(word().c_str(), nullptr, 10); }
  std::size_t count() { return static_cast<std::size_t>(whole()); }
  int small() { return static_cast<int>(whole()); }
  /// Their number, then they.
  template <class T>
  std::vector<T> all() {
    std::vector<T> values(count());
    for (T& v : values) v = static_cast<T>(cast<T>());
    return values;
  }

 private:
  template <class T>
  auto cast() {
    if constexpr (sizeof(T) == 2)
      return static_cast<float>(number());
    else
      return number();
  }
  std::istringstream in_;
};

class answer {
 public:
  template <class T>
  void number(T value) {
    if constexpr (std::is_integral_v<T>)
      text_ << value << ' ';
    else
      text_ << static_cast<double>(value) << ' ';
  }
  template <class Range>
  void all(const Range& values) {
    for (const auto v : values) number(v);
  }
  [[nodiscard]] std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_ = [] {
    std::ostringstream s;
    s << std::hexfloat;
    return s;
  }();
};

/// f.operator()<T>() for the type of this name.
template <class F>
void with_type(const std::string& name, F f) {
  if (name == "f32") return f.template operator()<float>();
  if (name == "f64") return f.template operator()<double>();
  if (name == "f16") return f.template operator()<float16>();
  if (name == "bf16") return f.template operator()<bfloat16>();
  throw std::runtime_error("no type " + name);
}

void bins(arguments in, answer& out) {
  const double low = in.number(), high = in.number();
  histogram h{low, high, in.count()};
  h.add(in.all<double>());
  out.all(h.edges());
  out.all(h.counts());
  for (const double n : {h.below(), h.above(), h.not_numbers()}) out.number(n);
}

void top_k(arguments in, answer& out) {
  top_k_accuracy<1, 3, 1000> a;
  const auto labels = in.all<std::size_t>();
  a.add(in.all<float>(), labels);
  out.number(a.accuracy<1>());
  out.number(a.accuracy<3>());
  out.number(a.accuracy<1000>());
}

void permutation(arguments in, answer& out) {
  std::vector<std::uint64_t> numbers(in.count());
  permute(std::span{numbers}, in.whole());
  out.all(numbers);
}

void deal(arguments in, answer& out) {
  const std::size_t samples = in.count();
  const int rank = in.small(), ranks = in.small();
  sampler_options how;
  how.order = in.word() == "shuffled" ? sample_order::shuffled : sample_order::sequential;
  how.rest = in.word() == "drop" ? leftover::drop : leftover::pad;
  how.seed = in.whole();
  sampler s{samples, rank, ranks, how};
  s.set_epoch(in.whole());
  out.all(s.take(samples));
}

void chunks(arguments in, answer& out) {
  const std::size_t batch = in.count();
  out.all(batch_split::equal(batch, in.small()).counts());
}

void clip(arguments in, answer& out) {
  const double most = in.number();
  with_type(in.word(), [&]<class T>() {
    auto g = in.all<T>();
    const double norm = measure(g).norm();
    out.number(norm);
    scale_gradients(g, clip_factor(norm, most));
    out.all(g);
  });
}

void scale(arguments in, answer& out) {
  const double by = in.number();
  with_type(in.word(), [&]<class T>() {
    auto g = in.all<T>();
    scale_gradients(g, by);
    out.all(g);
  });
}

void narrowing(arguments in, answer& out) {
  with_type(in.word(), [&]<class T>() {
    if constexpr (has_master<T>) {
      const auto from = in.all<float>();
      std::vector<T> to(from.size());
      narrow<T>(from, to);
      out.all(to);
    }
  });
}

template <class T, class Rule>
void steps_by(const Rule& rule, arguments& in, answer& out) {
  auto p = in.all<T>();
  std::vector<T> memory(p.size() * Rule::slots);
  std::array<std::span<T>, Rule::slots> slots;
  for (std::size_t s = 0; s < Rule::slots; ++s) slots[s] = std::span{memory}.subspan(s * p.size(), p.size());
  const std::uint64_t steps = in.whole();
  for (std::uint64_t step = 1; step <= steps; ++step) {
    const auto g = in.all<T>();
    rule(std::span{p}, std::span<const T>{g}, slots, step);
    out.all(p);
  }
}
void optimizer(arguments in, answer& out) {
  const std::string name = in.word(), type = in.word();
  const auto run = [&](const auto& rule) {
    if (type == "f32")
      steps_by<float>(rule, in, out);
    else
      steps_by<double>(rule, in, out);
  };
  const double rate = in.number(), decay = in.number(), first = in.number();
  if (name == "sgd") return run(sgd{rate, first, decay});
  const double second = in.number(), epsilon = in.number();
  run(adamw{rate, first, second, epsilon, decay});
}

// Samples of all ranks in a row, each of `channels` x `pixels`; what the ranks compute comes back in the same order.
void normalise(arguments in, answer& out) {
  const auto samples = in.all<std::size_t>();  // of each rank
  const std::size_t channels = in.count(), pixels = in.count(), row = channels * pixels;
  const auto weight = in.all<double>(), bias = in.all<double>(), x = in.all<double>(), dy = in.all<double>();
  std::vector<double> y(x.size()), dx(x.size()), after(x.size()), mean(channels), variance(channels);
  std::vector<std::vector<double>> dweight(samples.size()), dbias(samples.size());
  run_threads(static_cast<int>(samples.size()), [&](communicator<threads>& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    std::size_t begin = 0;
    for (std::size_t r = 0; r < me; ++r) begin += samples[r] * row;
    const std::size_t count = samples[me] * row;
    const std::span<const double> mine = std::span{x}.subspan(begin, count);
    dweight[me].resize(channels);
    dbias[me].resize(channels);
    batch_norm norm{world, channels};
    sync_wait(world, norm.template forward<double>(mine, std::span{y}.subspan(begin, count), pixels, weight, bias));
    sync_wait(world, norm.template backward<double>(mine, std::span{dy}.subspan(begin, count),
                                                    std::span{dx}.subspan(begin, count), pixels, weight, dweight[me],
                                                    dbias[me]));
    norm.template evaluate<double>(mine, std::span{after}.subspan(begin, count), pixels, weight, bias);
    if (me != 0) return;
    std::ranges::copy(norm.running_mean(), mean.begin());
    std::ranges::copy(norm.running_variance(), variance.begin());
  });
  for (std::size_t r = 1; r < samples.size(); ++r)
    for (std::size_t c = 0; c < channels; ++c) {
      dweight[0][c] += dweight[r][c];
      dbias[0][c] += dbias[r][c];
    }
  for (const auto& v : {y, dx, after, mean, variance, dweight[0], dbias[0]}) out.all(v);
}

template <class Hook, class Comm>
std::vector<float> mean_by(Comm& world, const std::vector<float>& mine) {
  grad::reducer reducer{world, std::vector<grad::parameter_shape>{{"g", mine.size()}}, {}, Hook{}};
  std::ranges::copy(mine, reducer.template gradient<float>(0).begin());
  auto pass = reducer.begin(1);
  pass.ready(0);
  sync_wait(world, pass.finish());
  const auto g = reducer.template gradient<float>(0);
  return {g.begin(), g.end()};
}
void hook(arguments in, answer& out) {
  const std::string name = in.word(), world_kind = in.word();
  std::vector<std::vector<float>> of_rank(in.count());
  for (auto& mine : of_rank) mine = in.all<float>();
  std::vector<float> mean;
  const auto rank = [&](auto& world) {
    const auto& mine = of_rank[static_cast<std::size_t>(world.rank())];
    const auto got = name == "bf16"       ? mean_by<grad::compress_hook<bfloat16>>(world, mine)
                     : name == "f16"      ? mean_by<grad::compress_hook<float16>>(world, mine)
                     : name == "quantize" ? mean_by<grad::quantize_hook>(world, mine)
                                          : mean_by<grad::sum_hook>(world, mine);
    if (world.rank() == 0) mean = got;
  };
  const int ranks = static_cast<int>(of_rank.size());
  if (world_kind == "threads")
    run_threads(ranks, [&](communicator<threads>& world) { rank(world); });
  else
    run_sim(ranks, sim_options{}, [&](communicator<sim>& world) { rank(world); });
  out.all(mean);
}

void adaptive_sum(arguments in, answer& out) {
  auto a = in.all<double>();
  const auto b = in.all<double>();
  grad::adasum(std::span{a}, std::span<const double>{b});
  out.all(a);
}

void defaults(arguments, answer& out) {
  const auto scaler = loss_scaler_options::torch();
  out.all(std::array{scaler.initial, scaler.growth, scaler.backoff, static_cast<float>(scaler.interval)});
  const grad::powersgd_options low;
  out.all(std::array{static_cast<double>(low.rank), static_cast<double>(low.start_pass), low.least_ratio,
                     low.error_feedback ? 1.0 : 0.0, low.warm_start ? 1.0 : 0.0});
  const batch_norm_options norm;
  out.all(std::array{norm.epsilon, norm.momentum});
  const sgd s;
  const adamw a;
  out.all(std::array{s.momentum, s.weight_decay, a.rate, a.beta1, a.beta2, a.epsilon, a.weight_decay});
}

const std::map<std::string, void (*)(arguments, answer&)> questions{
    {"histogram", bins},       {"top_k", top_k},      {"permute", permutation},
    {"sampler", deal},         {"chunks", chunks},    {"clip", clip},
    {"scale", scale},          {"narrow", narrowing}, {"optimizer", optimizer},
    {"batch_norm", normalise}, {"hook", hook},        {"adasum", adaptive_sum},
    {"defaults", defaults}};

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    arguments in{line};
    answer out;
    questions.at(in.word())(std::move(in), out);
    std::cout << out.text() << '\n';
  }
}
