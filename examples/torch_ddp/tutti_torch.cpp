// tutti with a C interface, for a process group of torch in Python (tutti_process_group.py). Includes no header of
// torch, so that one library works with every version of it. Functions block and return 0, or -1 after an error, which
// tutti_torch_error() describes.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tutti/tutti.hpp>
#include <utility>

namespace {

struct group {
  tutti::communicator<> world;
  tutti::reduction_order order;
};
thread_local std::string why;

template <class F>
int guarded(F f) noexcept {
  try {
    f();
    return 0;
  } catch (const std::exception& e) {
    why = e.what();
  } catch (...) {
    why = "unknown";
  }
  return -1;
}

/// A reduction, numbered as in tutti_process_group.py. DDP divides before it sums, so it needs no mean.
enum reduction : int { sum, product, least, most };

template <class T>
void reduce(group& g, std::span<T> data, int how) {
  const tutti::call_options by{.order = g.order};
  switch (how) {
    case reduction::sum:
      return g.world.all_reduce(data, tutti::sum, by).wait();
    case reduction::product:
      return g.world.all_reduce(data, tutti::prod, by).wait();
    case reduction::least:
      return g.world.all_reduce(data, tutti::min, by).wait();
    case reduction::most:
      return g.world.all_reduce(data, tutti::max, by).wait();
    default:
      throw tutti::usage_error("tutti_torch: reduction " + std::to_string(how) + " is not supported");
  }
}

}  // namespace

extern "C" {

const char* tutti_torch_error() { return why.c_str(); }

/// Joins the other ranks at `rendezvous` (docs/rendezvous.md). Returns null after an error, such as a timeout.
void* tutti_torch_open(const char* rendezvous, double timeout_s, int by_rank) {
  group* made = nullptr;
  guarded([&] {
    tutti::init_options options;
    options.rendezvous = rendezvous;
    options.timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout_s * 1000));
    made = new group{tutti::init(options), by_rank != 0 ? tutti::reduction_order::rank : tutti::reduction_order::any};
  });
  return made;
}
void tutti_torch_close(void* g) { delete static_cast<group*>(g); }

int tutti_torch_all_reduce(void* g, void* data, std::size_t count, const char* type, int how) {
  return guarded([&] {
    group& in = *static_cast<group*>(g);
    const std::string_view t = type;
    const auto as = [&]<class T>(std::string_view name, T*) {
      if (t != name) return false;
      reduce(in, std::span{static_cast<T*>(data), count}, how);
      return true;
    };
    if (!(as("float32", static_cast<float*>(nullptr)) || as("float64", static_cast<double*>(nullptr)) ||
          as("int64", static_cast<std::int64_t*>(nullptr)) || as("int32", static_cast<std::int32_t*>(nullptr)) ||
          as("float16", static_cast<tutti::float16*>(nullptr)) ||
          as("bfloat16", static_cast<tutti::bfloat16*>(nullptr))))
      throw tutti::usage_error("tutti_torch: no all_reduce of " + std::string(t));
  });
}
int tutti_torch_broadcast(void* g, void* data, std::size_t bytes, int root) {
  return guarded(
      [&] { static_cast<group*>(g)->world.broadcast(std::span{static_cast<std::byte*>(data), bytes}, root).wait(); });
}
/// Gathers `bytes` bytes of each rank in `out`, which has room for those of all ranks, in rank order.
int tutti_torch_all_gather(void* g, const void* in, void* out, std::size_t bytes) {
  return guarded([&] {
    auto& world = static_cast<group*>(g)->world;
    world
        .all_gather(std::span{static_cast<const std::byte*>(in), bytes},
                    std::span{static_cast<std::byte*>(out), bytes * static_cast<std::size_t>(world.size())})
        .wait();
  });
}
/// Registers memory, which the other ranks of the machine then read and write where it lies. Returns null if it is too
/// short, or cannot be registered: it is reduced as ever then.
void* tutti_torch_register(void* g, void* data, std::size_t bytes) {
  void* made = nullptr;
  guarded([&] {
    auto held = static_cast<group*>(g)->world.register_buffer(std::span{static_cast<std::byte*>(data), bytes});
    if (held.registered()) made = new tutti::registration{std::move(held)};
  });
  return made;
}
void tutti_torch_end(void* held) { delete static_cast<tutti::registration*>(held); }

int tutti_torch_barrier(void* g) {
  return guarded([&] { static_cast<group*>(g)->world.barrier().wait(); });
}

}  // extern "C"
