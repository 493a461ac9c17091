#pragma once
#include <tutti/cuda/kernels/adamw.cuh>
#include <tutti/cuda/kernels/cast.cuh>
#include <tutti/cuda/kernels/compress.cuh>
#include <tutti/cuda/kernels/divide.cuh>
#include <tutti/cuda/kernels/pack.cuh>
#include <tutti/cuda/kernels/sum_buffers.cuh>
#include <tutti/cuda/kernels/unscale.cuh>

namespace tutti::cuda {

/// The kernels that backends and hooks take as a template argument, because they include nothing that needs nvcc.
struct kernels : divider, caster, compressor {};

}  // namespace tutti::cuda
