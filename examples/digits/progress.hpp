#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string>

#include "digits/metrics.hpp"

namespace digits {

/// The progress output of rank 0: one line for each epoch, and on a terminal a progress bar. Other ranks print nothing.
class progress {
 public:
  progress(int rank, std::size_t epochs, std::FILE* out = stdout)
      : out_{rank == 0 ? out : nullptr},
        epochs_{epochs},
        on_terminal_{out_ != nullptr && ::isatty(::fileno(out)) == 1} {}

  void line(const std::string& text) {
    if (out_ == nullptr) return;
    erase_bar();
    std::fprintf(out_, "%s\n", text.c_str());
    std::fflush(out_);
  }

  void step(std::size_t epoch, std::size_t done, std::size_t steps, double loss) {
    using namespace std::chrono_literals;
    const auto now = std::chrono::steady_clock::now();
    if (!on_terminal_ || now - drawn_ < 100ms) return;
    drawn_ = now;
    const std::size_t filled = steps == 0 ? 0 : done * bar_width / steps;
    const std::string bar = std::string(filled, '#') + std::string(bar_width - filled, '.');
    std::fprintf(out_, "\repoch %2zu/%zu  [%s] %zu/%zu  loss %.5f\033[K", epoch, epochs_, bar.c_str(), done, steps,
                 loss);
    std::fflush(out_);
  }

  void epoch(std::size_t epoch, double train_loss, const metrics& test, double images_per_second) {
    char text[160];
    std::snprintf(text, sizeof text,
                  "epoch %2zu/%zu  loss %.5f  test loss %.5f  top-1 %6.2f %%  top-5 %6.2f %%  %.0f images/s", epoch,
                  epochs_, train_loss, test.loss.mean(), 100 * test.accuracy.accuracy<1>(),
                  100 * test.accuracy.accuracy<5>(), images_per_second);
    line(text);
  }

 private:
  static constexpr std::size_t bar_width = 24;

  void erase_bar() {
    if (on_terminal_) std::fputs("\r\033[K", out_);
  }

  std::FILE* out_;
  std::size_t epochs_;
  bool on_terminal_;
  std::chrono::steady_clock::time_point drawn_{};
};

}  // namespace digits
