# vcpkg builds a port again when a file of the port has changed. This one builds the checkout that it lies in, so a file of
# the port says which sources those are:
#   cmake -P stamp.cmake    writes it; the portfile refuses any other sources
get_filename_component(checkout "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)
file(GLOB_RECURSE sources RELATIVE "${checkout}" "${checkout}/include/*" "${checkout}/src/*" "${checkout}/cmake/*"
  "${checkout}/tools/*")
list(SORT sources)
set(text)
list(APPEND sources CMakeLists.txt LICENSE)
foreach(source IN LISTS sources)
  file(SHA256 "${checkout}/${source}" hash)
  string(APPEND text "${hash} ${source}\n")
endforeach()
string(SHA256 hash "${text}")

set(stamp "${CMAKE_CURRENT_LIST_DIR}/sources.sha256")
if(NOT DEFINED PORT)
  file(WRITE "${stamp}" "${hash}\n")
  return()
endif()
set(found)
if(EXISTS "${stamp}")
  file(STRINGS "${stamp}" found)
endif()
if(NOT found STREQUAL hash)
  message(FATAL_ERROR "vcpkg cannot see whether the sources of tutti have changed. Run this first, and after every change "
    "of the checkout:\n  cmake -P ${CMAKE_CURRENT_LIST_DIR}/stamp.cmake")
endif()
