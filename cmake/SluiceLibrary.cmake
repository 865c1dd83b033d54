# libsluice.so, the public API (include/sluice): everything below it is inside and hidden.
# cmake/exported_symbols.txt lists what it exports; tests/install/install_test.sh compares.
file(CONFIGURE OUTPUT sluice_library.cc
  CONTENT "// Only here because a library needs a file: the folders are linked in whole.\n")
add_library(sluice_library SHARED "${CMAKE_CURRENT_BINARY_DIR}/sluice_library.cc")
add_library(sluice::sluice ALIAS sluice_library)
set_target_properties(sluice_library PROPERTIES OUTPUT_NAME sluice EXPORT_NAME sluice
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  LINK_DEPENDS "${PROJECT_SOURCE_DIR}/cmake/exported.map")
set(public_headers config.h device.h job.h model.h observer.h session.h sluice.h status.h)
list(TRANSFORM public_headers PREPEND "${PROJECT_SOURCE_DIR}/include/sluice/")
target_sources(sluice_library
  PUBLIC FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}/include" FILES ${public_headers})
target_compile_features(sluice_library PUBLIC cxx_std_20)
target_link_libraries(sluice_library
  PRIVATE sluice_options $<LINK_LIBRARY:WHOLE_ARCHIVE,sluice_session>)
target_link_options(sluice_library
  PRIVATE "-Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exported.map")
if(NOT SLUICE_SANITIZE)  # a sanitizer's own functions are in the program
  target_link_options(sluice_library PRIVATE -Wl,--no-undefined)
endif()
