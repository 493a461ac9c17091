# FindNCCL: NCCL and the CUDA runtime that goes with it, as the imported target NCCL::nccl.
#
# NCCL has CMake files of its own only from 2.29.7 on. Looks in NCCL_ROOT, beside the CUDA toolkit, in a conda
# environment, and where CMake always looks. Needs no CUDA compiler. Sets NCCL_FOUND, NCCL_VERSION and, where something is
# missing, NCCL_REASON.
set(NCCL_REASON "")
find_package(CUDAToolkit 11.8 QUIET)
if(NOT TARGET CUDA::cudart)
  set(NCCL_REASON "no CUDA toolkit 11.8 or newer was found (nvcc in PATH, or CUDAToolkit_ROOT)")
endif()

find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} ENV NCCL_ROOT ${CUDAToolkit_INCLUDE_DIRS} ENV CONDA_PREFIX
  PATH_SUFFIXES include)
find_library(NCCL_LIBRARY nccl HINTS ${NCCL_ROOT} ENV NCCL_ROOT ${CUDAToolkit_LIBRARY_DIR} ENV CONDA_PREFIX
  PATH_SUFFIXES lib lib64)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
if(NOT NCCL_REASON AND NOT (NCCL_INCLUDE_DIR AND NCCL_LIBRARY))
  set(NCCL_REASON "no nccl.h with libnccl.so was found (Debian package of NVIDIA: libnccl-dev, or NCCL_ROOT)")
endif()

if(NCCL_INCLUDE_DIR)
  file(STRINGS "${NCCL_INCLUDE_DIR}/nccl.h" nccl_lines REGEX "^#define NCCL_(MAJOR|MINOR|PATCH) [0-9]+$")
  list(TRANSFORM nccl_lines REPLACE ".* ([0-9]+)$" "\\1")
  list(JOIN nccl_lines "." NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR CUDAToolkit_FOUND
  VERSION_VAR NCCL_VERSION REASON_FAILURE_MESSAGE "${NCCL_REASON}")
if(NOT NCCL_FOUND AND NOT NCCL_REASON)
  set(NCCL_REASON "NCCL ${NCCL_VERSION} is too old")
endif()

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES IMPORTED_LOCATION "${NCCL_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${NCCL_INCLUDE_DIR}" INTERFACE_LINK_LIBRARIES CUDA::cudart)
endif()
