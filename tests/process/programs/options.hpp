#pragma once
#include <chrono>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <tutti/bootstrap/options.hpp>

namespace tutti_test {

/// name=value words of a command line.
class words {
 public:
  words(int argc, char** argv) : words_(argv + 1, argv + argc) {}

  [[nodiscard]] std::string text(std::string_view name, std::string_view otherwise = "") const {
    for (const std::string& w : words_)
      if (w.size() > name.size() && w.compare(0, name.size(), name) == 0 && w[name.size()] == '=')
        return w.substr(name.size() + 1);
    return std::string(otherwise);
  }
  [[nodiscard]] int number(std::string_view name, int otherwise = 0) const {
    const std::string value = text(name);
    return value.empty() ? otherwise : std::atoi(value.c_str());
  }
  [[nodiscard]] bool has(std::string_view name) const { return !text(name).empty(); }

 private:
  std::vector<std::string> words_;
};

/// init_options from words of the same names; `join` is the join timeout and `timeout` that of operations, in ms.
inline tutti::init_options options_from(const words& w) {
  tutti::init_options o;
  o.rendezvous = w.text("rendezvous");
  if (w.has("rank")) o.rank = w.number("rank");
  if (w.has("world")) o.world_size = w.number("world");
  o.job = w.text("job");
  o.interface = w.text("interface");
  o.memory_domain = w.text("domain");
  o.tuning = w.text("tuning");
  if (w.text("transport") == "shm") o.transport = tutti::transport_choice::shm;
  if (w.text("transport") == "tcp") o.transport = tutti::transport_choice::tcp;
  if (w.has("secret")) o.secret = tutti::secret_source::file(w.text("secret"));
  if (w.has("insecure")) o.network = tutti::exposure::insecure;
  o.join_timeout = std::chrono::milliseconds{w.number("join", 30000)};
  o.timeout = std::chrono::milliseconds{w.number("timeout", 60000)};
  return o;
}

}  // namespace tutti_test
