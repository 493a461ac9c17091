#pragma once
#include <tutti/cuda/device_memory.hpp>
#include <tutti/cuda/device_span.hpp>
#include <tutti/cuda/event.hpp>
#include <tutti/cuda/event_pool.hpp>
#include <tutti/cuda/pinned_memory.hpp>
#include <tutti/cuda/runtime.hpp>
#include <tutti/cuda/stream.hpp>

/// The wrappers over CUDA's own runtime; link tutti::nccl.
namespace tutti::cuda {

using device_guard = basic_device_guard<runtime>;
using event = basic_event<runtime>;
using event_pool = basic_event_pool<runtime>;
using stream = basic_stream<runtime>;
template <class T>
using device_memory = basic_device_memory<T, runtime>;
template <class T>
using pinned_memory = basic_pinned_memory<T, runtime>;

}  // namespace tutti::cuda
