#include <cstdio>
#include <exception>
#include <span>
#include <stdexcept>

#include "digits/load.hpp"
#include "digits/options.hpp"
#include "digits/train.hpp"

namespace {

template <class T>
void start(const digits::options& wanted) {
  auto world = tutti::init();
  const auto data = digits::load_dataset(wanted.data);
  digits::trainer<T> trainer{wanted, data, world};
  const bool speed = wanted.todo == digits::action::measure_speed;
  tutti::sync_wait(world, speed ? trainer.measure_speed() : trainer.run());
}

}  // namespace

int main(int argc, char** argv) try {
  const auto wanted = digits::parse_options({argv + 1, argv + argc});
  if (wanted.todo == digits::action::show_help)
    std::fputs(digits::usage().c_str(), stdout);
  else if (wanted.dtype == digits::element_type::float32)
    start<float>(wanted);
  else
    start<double>(wanted);
} catch (const std::invalid_argument& failure) {
  std::fprintf(stderr, "digits: %s\n", failure.what());
  return 2;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "digits: %s\n", failure.what());
  return 1;
}
