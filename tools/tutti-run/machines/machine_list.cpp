#include "tutti-run/machines/machine_list.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <span>

#include <tutti/bootstrap/launch/text.hpp>

#include "tutti-run/machines/remote_shell.hpp"
#include "tutti-run/posix.hpp"

namespace tutti::launch {
namespace {

[[noreturn]] void refuse(const std::string& source, std::string_view item, std::string_view why) {
  throw failure(2, text(source, ": '", item, "': ", why));
}

int slot_count(const std::string& source, std::string_view item, std::string_view digits) {
  constexpr int most = 1'000'000;
  const int count = tutti::detail::parse_decimal<int>(digits).value_or(0);
  if (count < 1 || count > most) refuse(source, item, "the number of ranks must be 1 or more, as in node1:4");
  return count;
}

// "host", "host:4", "[::1]:4", "user@host:4"
machine_slots parse_item(const std::string& source, std::string_view item) {
  machine_slots found;
  const auto open = item.find('[');
  const auto close = item.find(']');
  if ((open == std::string_view::npos) != (close == std::string_view::npos) || (close < open))
    refuse(source, item, "the brackets of an IPv6 address do not match");
  const bool bracketed = open != std::string_view::npos;
  const auto colon = item.find(':', bracketed ? close : 0);
  if (!bracketed && std::ranges::count(item, ':') > 1)
    refuse(source, item, "an IPv6 address needs brackets, as in [fd00::1]:4");
  found.host = item.substr(0, colon);
  if (bracketed) {
    if (colon != std::string_view::npos ? colon != close + 1 : close + 1 != item.size())
      refuse(source, item, "only :RANKS may follow the address");
    std::erase_if(found.host, [](char c) { return c == '[' || c == ']'; });
  }
  if (colon != std::string_view::npos) found.slots = slot_count(source, item, item.substr(colon + 1));
  const auto odd = [](char c) { return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f; };
  if (found.host.empty() || found.host.ends_with('@')) refuse(source, item, "the name of the machine is missing");
  if (found.host.starts_with('-')) refuse(source, item, "the name of a machine does not begin with '-'");
  if (std::ranges::any_of(found.host, odd)) refuse(source, item, "the name of a machine has no space in it");
  return found;
}

}  // namespace

std::vector<machine_slots> parse_hosts(std::string_view list) {
  std::vector<machine_slots> found;
  for (std::size_t at = 0; at <= list.size();) {
    const auto end = std::min(list.find(',', at), list.size());
    found.push_back(parse_item("--hosts", list.substr(at, end - at)));
    at = end + 1;
  }
  return found;
}

std::vector<machine_slots> parse_hostfile(std::string_view content, const std::string& path) {
  std::vector<machine_slots> found;
  int number = 0;
  while (!content.empty()) {
    ++number;
    auto line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(line.size() + 1, content.size()));
    line = line.substr(0, line.find('#'));
    const std::string source = text("--hostfile ", path, ", line ", number);
    const auto words = words_of(std::string{line});
    if (words.empty()) continue;
    const std::string_view host = words.front();
    auto machine = parse_item(source, host);
    for (const std::string_view word : std::span{words}.subspan(1)) {
      if (word.starts_with("slots=")) {
        if (machine.slots != 0) refuse(source, host, "it has two numbers of ranks");
        machine.slots = slot_count(source, word, word.substr(6));
      } else if (!word.starts_with("max_slots=") && !word.starts_with("max-slots=")) {
        refuse(source, word, "a line is 'node1 slots=4' or 'node1:4'");
      }
    }
    found.push_back(std::move(machine));
  }
  if (found.empty())
    throw failure(2, text("--hostfile ", path, " names no machine: write lines such as 'node1 slots=4'"));
  return found;
}

std::vector<machine_slots> read_hostfile(const std::string& path) {
  std::ifstream file{path, std::ios::binary};
  if (!file) throw failure(2, text("--hostfile ", path, ": ", std::strerror(errno)));
  const std::string content{std::istreambuf_iterator<char>{file}, {}};
  if (file.bad()) throw failure(2, text("--hostfile ", path, ": ", std::strerror(errno)));
  return parse_hostfile(content, path);
}

void unite_names_of_here(std::vector<machine_slots>& list, std::string_view here) {
  const auto first = std::ranges::find_if(list, [&](const auto& one) { return is_here(one, here); });
  if (first == list.end()) return;
  const std::string name = first->host;
  for (auto& one : list)
    if (is_here(one, here)) one.host = name;
}

std::vector<machine_slots> place_ranks(const std::vector<machine_slots>& list, int ranks, int each) {
  std::vector<machine_slots> machines;
  for (const auto& one : list) {
    const int slots = one.slots > 0 ? one.slots : std::max(each, 1);
    const auto same = std::ranges::find(machines, one.host, &machine_slots::host);
    if (same != machines.end())
      same->slots += slots;
    else
      machines.push_back({one.host, slots});
  }
  if (ranks == 0) return machines;
  int left = ranks;
  for (auto& machine : machines) left -= machine.slots = std::min(machine.slots, left);
  if (left > 0)
    throw failure(2, text("-n ", ranks, " is more than the ", ranks - left,
                          " places of the machines: give them more, as in --hosts node1:4,node2:4"));
  std::erase_if(machines, [](const machine_slots& machine) { return machine.slots == 0; });
  return machines;
}

std::string name_of(const machine_slots& machine) { return machine.host.substr(machine.host.find('@') + 1); }

bool is_here(const machine_slots& machine, std::string_view here) {
  const std::string& host = machine.host;  // with a user it is for ssh
  if (host == "localhost" || host == "127.0.0.1" || host == "::1") return true;
  return host == here || host == here.substr(0, here.find('.'));
}

}  // namespace tutti::launch
