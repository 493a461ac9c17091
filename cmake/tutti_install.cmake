# Install rules: headers, CMake package files and pkg-config files. Nothing installed depends on the machine, but for
# tutti::compiled where TUTTI_COMPILED asks for it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/tutti)
set(pkgconfig_dir ${CMAKE_INSTALL_DATADIR}/pkgconfig)
file(RELATIVE_PATH TUTTI_PC_PREFIX "/${pkgconfig_dir}" "/")
string(REGEX REPLACE "/$" "" TUTTI_PC_PREFIX "${TUTTI_PC_PREFIX}")

install(TARGETS tutti EXPORT tutti-targets FILE_SET HEADERS FILE_SET texts)
install(EXPORT tutti-targets NAMESPACE tutti:: DESTINATION ${package_dir})
configure_file(cmake/tutti.pc.in tutti.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti.pc DESTINATION ${pkgconfig_dir})

get_property(components GLOBAL PROPERTY TUTTI_COMPONENTS)
set(TUTTI_COMPONENT_TABLE "set(_tutti_components ${components})\n")
foreach(component IN LISTS components)
  install(TARGETS tutti_${component} EXPORT tutti-${component}-targets FILE_SET HEADERS)
  install(EXPORT tutti-${component}-targets NAMESPACE tutti:: DESTINATION ${package_dir})

  foreach(field IN ITEMS PACKAGE LINK DEFINE PKG_CONFIG)
    get_property(${field} GLOBAL PROPERTY TUTTI_COMPONENT_${component}_${field})
  endforeach()
  list(JOIN PACKAGE " " package_arguments)
  list(JOIN LINK " " link_targets)
  string(APPEND TUTTI_COMPONENT_TABLE
    "set(_tutti_${component}_package ${package_arguments})\nset(_tutti_${component}_targets ${link_targets})\n")

  if(PKG_CONFIG)
    set(TUTTI_PC_COMPONENT ${component})
    set(TUTTI_PC_REQUIRES "${PKG_CONFIG}")
    list(TRANSFORM DEFINE PREPEND "-D")
    list(JOIN DEFINE " " TUTTI_PC_DEFINES)
    configure_file(cmake/tutti-component.pc.in tutti-${component}.pc @ONLY)
    install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti-${component}.pc DESTINATION ${pkgconfig_dir})
  endif()
endforeach()

configure_package_config_file(cmake/tutti-config.cmake.in tutti-config.cmake INSTALL_DESTINATION ${package_dir}
  NO_SET_AND_CHECK_MACRO)
set(arch_independent ARCH_INDEPENDENT)
if(TUTTI_COMPILED)
  set(arch_independent)
  install(TARGETS tutti_compiled EXPORT tutti-compiled-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT tutti-compiled-targets NAMESPACE tutti:: DESTINATION ${package_dir})
  set(compiled_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
  file(RELATIVE_PATH TUTTI_PC_PREFIX "/${compiled_pc_dir}" "/")
  string(REGEX REPLACE "/$" "" TUTTI_PC_PREFIX "${TUTTI_PC_PREFIX}")
  configure_file(cmake/tutti-compiled.pc.in tutti-compiled.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti-compiled.pc DESTINATION ${compiled_pc_dir})
endif()
write_basic_package_version_file(tutti-config-version.cmake COMPATIBILITY SameMinorVersion ${arch_independent})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tutti-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/tutti-config-version.cmake
  DESTINATION ${package_dir})
install(FILES cmake/FindNCCL.cmake DESTINATION ${package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
