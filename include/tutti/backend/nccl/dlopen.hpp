#pragma once
#include <climits>
#include <cstddef>
#include <string>

#include <tutti/backend/nccl/feature.hpp>
#include <tutti/backend/nccl/types.hpp>
#include <tutti/cuda/dlopen.hpp>
#include <tutti/os/dynamic_library.hpp>

namespace tutti {

/// The installed NCCL.
struct installed_nccl {
  static os::dynamic_library load() { return os::dynamic_library{"libnccl.so.2", "libnccl.so"}; }
};

namespace detail {

/// The ncclConfig_t of 2.17: newer versions take the other fields as unset.
struct nccl_config {
  static constexpr int unsaid = INT_MIN;
  std::size_t size = sizeof(nccl_config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = unsaid, cga_cluster_size = unsaid, min_ctas = unsaid, max_ctas = unsaid;
  const char* net_name = nullptr;
  int split_share = unsaid, padding = unsaid;
};
static_assert(sizeof(nccl_config) == 48);

/// NCCL's functions by their binary interface, which NCCL keeps within its major version.
struct nccl_table {
  using result = nccl_result;
  using comm = nccl_comm;
  using stream = cuda::stream_handle;
  using type = nccl_dtype;
  using with = nccl_reduction;
  using in = const void*;
  using out = void*;
  using size = std::size_t;
  result (*version)(int*) = nullptr;
  result (*unique_id)(nccl_unique_id*) = nullptr;
  result (*init)(comm*, int, nccl_unique_id, int, nccl_config*) = nullptr;
  result (*async_error)(comm, result*) = nullptr;
  result (*finalize)(comm) = nullptr;
  result (*destroy)(comm) = nullptr;
  result (*abort)(comm) = nullptr;
  result (*group_start)() = nullptr;
  result (*group_end)() = nullptr;
  result (*create_scaled_sum)(with*, void*, type, int, comm) = nullptr;
  result (*destroy_reduction)(with, comm) = nullptr;
  result (*all_reduce)(in, out, size, type, with, comm, stream) = nullptr;
  result (*reduce)(in, out, size, type, with, int, comm, stream) = nullptr;
  result (*reduce_scatter)(in, out, size, type, with, comm, stream) = nullptr;
  result (*broadcast)(in, out, size, type, int, comm, stream) = nullptr;
  result (*all_gather)(in, out, size, type, comm, stream) = nullptr;
  result (*send)(in, size, type, int, comm, stream) = nullptr;
  result (*recv)(out, size, type, int, comm, stream) = nullptr;
  result (*revoke)(comm, int) = nullptr;
  result (*shrink)(comm, int*, int, comm*, nccl_config*, int) = nullptr;
  result (*all_to_all)(in, out, size, type, comm, stream) = nullptr;
  result (*gather)(in, out, size, type, int, comm, stream) = nullptr;
  result (*scatter)(in, out, size, type, int, comm, stream) = nullptr;
  result (*allocate)(void**, size) = nullptr;
  result (*deallocate)(void*) = nullptr;
  result (*register_window)(comm, void*, size, nccl_window*, int) = nullptr;
  result (*deregister_window)(comm, nccl_window) = nullptr;
  const char* (*words)(result) = nullptr;
  const char* (*last_error)(comm) = nullptr;
  std::string missing;  ///< the reason why it cannot be used, with the remedy; empty if it can

