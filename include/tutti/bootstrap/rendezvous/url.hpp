#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <tutti/bootstrap/launch/text.hpp>
#include <tutti/core/error.hpp>
#include <tutti/core/text.hpp>

namespace tutti {

/// Rendezvous of the ranks of a job, as a parsed URL.
struct rendezvous_url {
  enum class scheme : std::uint8_t {
    tcp,            ///< `tcp://host:port`, `tcp://[v6]:port`: rank 0 listens there
    file,           ///< `file:///path`: a file that every rank can reach
    unix_path,      ///< `unix:/path`: a socket in the file system of one machine
    unix_abstract,  ///< `unix:@name`: a socket without a file, gone with its job
    env             ///< `env://`: given by MASTER_ADDR and MASTER_PORT
  };
  scheme kind = scheme::env;
  std::string host;               ///< tcp: a name, an IPv4 address, or an IPv6 address without brackets
  std::uint16_t port = 0;         ///< tcp: 1 to 65535
  std::string path;               ///< file, unix_path: absolute; unix_abstract: the name without `@`
  std::optional<int> rank;        ///< `?rank=`
  std::optional<int> world_size;  ///< `?world_size=`

  friend bool operator==(const rendezvous_url&, const rendezvous_url&) = default;
};

/// Returns the URL as text, from which parse_rendezvous() gives the same value.
inline std::string to_string(const rendezvous_url& url) {
  using enum rendezvous_url::scheme;
  std::string text;
  switch (url.kind) {
    case tcp: {
      const bool v6 = url.host.find(':') != std::string::npos;
      text = v6 ? "tcp://[" : "tcp://";  // appended, as g++ 12 warns of what operator+ does to it
      text += url.host;
      text += v6 ? "]:" : ":";
      text += std::to_string(int{url.port});
      break;
    }
    case file:
      text = "file://" + url.path;
      break;
    case unix_path:
      text = "unix:" + url.path;
      break;
    case unix_abstract:
      text = "unix:@" + url.path;
      break;
    case env:
      text = "env://";
      break;
  }
  if (url.rank) text += "?rank=" + std::to_string(*url.rank);
  if (url.world_size) text += (url.rank ? "&world_size=" : "?world_size=") + std::to_string(*url.world_size);
  return text;
}

namespace detail {

[[noreturn]] inline void refuse_url(std::string_view text, std::string_view why) {
  throw usage_error("rendezvous URL " + quoted(text) + ": " + std::string(why) +
                    "; the forms are tcp://host:port, file:///path, unix:/path, unix:@name and env://");
}

inline bool clean(std::string_view text) noexcept {
  for (const char c : text)
    if (static_cast<unsigned char>(c) <= 0x20 || c == 0x7f) return false;
  return true;
}

inline void parse_url_authority(std::string_view whole, std::string_view rest, rendezvous_url& url) {
  if (rest.ends_with('/')) rest.remove_suffix(1);
  const bool bracketed = rest.starts_with('[');
  const std::size_t close = rest.find(']');
  if (bracketed && close == std::string_view::npos) refuse_url(whole, "the '[' of an IPv6 address is not closed");
  const std::size_t colon = bracketed ? close + 1 : rest.find(':');
  if (colon >= rest.size() || rest[colon] != ':') refuse_url(whole, "no port; add one, as in tcp://host:29500");
  const std::string_view host = bracketed ? rest.substr(1, close - 1) : rest.substr(0, colon);
  const std::string_view port = rest.substr(colon + 1);
  if (!bracketed && port.find(':') != std::string_view::npos)
    refuse_url(whole, "an IPv6 address needs brackets, as in tcp://[::1]:29500");
  if (host.empty()) refuse_url(whole, "no host; name the machine of rank 0");
  if (bracketed && host.find(':') == std::string_view::npos) refuse_url(whole, "brackets hold an IPv6 address only");
  if (host.find_first_of("/@[]") != std::string_view::npos) refuse_url(whole, "the host may not contain / @ [ ]");
  const auto number = parse_decimal<int>(port);
  if (!number || *number > 65535) refuse_url(whole, "the port " + quoted(port) + " is not a number from 1 to 65535");
  if (*number == 0) refuse_url(whole, "port 0 cannot be found by the other ranks; name a port");
  url.host = host;
  url.port = static_cast<std::uint16_t>(*number);
}

inline void parse_url_query(std::string_view whole, std::string_view query, rendezvous_url& url) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(pair.size() == query.size() ? pair.size() : pair.size() + 1);
    const std::size_t equals = pair.find('=');
    const std::string_view key = pair.substr(0, equals);
    if (key != "rank" && key != "world_size") refuse_url(whole, "after '?' only rank= and world_size= are known");
    const auto value = parse_decimal<int>(equals == std::string_view::npos ? "" : pair.substr(equals + 1));
    auto& target = key == "rank" ? url.rank : url.world_size;
    if (!value) refuse_url(whole, std::string(key) + " is not a number");
    if (target) refuse_url(whole, std::string(key) + " is given twice");
    target = value;
  }
}

}  // namespace detail

/// Parses a rendezvous URL; `?rank=` and `?world_size=` may follow any form. Throws usage_error that names the wrong
/// part and lists the forms.
inline rendezvous_url parse_rendezvous(std::string_view text) {
  using enum rendezvous_url::scheme;
  constexpr std::size_t longest_socket_name = 107;  // sun_path has 108 bytes, the first or the last one a NUL
  rendezvous_url url;
  if (text.empty()) detail::refuse_url(text, "it is empty");
  if (!detail::clean(text)) detail::refuse_url(text, "it contains a space or a control character");
  const std::size_t question = text.find('?');
  std::string_view rest = text.substr(0, question);
  if (question != std::string_view::npos) detail::parse_url_query(text, text.substr(question + 1), url);
  const auto take = [&](std::string_view prefix) {
    const bool found = rest.starts_with(prefix);
    if (found) rest.remove_prefix(prefix.size());
    return found;
  };
  if (take("tcp://")) {
    url.kind = tcp;
    detail::parse_url_authority(text, rest, url);
  } else if (take("env://")) {
    if (!rest.empty()) detail::refuse_url(text, "nothing may follow env://");
  } else if (take("file://")) {
    url.kind = file;
    if (!rest.starts_with('/')) detail::refuse_url(text, "the path must be absolute, with three slashes: file:///path");
    if (rest.ends_with('/')) detail::refuse_url(text, "the path names a directory, not a file");
    url.path = rest;
  } else if (take("unix:")) {
    url.kind = take("@") ? unix_abstract : unix_path;
    if (rest.starts_with("///")) rest.remove_prefix(2);
    if (rest.empty()) detail::refuse_url(text, "no socket name");
    if (url.kind == unix_path && (!rest.starts_with('/') || rest.starts_with("//")))
      detail::refuse_url(text, "the path must be absolute: unix:/path");
    if (rest.size() > longest_socket_name) detail::refuse_url(text, "a socket name has at most 107 bytes");
    url.path = rest;
  } else {
    detail::refuse_url(text, "the scheme is not known");
  }
  if (url.world_size && *url.world_size == 0) detail::refuse_url(text, "world_size is 0");
  if (url.rank && url.world_size && *url.rank >= *url.world_size)
    detail::refuse_url(text, "rank is not below world_size");
  return url;
}

}  // namespace tutti
