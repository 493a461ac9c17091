# Sets TUTTI_CUDA_COMPILER to whether .cu files can be compiled here, and says so where tutti::nccl is there without it.
# Our own kernels, tests and examples only: no user of tutti::nccl needs a CUDA compiler.
set(TUTTI_CUDA_COMPILER FALSE)
if(nccl_AVAILABLE AND PROJECT_IS_TOP_LEVEL)
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90)
  endif()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND CUDAToolkit_NVCC_EXECUTABLE)
    set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})  # beside the toolkit that was found, if not in PATH
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    string(APPEND CMAKE_CUDA_FLAGS " -std=c++20")  # CMake 3.25 does not know that nvcc can
    set(TUTTI_CUDA_COMPILER TRUE)
  else()
    message(STATUS "Kernels, and examples that have some, are not built here: no CUDA compiler works (nvcc in PATH, CUDACXX)")
  endif()
endif()
