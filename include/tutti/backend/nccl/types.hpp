#pragma once
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <tutti/backend/nccl/feature.hpp>
#include <tutti/cuda/types.hpp>

struct ncclComm;

namespace tutti {

using nccl_comm = ncclComm*;
using nccl_window = void*;  ///< ncclWindow_t

/// The values of ncclResult_t; others may come.
enum class nccl_result : int {
  success = 0,
  unhandled_cuda = 1,
  system = 2,
  internal = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote = 6,
  in_progress = 7,
  timeout = 8  ///< from NCCL 2.30.3 on
};

/// The values of ncclDataType_t.
enum class nccl_dtype : int { i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16, f8_e4m3, f8_e5m2 };

/// The values of ncclRedOp_t; reductions that are made at run time come after `avg`.
enum class nccl_reduction : int { op_sum, op_prod, op_max, op_min, op_avg };

/// The id that the ranks of a communicator share before they are connected.
struct nccl_unique_id {
  std::array<std::byte, 128> bytes{};
};

/// The behaviour of a communicator's calls.
enum class nccl_calls : std::uint8_t {
  nonblocking,  ///< no call waits for another rank, so every wait has a deadline; NCCL makes a thread for each launch
  blocking      ///< launches cost less; but the creation of a communicator, and the first launch of a kind, connect to
                ///< peers, and nothing can end that wait
};

/// A type with the functions of NCCL that are used, as static members, and the CUDA runtime that they go with:
/// backend/nccl/api.hpp has the real ones, tests have fakes. None throws; each returns NCCL's result. Functions whose
/// has(feature) is false are not called.
template <class A>
concept nccl_functions = cuda::runtime_api<typename A::cuda> &&
                         requires(int n, int& version, nccl_unique_id& id, nccl_comm comm, nccl_comm& made,
                                  nccl_calls how, nccl_result& r, const void* in, void* out, std::size_t count,
                                  nccl_dtype type, nccl_reduction with, nccl_reduction& with_out, cuda::stream_handle s,
                                  int* ranks, void*& memory, nccl_window window, nccl_window& registered) {
                           { A::version(version) } noexcept -> std::same_as<nccl_result>;
                           { A::unique_id(id) } noexcept -> std::same_as<nccl_result>;
                           { A::init(made, n, id, n, how) } noexcept -> std::same_as<nccl_result>;
                           { A::async_error(comm, r) } noexcept -> std::same_as<nccl_result>;
                           { A::has(nccl_feature::shrink) } noexcept -> std::same_as<bool>;
                           { A::revoke(comm) } noexcept -> std::same_as<nccl_result>;
                           { A::shrink(comm, ranks, n, made, how) } noexcept -> std::same_as<nccl_result>;
                           { A::finalize(comm) } noexcept -> std::same_as<nccl_result>;
                           { A::destroy(comm) } noexcept -> std::same_as<nccl_result>;
                           { A::abort(comm) } noexcept -> std::same_as<nccl_result>;
                           { A::words(nccl_result{}) } noexcept -> std::same_as<const char*>;
                           { A::last_error(comm) } noexcept -> std::same_as<const char*>;
                           { A::group_start() } noexcept -> std::same_as<nccl_result>;
                           { A::group_end() } noexcept -> std::same_as<nccl_result>;
                           { A::create_scaled_sum(with_out, out, type, comm) } noexcept -> std::same_as<nccl_result>;
                           { A::destroy_reduction(with, comm) } noexcept -> std::same_as<nccl_result>;
                           { A::all_reduce(in, out, count, type, with, comm, s) } noexcept -> std::same_as<nccl_result>;
                           { A::reduce(in, out, count, type, with, n, comm, s) } noexcept -> std::same_as<nccl_result>;
                           {
                             A::reduce_scatter(in, out, count, type, with, comm, s)
                           } noexcept -> std::same_as<nccl_result>;
                           { A::broadcast(in, out, count, type, n, comm, s) } noexcept -> std::same_as<nccl_result>;
                           { A::all_gather(in, out, count, type, comm, s) } noexcept -> std::same_as<nccl_result>;
                           { A::send(in, count, type, n, comm, s) } noexcept -> std::same_as<nccl_result>;
                           { A::recv(out, count, type, n, comm, s) } noexcept -> std::same_as<nccl_result>;
                           { A::all_to_all(in, out, count, type, comm, s) } noexcept -> std::same_as<nccl_result>;
                           { A::gather(in, out, count, type, n, comm, s) } noexcept -> std::same_as<nccl_result>;
                           { A::scatter(in, out, count, type, n, comm, s) } noexcept -> std::same_as<nccl_result>;
                           { A::allocate(memory, count) } noexcept -> std::same_as<nccl_result>;
                           { A::deallocate(out) } noexcept -> std::same_as<nccl_result>;
                           { A::register_window(comm, out, count, registered) } noexcept -> std::same_as<nccl_result>;
                           { A::deregister_window(comm, window) } noexcept -> std::same_as<nccl_result>;
                         };

}  // namespace tutti
