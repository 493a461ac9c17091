#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

#include <support/grid.hpp>
#include <tutti/os/fd.hpp>

#include "transport/tcp_world.hpp"

namespace {

using namespace tcp_world;

/// More bytes than 32 bits count, in the memory of one stretch that repeats.
class long_bytes {
 public:
  static constexpr std::size_t stretch = std::size_t{64} << 20, size = (std::size_t{1} << 32) + stretch / 2;

  long_bytes() : file_(::memfd_create("long_bytes", MFD_CLOEXEC)) {
    if (!file_ || ::ftruncate(file_.native(), stretch) != 0) throw std::runtime_error("no memory file");
    void* const all = ::mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED) throw std::runtime_error("no address space");
    data_ = static_cast<std::byte*>(all);
    for (std::size_t at = 0; at < mapped; at += stretch)
      if (::mmap(data_ + at, stretch, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file_.native(), 0) == MAP_FAILED)
        throw std::runtime_error("no mapping");
  }
  long_bytes(const long_bytes&) = delete;
  long_bytes& operator=(const long_bytes&) = delete;
  ~long_bytes() { ::munmap(data_, mapped); }
  [[nodiscard]] std::span<std::byte> all() const noexcept { return {data_, size}; }
  [[nodiscard]] std::span<std::byte> once() const noexcept { return {data_, stretch}; }

 private:
  static constexpr std::size_t mapped = (size + stretch - 1) / stretch * stretch;
  tutti::os::fd file_;
  std::byte* data_ = nullptr;
};

TEST_CASE("a message of more bytes than 32 bits count") {
  if (tutti_test::slow) {
    MESSAGE("skipped: under a sanitizer this takes a minute");
    return;
  }
  plan p = plan::on_one_machine(2);
  const auto said = in_threads(p, [](driver& d) -> std::string {
    auto& t = d.transport();
    const long_bytes data;
    std::byte behind{9};
    const auto stretch = drive::pattern(long_bytes::stretch, 5);
    if (t.rank() == 0) {
      std::ranges::copy(stretch, data.once().begin());
      const auto large = d.send(1, 1, data.all()), next = d.send(1, 2, {&behind, 1});
      return d.wait(*large).ok() && d.wait(*next).ok() ? "" : "not sent";
    }
    if (!d.wait(*d.recv(0, 1, data.all())).ok()) return "not received";
    std::byte got{};
    if (!d.wait(*d.recv(0, 2, {&got, 1})).ok() || got != behind) return "what comes behind is lost";
    return std::ranges::equal(stretch, data.once()) ? "" : "other bytes";
  });
  for (const std::string& s : said) CHECK(s == "");
}

}  // namespace
