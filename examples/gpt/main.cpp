#include <cstdio>
#include <exception>
#include <stdexcept>
#include <tutti/tutti.hpp>

#include "gpt/options.hpp"
#include "gpt/text.hpp"
#include "gpt/train.hpp"

int main(int argc, char** argv) try {
  const auto wanted = gpt::parse_options({argv + 1, argv + argc});
  if (wanted.help) {
    std::fputs(gpt::usage().c_str(), stdout);
    return 0;
  }
  auto world = tutti::init();
  const gpt::corpus text{gpt::read_text(wanted.text), wanted.context};
  gpt::trainer<float, tutti::communicator<>> trainer{wanted, text, world};
  tutti::sync_wait(world, trainer.run());
} catch (const std::invalid_argument& failure) {
  std::fprintf(stderr, "gpt: %s\n", failure.what());
  return 2;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "gpt: %s\n", failure.what());
  return 1;
}
