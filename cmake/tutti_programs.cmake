# What our own tools, examples, benchmarks and tests share. Nothing here reaches a user of the library.

# Warnings are for our own programs only; CMAKE_COMPILE_WARNING_AS_ERROR (on in the presets of CI) makes them errors.
add_library(tutti_warnings INTERFACE)
target_compile_options(tutti_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wsign-conversion
  -Wno-missing-field-initializers)

# tutti_require(<package> <Debian package> <option>): find_package, or say what to install or to switch off.
macro(tutti_require package debian option)
  find_package(${package} CONFIG QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "${option} needs ${package}: install it (Debian: ${debian}) or configure with -D${option}=OFF")
  endif()
endmacro()

# tutti_add_program(<target> OUTPUT_NAME <name> SOURCES <files> [LINK <targets>])
# The program lands directly in the build folder that mirrors its source folder, e.g. <build>/tools/tutti-run.
function(tutti_add_program target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT_NAME" "SOURCES;LINK")
  add_executable(${target} ${arg_SOURCES})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME ${arg_OUTPUT_NAME})
  target_link_libraries(${target} PRIVATE tutti_for_programs ${arg_LINK})
  if(openssl_AVAILABLE)
    target_link_libraries(${target} PRIVATE tutti::openssl)
  endif()
endfunction()

# tutti_runs_briefly(<target>...): compiled without optimisation where TUTTI_COMPILE_QUICKLY is on, as in the preset dev:
# it would take longer than it saves.
option(TUTTI_COMPILE_QUICKLY "Programs of ours that run for a moment only are not optimised" OFF)
function(tutti_runs_briefly)
  if(TUTTI_COMPILE_QUICKLY)
    foreach(target IN LISTS ARGN)
      target_compile_options(${target} PRIVATE -O0)
    endforeach()
  endif()
endfunction()

# tutti_folders(<variable> <glob>): the names of the folders below the current one that hold a file matching <glob>.
function(tutti_folders variable glob)
  file(GLOB files RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} CONFIGURE_DEPENDS */${glob})
  set(folders)
  foreach(file IN LISTS files)
    get_filename_component(folder ${file} DIRECTORY)
    list(APPEND folders ${folder})
  endforeach()
  list(REMOVE_DUPLICATES folders)
  set(${variable} ${folders} PARENT_SCOPE)
endfunction()
