#include <tutti/tutti.hpp>
#include <tutti/version.hpp>

#if defined(TUTTI_WITH_OPENSSL)
#include <tutti/bootstrap/tls.hpp>
#endif

#include <chrono>
#include <cstdio>

// The smallest program of a user: it proves that a way of installing tutti gives headers, flags and libraries.
int main() {
  std::printf("tutti %d.%d.%d", tutti::version_major, tutti::version_minor, tutti::version_patch);
#if defined(TUTTI_WITH_OPENSSL)
  std::printf(" openssl");
#endif
#if defined(TUTTI_SEPARATE_COMPILATION)
  std::printf(" compiled");
#endif
#if __has_include(<tutti/bootstrap/init.hpp>)
  auto world = tutti::init({.rank = {}, .timeout = std::chrono::minutes{1}});  // and no warning of what is left out
  std::printf(" world %d", world.size());
#endif
  std::printf("\n");
}
