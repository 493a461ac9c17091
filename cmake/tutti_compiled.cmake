# tutti::compiled: what does not depend on a user's types, compiled once. Who links it compiles a tenth of what the headers
# alone would take. Nothing is built unless it is linked, or TUTTI_COMPILED asks for it and for its installation.
option(TUTTI_COMPILED "Build and install tutti::compiled beside the headers" OFF)

add_library(tutti_compiled STATIC EXCLUDE_FROM_ALL src/tutti.cpp)
add_library(tutti::compiled ALIAS tutti_compiled)
target_link_libraries(tutti_compiled PUBLIC tutti)
target_compile_definitions(tutti_compiled PUBLIC TUTTI_SEPARATE_COMPILATION)
target_compile_options(tutti_compiled PRIVATE $<$<CONFIG:>:-O2>)  # where no build type was chosen
# Errors name the library's own calls as <tutti/...>, not by a path of the machine that built it.
target_compile_options(tutti_compiled PRIVATE "-ffile-prefix-map=${PROJECT_SOURCE_DIR}/include/=")
set_target_properties(tutti_compiled PROPERTIES EXPORT_NAME compiled OUTPUT_NAME tutti)
if(TUTTI_COMPILED)
  set_target_properties(tutti_compiled PROPERTIES EXCLUDE_FROM_ALL FALSE)
endif()

# What our own programs and tests link.
option(TUTTI_LINK_COMPILED "Link tutti::compiled to programs and tests of ours, instead of the headers alone" OFF)
add_library(tutti_for_programs INTERFACE)
if(TUTTI_LINK_COMPILED)
  target_link_libraries(tutti_for_programs INTERFACE tutti_compiled)
else()
  target_link_libraries(tutti_for_programs INTERFACE tutti)
endif()
