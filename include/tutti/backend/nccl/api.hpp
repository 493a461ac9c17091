#pragma once
#include <nccl.h>

#include <cstddef>
#include <cstring>

#include <tutti/backend/nccl/types.hpp>
#include <tutti/cuda/runtime.hpp>

// Functions that not every version has are weak symbols: a program that was compiled with a newer NCCL than it finds
// still starts, also if all symbols are bound at start.
extern "C" {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 3)
[[gnu::weak]] ncclResult_t ncclMemAlloc(void**, size_t);
[[gnu::weak]] ncclResult_t ncclMemFree(void*);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
[[gnu::weak]] ncclResult_t ncclCommShrink(ncclComm_t, int*, int, ncclComm_t*, ncclConfig_t*, int);
[[gnu::weak]] ncclResult_t ncclCommWindowRegister(ncclComm_t, void*, size_t, ncclWindow_t*, int);
[[gnu::weak]] ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
[[gnu::weak]] ncclResult_t ncclAlltoAll(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
[[gnu::weak]] ncclResult_t ncclGather(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
[[gnu::weak]] ncclResult_t ncclScatter(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
[[gnu::weak]] ncclResult_t ncclCommRevoke(ncclComm_t, int);
#endif
}

namespace tutti {

/// NCCL, linked by the CMake target tutti::nccl.
struct nccl_api {
  using cuda = tutti::cuda::runtime;

  static nccl_result version(int& v) noexcept { return code(::ncclGetVersion(&v)); }
  static nccl_result unique_id(nccl_unique_id& id) noexcept {
    ::ncclUniqueId theirs;
    const nccl_result r = code(::ncclGetUniqueId(&theirs));
    std::memcpy(id.bytes.data(), &theirs, sizeof(theirs));
    return r;
  }
  static nccl_result init(nccl_comm& comm, int n, const nccl_unique_id& id, int rank, nccl_calls how) noexcept {
    ::ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = how == nccl_calls::blocking ? 1 : 0;
    ::ncclUniqueId theirs;
    std::memcpy(&theirs, id.bytes.data(), sizeof(theirs));
    return code(::ncclCommInitRankConfig(&comm, n, theirs, rank, &config));
  }
  static nccl_result async_error(nccl_comm comm, nccl_result& r) noexcept {
    ::ncclResult_t theirs = ::ncclSuccess;
    const nccl_result supported = code(::ncclCommGetAsyncError(comm, &theirs));
    r = code(theirs);
    return supported;
  }

  /// Returns true if this program was compiled with the feature and the loaded library has it: a newer library does no
  /// more than these headers declare.
  static bool has(nccl_feature f) noexcept {
    switch (f) {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 3)
      case nccl_feature::memory:
        return &::ncclMemAlloc && &::ncclMemFree;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
      case nccl_feature::windows:
        return &::ncclCommWindowRegister && &::ncclCommWindowDeregister;
      case nccl_feature::shrink:
        return &::ncclCommShrink;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
      case nccl_feature::exchange:
        return &::ncclAlltoAll && &::ncclGather && &::ncclScatter;
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
      case nccl_feature::revoke:
        return &::ncclCommRevoke;
#endif
      default:
        return f == nccl_feature::timed_calls;  // a result, which any library may return
    }
  }
  static nccl_result revoke([[maybe_unused]] nccl_comm comm) noexcept {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 7)
    return code(::ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
#else
    return nccl_result::invalid_usage;
#endif
  }
  static nccl_result shrink([[maybe_unused]] nccl_comm comm, [[maybe_unused]] int* dead, [[maybe_unused]] int n,
                            [[maybe_unused]] nccl_comm& made, [[maybe_unused]] nccl_calls how) noexcept {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    ::ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = how == nccl_calls::blocking ? 1 : 0;
    return code(::ncclCommShrink(comm, dead, n, &made, &config, NCCL_SHRINK_ABORT));
#else
    return nccl_result::invalid_usage;
#endif
  }
  static nccl_result finalize(nccl_comm comm) noexcept { return code(::ncclCommFinalize(comm)); }
  static nccl_result destroy(nccl_comm comm) noexcept { return code(::ncclCommDestroy(comm)); }
  static nccl_result abort(nccl_comm comm) noexcept { return code(::ncclCommAbort(comm)); }
  static const char* words(nccl_result r) noexcept { return ::ncclGetErrorString(static_cast<::ncclResult_t>(r)); }
  static const char* last_error(nccl_comm comm) noexcept { return ::ncclGetLastError(comm); }

  static nccl_result group_start() noexcept { return code(::ncclGroupStart()); }
  static nccl_result group_end() noexcept { return code(::ncclGroupEnd()); }
  static nccl_result create_scaled_sum(nccl_reduction& made, void* factor, nccl_dtype t, nccl_comm comm) noexcept {
    ::ncclRedOp_t theirs = ::ncclSum;
    const nccl_result r = code(::ncclRedOpCreatePreMulSum(&theirs, factor, type(t), ::ncclScalarHostImmediate, comm));
    made = static_cast<nccl_reduction>(theirs);
    return r;
  }
  static nccl_result destroy_reduction(nccl_reduction with, nccl_comm comm) noexcept {
    return code(::ncclRedOpDestroy(op(with), comm));
  }

  static nccl_result all_reduce(const void* in, void* out, std::size_t count, nccl_dtype t, nccl_reduction with,
                                nccl_comm comm, tutti::cuda::stream_handle s) noexcept {
    return code(::ncclAllReduce(in, out, count, type(t), op(with), comm, s));
  }
  static nccl_result reduce(const void* in, void* out, std::size_t count, nccl_dtype t, nccl_reduction with, int root,
                            nccl_comm comm, tutti::cuda::stream_handle s) noexcept {
    return code(::ncclReduce(in, out, count, type(t), op(with), root, comm, s));
  }
  static nccl_result reduce_scatter(const void* in, void* out, std::size_t count, nccl_dtype t, nccl_reduction with,
                                    nccl_comm comm, tutti::cuda::stream_handle s) noexcept {
    return code(::ncclReduceScatter(in, out, count, type(t), op(with), comm, s));
  }
  static nccl_result broadcast(const void* in, void* out, std::size_t count, nccl_dtype t, int root, nccl_comm comm,
                               tutti::cuda::stream_handle s) noexcept {
    return code(::ncclBroadcast(in, out, count, type(t), root, comm, s));
  }
  static nccl_result all_gather(const void* in, void* out, std::size_t count, nccl_dtype t, nccl_comm comm,
                                tutti::cuda::stream_handle s) noexcept {
    return code(::ncclAllGather(in, out, count, type(t), comm, s));
  }
  static nccl_result send(const void* in, std::size_t count, nccl_dtype t, int peer, nccl_comm comm,
                          tutti::cuda::stream_handle s) noexcept {
    return code(::ncclSend(in, count, type(t), peer, comm, s));
  }
  static nccl_result recv(void* out, std::size_t count, nccl_dtype t, int peer, nccl_comm comm,
                          tutti::cuda::stream_handle s) noexcept {
    return code(::ncclRecv(out, count, type(t), peer, comm, s));
  }
  static nccl_result all_to_all([[maybe_unused]] const void* in, [[maybe_unused]] void* out,
                                [[maybe_unused]] std::size_t count, [[maybe_unused]] nccl_dtype t,
                                [[maybe_unused]] nccl_comm comm,
                                [[maybe_unused]] tutti::cuda::stream_handle s) noexcept {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
    return code(::ncclAlltoAll(in, out, count, type(t), comm, s));
#else
    return nccl_result::invalid_usage;
#endif
  }
  static nccl_result gather([[maybe_unused]] const void* in, [[maybe_unused]] void* out,
                            [[maybe_unused]] std::size_t count, [[maybe_unused]] nccl_dtype t,
                            [[maybe_unused]] int root, [[maybe_unused]] nccl_comm comm,
                            [[maybe_unused]] tutti::cuda::stream_handle s) noexcept {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
    return code(::ncclGather(in, out, count, type(t), root, comm, s));
#else
    return nccl_result::invalid_usage;
#endif
  }
  static nccl_result scatter([[maybe_unused]] const void* in, [[maybe_unused]] void* out,
                             [[maybe_unused]] std::size_t count, [[maybe_unused]] nccl_dtype t,
                             [[maybe_unused]] int root, [[maybe_unused]] nccl_comm comm,
                             [[maybe_unused]] tutti::cuda::stream_handle s) noexcept {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
    return code(::ncclScatter(in, out, count, type(t), root, comm, s));
#else
    return nccl_result::invalid_usage;
#endif
  }

  static nccl_result allocate([[maybe_unused]] void*& p, [[maybe_unused]] std::size_t bytes) noexcept {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 3)
    return code(::ncclMemAlloc(&p, bytes));
#else
    return nccl_result::invalid_usage;
#endif
  }
  static nccl_result deallocate([[maybe_unused]] void* p) noexcept {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 3)
    return code(::ncclMemFree(p));
#else
    return nccl_result::invalid_usage;
#endif
  }
  static nccl_result register_window([[maybe_unused]] nccl_comm comm, [[maybe_unused]] void* p,
                                     [[maybe_unused]] std::size_t bytes, [[maybe_unused]] nccl_window& w) noexcept {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    static_assert(sizeof(::ncclWindow_t) == sizeof w);
    auto* const theirs = reinterpret_cast<::ncclWindow_t*>(&w);  // written by a thread of NCCL's, after this call
    return code(::ncclCommWindowRegister(comm, p, bytes, theirs, NCCL_WIN_COLL_SYMMETRIC));
#else
    return nccl_result::invalid_usage;
#endif
  }
  static nccl_result deregister_window([[maybe_unused]] nccl_comm comm, [[maybe_unused]] nccl_window w) noexcept {
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
    return code(::ncclCommWindowDeregister(comm, static_cast<::ncclWindow_t>(w)));
#else
    return nccl_result::invalid_usage;
#endif
  }

 private:
  static nccl_result code(::ncclResult_t r) noexcept { return static_cast<nccl_result>(r); }
  static ::ncclDataType_t type(nccl_dtype t) noexcept { return static_cast<::ncclDataType_t>(t); }
  static ::ncclRedOp_t op(nccl_reduction r) noexcept { return static_cast<::ncclRedOp_t>(r); }
};
static_assert(nccl_functions<nccl_api>);
static_assert(sizeof(::ncclUniqueId) == sizeof(nccl_unique_id));
static_assert(static_cast<int>(nccl_result::remote) == ::ncclRemoteError &&
              static_cast<int>(nccl_result::in_progress) == ::ncclInProgress);
static_assert(static_cast<int>(nccl_dtype::i8) == ::ncclInt8 && static_cast<int>(nccl_dtype::u8) == ::ncclUint8 &&
              static_cast<int>(nccl_dtype::i32) == ::ncclInt32 && static_cast<int>(nccl_dtype::u32) == ::ncclUint32 &&
              static_cast<int>(nccl_dtype::i64) == ::ncclInt64 && static_cast<int>(nccl_dtype::u64) == ::ncclUint64 &&
              static_cast<int>(nccl_dtype::f16) == ::ncclFloat16 &&
              static_cast<int>(nccl_dtype::f32) == ::ncclFloat32 &&
              static_cast<int>(nccl_dtype::f64) == ::ncclFloat64 &&
              static_cast<int>(nccl_dtype::bf16) == ::ncclBfloat16);
static_assert(static_cast<int>(nccl_reduction::op_sum) == ::ncclSum &&
              static_cast<int>(nccl_reduction::op_prod) == ::ncclProd &&
              static_cast<int>(nccl_reduction::op_max) == ::ncclMax &&
              static_cast<int>(nccl_reduction::op_min) == ::ncclMin &&
              static_cast<int>(nccl_reduction::op_avg) == ::ncclAvg);

}  // namespace tutti
