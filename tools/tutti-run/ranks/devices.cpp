#include "tutti-run/ranks/devices.hpp"

#include <algorithm>
#include <cstddef>

#include <tutti/bootstrap/launch/text.hpp>

#include "tutti-run/posix.hpp"

namespace tutti::launch {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw failure(2, text(what, " (see tutti-run --help)")); }

/// The number that all of a text is, or -1.
int number(std::string_view text) noexcept { return tutti::detail::parse_decimal<int>(text).value_or(-1); }

bool is_uuid(std::string_view device) noexcept { return device.starts_with("GPU-") || device.starts_with("MIG-"); }

/// CUDA takes the beginning of a UUID for it.
bool same_uuid(std::string_view a, std::string_view b) noexcept { return a.starts_with(b) || b.starts_with(a); }

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> parts;
  for (;;) {
    auto part = list.substr(0, list.find(','));
    const auto whole = part.size();
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    parts.emplace_back(part);
    if (whole == list.size()) return parts;
    list.remove_prefix(whole + 1);
  }
}

/// As CUDA reads it: what comes after something that is no device does not count.
std::vector<std::string> devices_in(std::string_view variable) {
  auto parts = split(variable);
  const auto bad = std::ranges::find_if(parts, [](const auto& p) { return !is_uuid(p) && number(p) < 0; });
  parts.erase(bad, parts.end());
  return parts;
}

std::string among(const std::string& device, const std::string& inherited) {
  const auto there = devices_in(inherited);
  const auto refusal = [&] {
    refuse(text("--devices ", device, " is not among the ", there.size(), " of CUDA_VISIBLE_DEVICES='", inherited,
                "' here; numbers count those, from 0"));
  };
  if (is_uuid(device)) {
    const bool all_uuids = std::ranges::all_of(there, is_uuid);  // else there is no telling
    if (all_uuids && std::ranges::none_of(there, [&](const auto& t) { return same_uuid(t, device); })) refusal();
    return device;
  }
  const auto at = static_cast<std::size_t>(number(device));
  if (at >= there.size()) refusal();
  return there[at];
}

}  // namespace

std::vector<std::string> parse_devices(std::string_view list) {
  const auto devices = split(list);
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::string& device = devices[i];
    if (!is_uuid(device) && number(device) < 0)
      refuse(text("--devices wants numbers or UUIDs of GPUs (nvidia-smi -L), as in 4,5,6,7 or GPU-8d4f..., and got '",
                  list, "'"));
    for (std::size_t before = 0; before < i; ++before)
      if (is_uuid(device) ? is_uuid(devices[before]) && same_uuid(devices[before], device)
                          : number(devices[before]) == number(device))
        refuse(text("--devices ", list, " has ", device, " twice: each rank needs a GPU of its own"));
  }
  return devices;
}

std::vector<std::string> visible_devices(const std::vector<std::string>& devices, int ranks,
                                         const std::string* inherited) {
  const auto n = static_cast<std::size_t>(ranks);
  if (devices.size() < n)
    refuse(text("--devices names ", devices.size(), devices.size() == 1 ? " GPU" : " GPUs", " for ", ranks,
                " ranks: name one for each, or start fewer ranks"));
  std::vector<std::string> each;
  for (std::size_t r = 0; r < n; ++r) each.push_back(inherited ? among(devices[r], *inherited) : devices[r]);
  return each;
}

}  // namespace tutti::launch
