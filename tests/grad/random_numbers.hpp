#pragma once
#include <cstddef>
#include <random>
#include <vector>

/// From -1 to 1, in steps of 1/1000.
template <class T>
std::vector<T> random_numbers(std::size_t count, unsigned seed) {
  std::mt19937 random{seed};
  std::vector<T> v(count);
  for (T& x : v) x = static_cast<T>(random() % 2001) / 1000 - 1;
  return v;
}
