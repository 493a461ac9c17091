#include <doctest/doctest.h>

#include <tutti/transport/tcp/delayed_ack.hpp>

namespace {

using tutti::detail::delayed_ack;
using tutti::detail::tcp_connection;

TEST_CASE("delayed_ack: is due once, with the next look, where nothing answered the last time") {
  const tcp_connection first, second;
  delayed_ack late;
  CHECK(late.due() == nullptr);
  late.short_came(first);
  CHECK(late.due() == &first);
  CHECK(late.due() == nullptr);
  late.short_came(first);
  late.short_came(second);
  CHECK(late.due() == &second);
  late.short_came(first);
  late.long_came();
  CHECK(late.due() == nullptr);
}

TEST_CASE("delayed_ack: waits for an answer where one came the last time, until looks in vain tell otherwise") {
  const tcp_connection by;
  delayed_ack late;
  late.short_came(by);
  late.answered();
  CHECK(late.due() == nullptr);
  for (int call = 0; call < 3; ++call) {
    late.short_came(by);
    for (int look = 1; look < delayed_ack::patience; ++look) {
      CHECK(late.due() == nullptr);
      late.looked_in_vain();
    }
    CHECK(late.due() == nullptr);
    late.answered();
  }
  late.short_came(by);
  for (int look = 0; look < delayed_ack::patience; ++look) {
    CHECK(late.due() == nullptr);
    late.looked_in_vain();
  }
  CHECK(late.due() == &by);
  late.answered();  // so late is no answer
  late.short_came(by);
  CHECK(late.due() == &by);
}

TEST_CASE("delayed_ack: an answer soon after a look counts, though what it answers was acknowledged by then") {
  const tcp_connection by;
  delayed_ack late;
  late.short_came(by);
  CHECK(late.due() == &by);
  late.looked_in_vain();
  late.answered();
  late.short_came(by);
  CHECK(late.due() == nullptr);
}

}  // namespace
