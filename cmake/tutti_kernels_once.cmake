# The kernels of the named reductions, for each type and instruction set, compiled once for all programs of ours: every
# file that reduces would compile those of its own types again, a fifth of all that there is to compile. Files of who
# links tutti_kernels_once are told that they are elsewhere.
option(TUTTI_KERNELS_ONCE "Compile the kernels of reductions once for all programs of ours" OFF)
if(NOT TUTTI_KERNELS_ONCE)
  add_library(tutti_kernels_once INTERFACE)
  return()
endif()

set(kernels)
foreach(bits IN ITEMS 8 16 32 64)
  foreach(op IN ITEMS sum prod min max band bor bxor)
    list(APPEND kernels "std::uint${bits}_t, ${op}_op")
  endforeach()
  list(APPEND kernels "std::int${bits}_t, min_op" "std::int${bits}_t, max_op")
endforeach()
foreach(type IN ITEMS float double float16 bfloat16 float8_e4m3 float8_e5m2)
  foreach(op IN ITEMS sum mean prod min max)
    list(APPEND kernels "${type}, ${op}_op")
  endforeach()
endforeach()
list(TRANSFORM kernels PREPEND "template fold_kernel fold_kernel_for<")
list(TRANSFORM kernels APPEND ">(instruction_set) noexcept")
list(TRANSFORM kernels PREPEND "extern " OUTPUT_VARIABLE elsewhere)
list(JOIN kernels ";\n" kernels)
list(JOIN elsewhere ";\n" elsewhere)
string(CONCAT head "#include <tutti/core/float8.hpp>\n#include <tutti/core/folder.hpp>\n"
  "#include <tutti/core/half.hpp>\n\nnamespace tutti::detail {\n\n")
set(folder ${PROJECT_BINARY_DIR}/kernels_once)
file(CONFIGURE OUTPUT ${folder}/kernels.hpp CONTENT "#pragma once\n${head}${elsewhere};\n\n}\n" @ONLY)
file(CONFIGURE OUTPUT ${folder}/kernels.cpp CONTENT "${head}${kernels};\n\n}\n" @ONLY)

add_library(tutti_kernels_once STATIC ${folder}/kernels.cpp)
target_link_libraries(tutti_kernels_once PUBLIC tutti::tutti)
target_compile_options(tutti_kernels_once INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:SHELL:-include ${folder}/kernels.hpp>")