  explicit nccl_table(const os::dynamic_library& lib) {
    if (!lib.loaded()) {
      missing = "NCCL, libnccl.so.2, cannot be loaded (" + lib.why_not() +
                "); install it (Debian package of NVIDIA: libnccl2), or put its directory into LD_LIBRARY_PATH";
      return;
    }
    const os::required_functions need{lib, missing, "the library that was loaded for NCCL",
                                      "libnccl.so.2 of 2.18 or newer is needed"};
    need(version, "ncclGetVersion");
    need(unique_id, "ncclGetUniqueId");
    need(init, "ncclCommInitRankConfig");
    need(async_error, "ncclCommGetAsyncError");
    need(finalize, "ncclCommFinalize");
    need(destroy, "ncclCommDestroy");
    need(abort, "ncclCommAbort");
    need(group_start, "ncclGroupStart");
    need(group_end, "ncclGroupEnd");
    need(create_scaled_sum, "ncclRedOpCreatePreMulSum");
    need(destroy_reduction, "ncclRedOpDestroy");
    need(all_reduce, "ncclAllReduce");
    need(reduce, "ncclReduce");
    need(reduce_scatter, "ncclReduceScatter");
    need(broadcast, "ncclBroadcast");
    need(all_gather, "ncclAllGather");
    need(send, "ncclSend");
    need(recv, "ncclRecv");
    need(words, "ncclGetErrorString");
    need(last_error, "ncclGetLastError");
    // Functions that not every version has; see has().
    lib.find(revoke, "ncclCommRevoke");
    lib.find(shrink, "ncclCommShrink");
    lib.find(all_to_all, "ncclAlltoAll");
    lib.find(gather, "ncclGather");
    lib.find(scatter, "ncclScatter");
    lib.find(allocate, "ncclMemAlloc");
    lib.find(deallocate, "ncclMemFree");
    lib.find(register_window, "ncclCommWindowRegister");
    lib.find(deregister_window, "ncclCommWindowDeregister");
  }
};

}  // namespace detail

/// NCCL, loaded by its first call, with CUDA's runtime in the same way: for programs that must start without them and
/// are compiled without their headers. If it cannot be loaded, missing() returns the reason, and calls fail.
template <class Where, class Cuda>
class basic_nccl_dlopen {
 public:
  using cuda = Cuda;

  /// Returns the reason why it cannot be used, with the remedy; empty if it can. May throw bad_alloc.
  static const std::string& missing() { return table().missing; }

  static nccl_result finalize(nccl_comm comm) noexcept { return call(&table_type::finalize, comm); }
  static nccl_result destroy(nccl_comm comm) noexcept { return call(&table_type::destroy, comm); }
  static nccl_result abort(nccl_comm comm) noexcept { return call(&table_type::abort, comm); }
  static nccl_result group_start() noexcept { return call(&table_type::group_start); }
  static nccl_result group_end() noexcept { return call(&table_type::group_end); }
  static nccl_result destroy_reduction(nccl_reduction made, nccl_comm comm) noexcept {
    return call(&table_type::destroy_reduction, made, comm);
  }
  static nccl_result all_reduce(const void* in, void* out, std::size_t count, nccl_dtype t, nccl_reduction with,
                                nccl_comm comm, tutti::cuda::stream_handle s) noexcept {
    return call(&table_type::all_reduce, in, out, count, t, with, comm, s);
  }
  static nccl_result reduce(const void* in, void* out, std::size_t count, nccl_dtype t, nccl_reduction with, int root,
                            nccl_comm comm, tutti::cuda::stream_handle s) noexcept {
    return call(&table_type::reduce, in, out, count, t, with, root, comm, s);
  }
  static nccl_result reduce_scatter(const void* in, void* out, std::size_t count, nccl_dtype t, nccl_reduction with,
                                    nccl_comm comm, tutti::cuda::stream_handle s) noexcept {
    return call(&table_type::reduce_scatter, in, out, count, t, with, comm, s);
  }
  static nccl_result broadcast(const void* in, void* out, std::size_t count, nccl_dtype t, int root, nccl_comm comm,
                               tutti::cuda::stream_handle s) noexcept {
    return call(&table_type::broadcast, in, out, count, t, root, comm, s);
  }
  static nccl_result all_gather(const void* in, void* out, std::size_t count, nccl_dtype t, nccl_comm comm,
                                tutti::cuda::stream_handle s) noexcept {
    return call(&table_type::all_gather, in, out, count, t, comm, s);
  }
  static nccl_result send(const void* in, std::size_t count, nccl_dtype t, int root, nccl_comm comm,
                          tutti::cuda::stream_handle s) noexcept {
    return call(&table_type::send, in, count, t, root, comm, s);
  }
  static nccl_result recv(void* out, std::size_t count, nccl_dtype t, int root, nccl_comm comm,
                          tutti::cuda::stream_handle s) noexcept {
    return call(&table_type::recv, out, count, t, root, comm, s);
  }
  static nccl_result all_to_all(const void* in, void* out, std::size_t count, nccl_dtype t, nccl_comm comm,
                                tutti::cuda::stream_handle s) noexcept {
    return call(&table_type::all_to_all, in, out, count, t, comm, s);
  }
  static nccl_result gather(const void* in, void* out, std::size_t count, nccl_dtype t, int root, nccl_comm comm,
                            tutti::cuda::stream_handle s) noexcept {
    return call(&table_type::gather, in, out, count, t, root, comm, s);
  }
  static nccl_result scatter(const void* in, void* out, std::size_t count, nccl_dtype t, int root, nccl_comm comm,
                             tutti::cuda::stream_handle s) noexcept {
    return call(&table_type::scatter, in, out, count, t, root, comm, s);
  }
  static nccl_result deallocate(void* p) noexcept { return call(&table_type::deallocate, p); }
  static nccl_result deregister_window(nccl_comm comm, nccl_window w) noexcept {
    return call(&table_type::deregister_window, comm, w);
  }

