#include <doctest/doctest.h>

#include <cstddef>

#include <tutti/transport/tcp/zero_copy_send.hpp>

using tutti::detail::loans;

TEST_CASE("loans: long messages are lent, one at a time, and longer ones where long ones come the other way") {
  loans l;
  CHECK_FALSE(l.lend(loans::least - 1));
  CHECK_FALSE(l.lent());
  CHECK(l.lend(loans::least));
  CHECK(l.lent());
  l.was_read();
  CHECK_FALSE(l.lent());

  l.begins({loans::least, 0});
  CHECK_FALSE(l.lend(100));  // says nothing about the long ones
  CHECK_FALSE(l.lend(loans::least));
  CHECK(l.lend(loans::least));  // since the last, nothing long has come
  l.begins({loans::least, 0});
  CHECK(l.lend(loans::least_both_ways));
  l.begins({loans::least - 1, 0});
  CHECK(l.lend(loans::least));
}

TEST_CASE("loans: the writer of a piece hears that it was read if it was lent, once") {
  loans l;
  l.begins({100, 0});
  CHECK_FALSE(l.ends());
  l.begins({.bytes = 100, .lent = true});
  CHECK(l.ends());
  CHECK_FALSE(l.ends());
}
