# tutti_add_component(<name> HEADERS <globs below include/tutti> PACKAGE <arguments of find_package>
#                     LINK <imported targets> [DEFINE <definitions>] [PKG_CONFIG <requirement>]
#                     [NVCC_OPTIONS <options>])
#
# Headers with NVCC_OPTIONS are for CUDA compilers only.
# Declares tutti::<name>, an interface target with its own headers and its own export set, so that the installed tree is
# the same whether the package was found here or not. Sets <name>_AVAILABLE in the caller when it was.
#
# A project that includes this one names the components whose packages are looked for in TUTTI_COMPONENTS.
function(tutti_add_component name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PKG_CONFIG" "HEADERS;PACKAGE;LINK;DEFINE;NVCC_OPTIONS")

  list(GET arg_LINK 0 first_target)
  if(NOT TARGET ${first_target} AND (PROJECT_IS_TOP_LEVEL OR name IN_LIST TUTTI_COMPONENTS))
    list(PREPEND CMAKE_MODULE_PATH "${PROJECT_SOURCE_DIR}/cmake")  # for packages without files of their own
    find_package(${arg_PACKAGE} QUIET)
  endif()
  list(GET arg_PACKAGE 0 package)
  set(${package}_REASON "${${package}_REASON}" PARENT_SCOPE)
  set(available FALSE)
  if(TARGET ${first_target})
    set(available TRUE)
  endif()
  set(${name}_AVAILABLE ${available} PARENT_SCOPE)
  if(name IN_LIST TUTTI_COMPONENTS AND NOT available)
    list(JOIN arg_PACKAGE " " wanted)
    message(FATAL_ERROR "tutti's component '${name}' needs ${first_target} (find_package(${wanted}))")
  endif()

  list(TRANSFORM arg_HEADERS PREPEND "${PROJECT_SOURCE_DIR}/include/tutti/" OUTPUT_VARIABLE globs)
  file(GLOB headers CONFIGURE_DEPENDS ${globs})
  set_property(GLOBAL APPEND PROPERTY TUTTI_COMPONENT_HEADERS ${headers})

  set(target tutti_${name})
  add_library(${target} INTERFACE)
  add_library(tutti::${name} ALIAS ${target})
  target_sources(${target} INTERFACE FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${headers})
  target_link_libraries(${target} INTERFACE tutti ${arg_LINK})
  target_compile_definitions(${target} INTERFACE ${arg_DEFINE})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  if(arg_NVCC_OPTIONS)
    target_compile_options(${target} INTERFACE "$<$<COMPILE_LANG_AND_ID:CUDA,NVIDIA>:${arg_NVCC_OPTIONS}>")
  elseif(available AND headers)
    set_target_properties(${target} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ${PROJECT_IS_TOP_LEVEL})
  endif()

  set_property(GLOBAL APPEND PROPERTY TUTTI_COMPONENTS ${name})
  foreach(field IN ITEMS PACKAGE LINK DEFINE PKG_CONFIG)
    set_property(GLOBAL PROPERTY TUTTI_COMPONENT_${name}_${field} ${arg_${field}})
  endforeach()
endfunction()
