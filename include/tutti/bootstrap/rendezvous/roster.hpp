#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <tutti/bootstrap/rendezvous/claim.hpp>
#include <tutti/core/error.hpp>
#include <tutti/transport/rank_info.hpp>
#include <tutti/wire/bytes.hpp>

namespace tutti {

namespace detail {

/// Union of the CPUs that the ranks of one machine may use.
class cpu_set {
 public:
  void add(const std::string& mask, std::uint32_t limit) {
    told_ = told_ && !mask.empty();
    if (mask.size() > together_.size()) together_.resize(mask.size());
    for (std::size_t i = 0; i < mask.size(); ++i)
      together_[i] = static_cast<char>(static_cast<unsigned char>(together_[i]) | static_cast<unsigned char>(mask[i]));
    if (limit != 0) limit_ = (std::min)(limit_, limit);
  }
  /// Returns the number of CPUs; 0 if a rank did not know its own.
  [[nodiscard]] int count() const noexcept {
    std::uint32_t n = 0;
    for (const char c : together_) n += static_cast<std::uint32_t>(std::popcount(static_cast<unsigned char>(c)));
    return told_ ? static_cast<int>((std::min)(n, limit_)) : 0;
  }

 private:
  std::string together_;
  std::uint32_t limit_ = 1U << 20;
  bool told_ = true;
};

}  // namespace detail

/// Returns the roster of a world from its ranks' encoded claims, in rank order. A node is the ranks of one memory
/// domain; nodes are numbered by their lowest ranks, and local ranks follow the ranks. Throws error{protocol} if an
/// entry is not a claim of its rank in a world of this size.
[[nodiscard]] inline roster make_roster(const std::vector<std::vector<std::byte>>& claims) {
  std::vector<std::size_t> machines;  // lowest rank of each machine
  std::vector<detail::cpu_set> cpus;  // of each machine
  roster all;
  all.reserve(claims.size());
  for (std::size_t r = 0; r < claims.size(); ++r) {
    auto c = decode_claim(claims[r]);
    if (!c || c->rank != static_cast<int>(r) || c->world_size != static_cast<int>(claims.size()) || c->pid <= 0)
      throw error{{errc::protocol, 0, static_cast<int>(r), 0},
                  "the claim of rank " + std::to_string(r) +
                      " is not one: do others write into the store under the same keys?"};
    std::size_t m = 0;
    while (m < machines.size() && all[machines[m]].memory_domain != c->memory_domain) ++m;
    if (m == machines.size()) {
      machines.push_back(r);
      cpus.emplace_back();
    }
    cpus[m].add(c->cpus, c->cpu_limit);
    rank_info p;
    p.rank = c->rank;
    p.local_rank = machines[m] == r ? 0 : all[machines[m]].local_size;
    p.local_size = 0;  // counted at the machine's lowest rank first
    p.node_rank = static_cast<int>(m);
    p.host = std::move(c->host);
    p.pid = c->pid;
    p.start_time = c->start_time;
    p.token = c->token;
    p.memory_domain = std::move(c->memory_domain);
    all.push_back(std::move(p));
    ++all[machines[m]].local_size;
  }
  for (rank_info& p : all) {
    const auto m = static_cast<std::size_t>(p.node_rank);
    p.local_size = all[machines[m]].local_size;
    p.local_cpus = cpus[m].count();
  }
  return all;
}

namespace detail {

/// Returns a list such as "2", "0, 3, 5" or "1-3, 7-9, ...".
inline std::string rank_list(const std::vector<int>& ascending) {
  constexpr std::size_t most = 16;
  std::string text;
  std::size_t shown = 0;
  for (std::size_t i = 0; i < ascending.size(); ++shown) {
    std::size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    if (shown == most) return text + ", ...";
    text.append(shown == 0 ? "" : ", ").append(std::to_string(ascending[i]));
    if (last > i) text += (last == i + 1 ? ", " : "-") + std::to_string(ascending[last]);
    i = last + 1;
  }
  return text;
}

/// Longest text of a place: the endpoint of a rank, or the name of its shared memory.
inline constexpr std::size_t longest_endpoint = 512;

[[nodiscard]] inline std::vector<std::byte> encode_place(const rank_info& p) {
  std::vector<std::byte> out(4 + p.endpoint.size() + p.shared_memory.size());
  wire::byte_writer{out}.text(p.endpoint).text(p.shared_memory);
  return out;
}

/// Adds the places of all ranks to a roster. Throws error{protocol} if an entry is not a place.
inline void fill_places(roster& all, const std::vector<std::vector<std::byte>>& places) {
  for (std::size_t r = 0; r < all.size(); ++r) {
    wire::byte_reader in{places[r]};
    all[r].endpoint = in.text(longest_endpoint);
    all[r].shared_memory = in.text(longest_endpoint);
    if (!in.ok() || printable(all[r].endpoint) != all[r].endpoint ||
        printable(all[r].shared_memory) != all[r].shared_memory)
      throw error{{errc::protocol, 0, static_cast<int>(r), 0},
                  describe(all[r]) + " did not say in a readable way where it can be reached"};
  }
}

}  // namespace detail

}  // namespace tutti
