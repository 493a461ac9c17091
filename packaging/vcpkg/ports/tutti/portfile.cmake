# An overlay port: it builds the checkout that it lies in.
#   cmake -P <checkout>/packaging/vcpkg/ports/tutti/stamp.cmake
#   vcpkg install tutti --overlay-ports=<checkout>/packaging/vcpkg/ports
include("${CMAKE_CURRENT_LIST_DIR}/stamp.cmake")
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../../.." ABSOLUTE)

if(NOT "compiled" IN_LIST FEATURES)
  set(VCPKG_BUILD_TYPE release)  # header-only
endif()

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  FEATURES
    compiled TUTTI_COMPILED
    tools TUTTI_BUILD_TOOLS
)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${FEATURE_OPTIONS}
    -DTUTTI_BUILD_TESTS=OFF
    -DTUTTI_BUILD_BENCH=OFF
    -DTUTTI_BUILD_EXAMPLES=OFF
  OPTIONS_DEBUG
    -DTUTTI_BUILD_TOOLS=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME tutti CONFIG_PATH share/cmake/tutti)
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include" "${CURRENT_PACKAGES_DIR}/debug/share")
if(NOT "openssl" IN_LIST FEATURES AND NOT "tools" IN_LIST FEATURES)
  file(REMOVE "${CURRENT_PACKAGES_DIR}/share/pkgconfig/tutti-openssl.pc")  # it would ask for a port that is not there
endif()
vcpkg_fixup_pkgconfig()

if("tools" IN_LIST FEATURES)
  file(GLOB programs RELATIVE "${CURRENT_PACKAGES_DIR}/bin" "${CURRENT_PACKAGES_DIR}/bin/*")
  vcpkg_copy_tools(TOOL_NAMES ${programs} AUTO_CLEAN)
endif()

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