  static nccl_result unique_id(nccl_unique_id& id) noexcept { return call(&table_type::unique_id, &id); }
  static nccl_result version(int& v) noexcept { return call(&table_type::version, &v); }
  static nccl_result init(nccl_comm& made, int n, const nccl_unique_id& id, int rank, nccl_calls how) noexcept {
    detail::nccl_config config;
    config.blocking = how == nccl_calls::blocking ? 1 : 0;
    return call(&table_type::init, &made, n, id, rank, &config);
  }
  static nccl_result async_error(nccl_comm comm, nccl_result& r) noexcept {
    return call(&table_type::async_error, comm, &r);
  }
  static nccl_result revoke(nccl_comm comm) noexcept { return call(&table_type::revoke, comm, 0); }
  static nccl_result shrink(nccl_comm comm, int* dead, int n, nccl_comm& made, nccl_calls how) noexcept {
    detail::nccl_config config;
    config.blocking = how == nccl_calls::blocking ? 1 : 0;
    constexpr int with_abort = 1;
    return call(&table_type::shrink, comm, dead, n, &made, &config, with_abort);
  }
  static nccl_result create_scaled_sum(nccl_reduction& made, void* factor, nccl_dtype t, nccl_comm comm) noexcept {
    constexpr int now_from_the_host = 1;
    return call(&table_type::create_scaled_sum, &made, factor, t, now_from_the_host, comm);
  }
  static nccl_result allocate(void*& p, std::size_t bytes) noexcept { return call(&table_type::allocate, &p, bytes); }
  static nccl_result register_window(nccl_comm comm, void* p, std::size_t bytes, nccl_window& w) noexcept {
    constexpr int symmetric = 1;
    return call(&table_type::register_window, comm, p, bytes, &w, symmetric);
  }

  static bool has(nccl_feature f) noexcept {
    if (!usable()) return false;
    const table_type& t = table();
    switch (f) {
      case nccl_feature::memory:
        return t.allocate && t.deallocate;
      case nccl_feature::windows:
        return t.register_window && t.deregister_window;
      case nccl_feature::shrink:
        return t.shrink;
      case nccl_feature::exchange:
        return t.all_to_all && t.gather && t.scatter;
      case nccl_feature::revoke:
        return t.revoke;
      default:
        return f == nccl_feature::timed_calls;
    }
  }
  static const char* words(nccl_result r) noexcept { return usable() ? table().words(r) : "NCCL could not be loaded"; }
  static const char* last_error(nccl_comm comm) noexcept { return usable() ? table().last_error(comm) : ""; }

 private:
  using table_type = detail::nccl_table;

  static const table_type& table() {
    static const table_type loaded{Where::load()};
    return loaded;
  }
  static bool usable() noexcept try { return table().missing.empty(); } catch (...) {  // no memory to load it
    return false;
  }
  template <class... Params, class... Args>
  static nccl_result call(nccl_result (*table_type::*f)(Params...), Args... args) noexcept {
    return usable() && table().*f ? (table().*f)(args...) : nccl_result::system;
  }
};
/// See basic_nccl_dlopen.
using nccl_dlopen = basic_nccl_dlopen<installed_nccl, cuda::runtime_dlopen>;
static_assert(nccl_functions<nccl_dlopen>);

}  // namespace tutti
