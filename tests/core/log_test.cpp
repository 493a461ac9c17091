#include <doctest/doctest.h>
#include <unistd.h>
#include <tutti/core/log.hpp>

#include <array>
#include <string>

namespace {

std::string seen;  // what the handler below has received

void keep(const tutti::log_record& r) noexcept {
  seen += (r.level == tutti::log_level::error ? "error " : "warning ") + std::string(r.message) + ";";
}

/// Returns what `run` writes to standard error.
template <class Run>
std::string written_by(Run run) {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const int kept = ::dup(STDERR_FILENO);
  ::dup2(ends[1], STDERR_FILENO);
  run();
  ::dup2(kept, STDERR_FILENO);
  ::close(kept);
  ::close(ends[1]);
  std::array<char, 256> text{};
  const auto bytes = ::read(ends[0], text.data(), text.size());
  ::close(ends[0]);
  return {text.data(), static_cast<std::size_t>(bytes < 0 ? 0 : bytes)};
}

}  // namespace

TEST_CASE("log: without a handler a record is one line on standard error") {
  const std::string text = written_by([] {
    tutti::detail::log(tutti::log_level::error, "one");
    tutti::detail::log(tutti::log_level::warning, "two");
  });
  CHECK(text == "tutti: error: one\ntutti: warning: two\n");
}

TEST_CASE("log: a handler receives all records, and null brings the first one back") {
  CHECK((tutti::set_log_handler(&keep) == &tutti::log_to_stderr));
  const std::string text = written_by([] { tutti::detail::log(tutti::log_level::warning, "three"); });
  CHECK(text.empty());
  CHECK(seen == "warning three;");
  CHECK((tutti::set_log_handler(nullptr) == &keep));
  CHECK(written_by([] { tutti::detail::log(tutti::log_level::error, "four"); }) == "tutti: error: four\n");
  CHECK(seen == "warning three;");
}
