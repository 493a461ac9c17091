#pragma once
#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <vector>

#include <tutti/config.hpp>
#include <tutti/os/atomic_file.hpp>
#include <tutti/os/make_folders.hpp>
#include <tutti/os/throw_errno.hpp>
#include <tutti/watch/dump.hpp>
#include <tutti/watch/json_writer.hpp>
#include <tutti/watch/pickle_writer.hpp>

namespace tutti::watch {

namespace detail {

/// Writes a flight by the schema of PyTorch's flight recorder, version 2.10. JSON gets more keys, under "tutti".
template <class Writer>
class flight_writer {
 public:
  explicit flight_writer(const flight& f) : f_(f) {}

  std::string write() {
    w_.begin_dict();
    w_.key("version").text("2.10");
    w_.key("comm_lib_version").text("tutti");
    if constexpr (everything) world();
    groups();
    statuses();
    w_.key("entries").begin_list();
    for (const flight::entry& e : f_.entries)
      // The analyser takes an operation's two ranks from its name.
      if (everything || e.what.call.number != call_kind::of("recv_any").number) entry(e);
    w_.end_list().end_dict();
    return w_.finish();
  }

 private:
  static constexpr bool everything = std::is_same_v<Writer, json_writer>;

  static std::string name_of(std::uint16_t context) { return std::to_string(context); }
  static std::string described(std::uint16_t context) {
    return context == 0 ? "world" : "split " + std::to_string(context);
  }

  void world() {
    w_.key("tutti").begin_dict();
    w_.key("rank").number(f_.rank);
    w_.key("world_size").number(f_.size);
    w_.key("world").text(std::to_string(f_.world));  // JSON's readers round numbers of 64 bits
    w_.key("world_number").number(f_.number);
    w_.key("job").text(f_.job);
    w_.key("host").text(f_.host);
    w_.key("boot").text(f_.boot);
    w_.key("pid").number(f_.pid);
    w_.key("start_time").number(static_cast<std::int64_t>(f_.start_time));
    w_.key("reason").text(f_.reason);
    w_.key("time_ns").number(f_.taken);
    w_.key("left_ns");
    time(f_.left);
    w_.key("failed_ns");
    time(f_.failed);
    w_.key("failure").text(f_.failed == 0 ? "" : category().message(static_cast<int>(f_.failure)));
    w_.key("failed_rank").number(f_.failed_peer);
    w_.end_dict();
  }
  void groups() {
    w_.key("pg_config").begin_dict();
    for (const flight::group& g : f_.groups) {
      w_.key(name_of(g.context)).begin_dict();
      w_.key("name").text(name_of(g.context));
      w_.key("desc").text(described(g.context));
      std::string ranks;
      for (const int r : g.ranks) ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
      w_.key("ranks").text("[" + ranks + "]");
      w_.end_dict();
    }
    w_.end_dict();
  }
  void statuses() {
    w_.key("pg_status").begin_dict();
    for (const flight::group& g : f_.groups) {
      std::int64_t issued = -1, started = -1, ended = -1;
      for (const flight::entry& e : f_.entries) {
        if (e.what.context != g.context || e.what.call.is_message()) continue;
        const auto n = static_cast<std::int64_t>(e.what.sequence);
        issued = (std::max)(issued, n);
        if (e.started != 0) started = (std::max)(started, n);
        if (e.what.state == progress::completed) ended = (std::max)(ended, n);
      }
      w_.key(name_of(g.context)).begin_dict();
      w_.key("last_enqueued_collective").number(issued);
      w_.key("last_started_collective").number(started);
      w_.key("last_completed_collective").number(ended);
      w_.end_dict();
    }
    w_.end_dict();
  }

