# Sets TUTTI_CUDA_COMPILER to whether .cu files are compiled here; if not, says what is missing. For our own tests,
# examples and benchmarks: a user of tutti::kernels enables CUDA in a project of their own, one of tutti::nccl needs no
# CUDA compiler.
set(TUTTI_CUDA_COMPILER FALSE)
if(NOT TUTTI_BUILD_KERNELS)
  return()
endif()
if(NOT kernels_AVAILABLE)
  message(STATUS "tutti::kernels is not compiled or tested here: "
    "no CUDA toolkit 12.0 or newer was found (nvcc in PATH, or CUDAToolkit_ROOT)")
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)  # code for these, and PTX for those to come
endif()
if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND CUDAToolkit_NVCC_EXECUTABLE)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})  # beside the toolkit that was found, if not in PATH
endif()
include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(STATUS "tutti::kernels is not compiled or tested here: no CUDA compiler works (nvcc in PATH, or CUDACXX)")
  return()
endif()

set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # as CUDA::cudart, which NCCL brings: not a second one beside it
enable_language(CUDA)
string(APPEND CMAKE_CUDA_FLAGS " -std=c++20")  # CMake 3.25 does not know that nvcc can
set(CMAKE_CUDA_EXTENSIONS ON)  # that is nvcc's own way: without it CMake adds -std=c++17 behind ours
if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
set(TUTTI_CUDA_COMPILER TRUE)

add_library(tutti_cuda_warnings INTERFACE)
target_compile_options(tutti_cuda_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow,-Wconversion,-Wsign-conversion>)
