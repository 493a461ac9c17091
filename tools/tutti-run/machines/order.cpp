#include "tutti-run/machines/order.hpp"

#include <tutti/version.hpp>

#include "tutti-run/machines/message.hpp"

namespace tutti::launch {

std::string library_version() { return text(version_major, '.', version_minor, '.', version_patch); }

std::string encode(const greeting& hello) {
  message_writer out;
  out.text(hello.version).text(hello.ssh_connection).number(hello.port).number(hello.other_port);
  return out.bytes();
}

greeting decode_greeting(std::string_view content) {
  message_reader in{content};
  greeting hello;
  hello.version = in.text();
  if (in.empty()) return hello;  // of another version
  hello.ssh_connection = in.text();
  hello.port = static_cast<std::uint16_t>(in.number());
  hello.other_port = static_cast<std::uint16_t>(in.number());
  return hello;
}

std::string encode(const machine_order& order) {
  message_writer out;
  out.number(order.given.ranks).number(static_cast<int>(order.given.bind)).number(order.given.grace.count());
  out.texts(order.given.environment).texts(order.given.devices).texts(order.given.command);
  out.number(order.part.first).number(order.part.world).number(order.part.machine);
  out.text(order.rendezvous.job).text(order.rendezvous.url).text(order.rendezvous.host).number(order.rendezvous.port);
  out.text(order.secret).text(order.folder).texts(order.exported);
  return out.bytes();
}

machine_order decode_order(std::string_view content) {
  message_reader in{content};
  machine_order order;
  order.given.ranks = in.small();
  order.given.bind = static_cast<binding>(in.small());
  order.given.grace = std::chrono::milliseconds{in.number()};
  order.given.environment = in.texts();
  order.given.devices = in.texts();
  order.given.command = in.texts();
  order.part.first = in.small();
  order.part.world = in.small();
  order.part.machine = in.small();
  order.rendezvous.job = in.text();
  order.rendezvous.url = in.text();
  order.rendezvous.host = in.text();
  order.rendezvous.port = static_cast<std::uint16_t>(in.number());
  order.secret = in.text();
  order.folder = in.text();
  order.exported = in.texts();
  return order;
}

}  // namespace tutti::launch