  void entry(const flight::entry& e) {
    const operation& o = e.what;
    w_.begin_dict();
    w_.key("record_id").number(static_cast<std::int64_t>(o.id));
    w_.key("pg_id").number(o.context);
    w_.key("process_group").begin_pair().text(name_of(o.context)).text(described(o.context)).end_pair();
    w_.key("collective_seq_id").number(o.call.is_message() ? 0 : static_cast<std::int64_t>(o.sequence));
    w_.key("p2p_seq_id").number(o.call.is_message() ? static_cast<std::int64_t>(o.sequence) : 0);
    w_.key("op_id").number(static_cast<std::int64_t>(o.id));
    w_.key("profiling_name").text("nccl:" + name_for_torch(o));  // every version of the analyser knows this prefix
    w_.key("time_created_ns").number(e.issued);
    w_.key("duration_ms");
    if (e.ended != 0 && o.state == progress::completed)
      w_.real(static_cast<double>(e.ended - (e.started != 0 ? e.started : e.issued)) / 1e6);
    else
      w_.none();
    sizes("input_sizes", input(o));
    types("input_dtypes", o);
    sizes("output_sizes", output(o));
    types("output_dtypes", o);
    w_.key("state").text(o.state == progress::completed ? "completed" : e.started != 0 ? "started" : "scheduled");
    w_.key("time_discovered_started_ns");
    time(e.started);
    w_.key("time_discovered_completed_ns");
    time(o.state == progress::completed ? e.ended : 0);
    w_.key("retired").flag(e.ended != 0);
    w_.key("timeout_ms").number(0);
    w_.key("is_p2p").flag(o.call.is_message());
    w_.key("frames").begin_list();
    if (o.site < f_.sites.size() && o.site != 0) {
      const flight::site& s = f_.sites[o.site];
      w_.begin_dict();
      w_.key("name").text(s.function);
      w_.key("filename").text(s.file);
      w_.key("line").number(s.line);
      w_.end_dict();
    }
    w_.end_list();
    w_.key("thread_id").text("");
    w_.key("thread_name").text("");
    if constexpr (everything) details(e);
    w_.end_dict();
  }
  void details(const flight::entry& e) {
    const operation& o = e.what;
    w_.key("tutti").begin_dict();
    w_.key("call").text(o.call.name());
    w_.key("count").number(static_cast<std::int64_t>(o.count));
    w_.key("dtype").text(tutti::name(o.type));
    w_.key("bytes").number(static_cast<std::int64_t>(o.count * o.element_bytes));
    w_.key("algorithm").text(tutti::name(o.via));
    w_.key("reduction").text(o.reduction ? tutti::name(*o.reduction) : "");
    w_.key(o.call.is_message() ? "peer" : "root").number(o.other);
    w_.key("tag").number(o.call.is_message() ? o.tag : 0);
    w_.key("bucket").number(o.bucket());
    w_.key("ended_ns");
    time(e.ended);
    w_.key("error").text(o.state == progress::failed ? category().message(static_cast<int>(o.result)) : "");
    w_.end_dict();
  }

  void time(std::int64_t at) {
    if (at != 0)
      w_.number(at);
    else
      w_.none();
  }
  void sizes(const char* key, std::int64_t count) {
    w_.key(key).begin_list().begin_list();
    if (count >= 0) w_.number(count);
    w_.end_list().end_list();
  }
  void types(const char* key, const operation& o) { w_.key(key).begin_list().text(type_for_torch(o.type)).end_list(); }

  /// Returns the number of elements that go in or come out; -1 if it need not be equal on all ranks. The analyser
  /// compares them.
  [[nodiscard]] std::int64_t input(const operation& o) const {
    const std::string_view call = o.call.name();
    const auto n = static_cast<std::int64_t>(o.count);
    if (!is_comparable(call)) return -1;
    if (call == "all_gather" || (call == "gather" && is_root(o))) return n / ranks(o);
    return n;
  }
  [[nodiscard]] std::int64_t output(const operation& o) const {
    const std::string_view call = o.call.name();
    const auto n = static_cast<std::int64_t>(o.count);
    if (!is_comparable(call)) return -1;
    if (call == "reduce_scatter" || (call == "scatter" && is_root(o))) return n / ranks(o);
    return n;
  }
  static bool is_comparable(std::string_view call) { return !call.ends_with("_v") && call != "split"; }
  [[nodiscard]] std::int64_t ranks(const operation& o) const {
    const flight::group* g = f_.group_of(o);
    return g && !g->ranks.empty() ? static_cast<std::int64_t>(g->ranks.size()) : 1;
  }
  [[nodiscard]] int own_rank(const operation& o) const {
    const flight::group* g = f_.group_of(o);
    return g ? static_cast<int>(std::ranges::find(g->ranks, f_.rank) - g->ranks.begin()) : 0;
  }
  [[nodiscard]] bool is_root(const operation& o) const { return own_rank(o) == o.other; }

