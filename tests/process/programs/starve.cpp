// Joins a world and does a collective while something runs out: `descriptors=n`, after n more, or `allocation=n`, in
// the n-th that this thread makes. Says what came of it, in one line.
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <vector>

#include <tutti/bootstrap/init.hpp>
#include <tutti/bootstrap/openssl.hpp>

#include "process/programs/options.hpp"

namespace {

thread_local long until_failure = -1;

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (until_failure > 0 && --until_failure == 0) throw std::bad_alloc();
  if (void* p = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment)) return p;
  throw std::bad_alloc();
}

/// The lowest number that nobody has.
int next_descriptor() {
  const int d = ::dup(0);
  ::close(d);
  return d;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t a) { return allocate(bytes, static_cast<std::size_t>(a)); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

int main(int argc, char** argv) {
  const tutti_test::words w{argc, argv};
  const auto options = tutti_test::options_from(w);
  if (w.has("descriptors")) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = static_cast<rlim_t>(next_descriptor() + w.number("descriptors"));
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  try {
    until_failure = w.number("allocation", -1);
    auto world = tutti::init(options);
    std::vector<int> some(100000, 1);
    world.all_reduce(some).wait();
    world.barrier().wait();
    until_failure = -1;
    std::puts("joined");
    return some.back() == world.size() ? 0 : 1;
  } catch (const tutti::error& e) {
    until_failure = -1;
    std::printf("error kind %d peer %d %s\n", static_cast<int>(e.kind()), e.peer(), e.what());
  } catch (const std::bad_alloc&) {
    until_failure = -1;
    std::puts("bad_alloc");
  } catch (const std::exception& e) {
    until_failure = -1;
    std::printf("exception %s\n", e.what());
  }
  return 1;
}