  [[nodiscard]] std::string name_for_torch(const operation& o) const {
    const std::string_view call = o.call.name();
    const std::string here = std::to_string(own_rank(o)), there = std::to_string(o.other);
    if (call == "send") return "send " + here + "->" + there;
    if (call == "recv" || call == "recv_any") return "recv " + here + "<-" + there;
    if (call == "all_reduce_coalesced") return "allreduce_coalesced";
    if (call == "gather_v" || call == "scatter_v" || call == "all_to_all_v")
      return std::string(call.substr(0, call.size() - 2));
    if (call == "scan" || call == "exclusive_scan") return "reduce";
    if (call == "close") return "all_gather";
    if (call == "operation") return "barrier";
    return std::string(call);
  }
  static const char* type_for_torch(dtype t) {
    switch (t) {
      case dtype::i8:
        return "Char";
      case dtype::i16:
        return "Short";
      case dtype::u16:
        return "UInt16";
      case dtype::i32:
        return "Int";
      case dtype::u32:
        return "UInt32";
      case dtype::i64:
        return "Long";
      case dtype::u64:
        return "UInt64";
      case dtype::f16:
        return "Half";
      case dtype::bf16:
        return "BFloat16";
      case dtype::f32:
        return "Float";
      case dtype::f64:
        return "Double";
      case dtype::boolean:
        return "Bool";
      case dtype::f8_e4m3:
        return "Float8_e4m3fn";
      case dtype::f8_e5m2:
        return "Float8_e5m2";
      case dtype::c64:
        return "ComplexFloat";
      case dtype::c128:
        return "ComplexDouble";
      case dtype::u8:
      case dtype::extended:
      case dtype::opaque:
        break;
    }
    return "Byte";
  }

  const flight& f_;
  Writer w_;
};

TUTTI_DECL std::string path_in(const std::string& folder, const char* before, int rank, std::uint32_t number,
                               const char* after) {
  return folder + "/" + before + std::to_string(rank) + (number > 1 ? ".world" + std::to_string(number) : "") + after;
}

TUTTI_DECL void replace_file(const std::string& path, std::span<const std::byte> bytes) {
  os::atomic_file file{path};
  file.write(bytes);
  file.commit_to_processes();
}

}  // namespace detail

TUTTI_DECL std::string pickle_path(const std::string& folder, int rank, std::uint32_t number) {
  const std::string before = "flight" + (number > 1 ? std::to_string(number) : "") + "_";
  return folder + "/" + before + std::to_string(rank);
}
TUTTI_DECL std::string json_path(const std::string& folder, int rank, std::uint32_t number) {
  return detail::path_in(folder, "rank_", rank, number, ".json");
}
TUTTI_DECL std::string ring_path(const std::string& folder, int rank, std::uint32_t number) {
  return detail::path_in(folder, "rank_", rank, number, ".ring");
}

TUTTI_DECL std::string pickle_of(const flight& f) { return detail::flight_writer<pickle_writer>{f}.write(); }
TUTTI_DECL std::string json_of(const flight& f) { return detail::flight_writer<json_writer>{f}.write(); }

TUTTI_DECL void dump(const flight& f, const std::string& folder) {
  static_cast<void>(os::make_folders(folder));  // if it is not there, its files cannot be written
  const std::string pickle = pickle_of(f), json = json_of(f);
  detail::replace_file(pickle_path(folder, f.rank, f.number), std::as_bytes(std::span{pickle}));
  detail::replace_file(json_path(folder, f.rank, f.number), std::as_bytes(std::span{json}));
}

TUTTI_DECL void dump_ring(const recording& r, const std::string& folder) {
  detail::replace_file(ring_path(folder, r.head.rank, r.head.number), std::as_bytes(std::span{&r, 1}));
}

}  // namespace tutti::watch
