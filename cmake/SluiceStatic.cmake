# -DSLUICE_STATIC=DIR links the foreign libraries from the archives in DIR/lib, for a wheel
# (scripts/static_libraries.sh makes them). Only the link differs: headers and options stay, so the
# compiler's cache has the objects of an ordinary build.
function(sluice_take_archives target)
  list(TRANSFORM ARGN PREPEND "${SLUICE_STATIC}/lib/lib")
  list(TRANSFORM ARGN APPEND ".a")
  foreach(archive IN LISTS ARGN)
    if(NOT EXISTS "${archive}")
      message(FATAL_ERROR "${archive} is missing; run scripts/static_libraries.sh")
    endif()
  endforeach()
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "INTERFACE_LIBRARY")
    list(POP_FRONT ARGN first)
    string(TOUPPER "${CMAKE_BUILD_TYPE}" config)
    set_target_properties(${target} PROPERTIES IMPORTED_LOCATION_${config} "${first}")
    return()
  endif()
  set_property(TARGET ${target} PROPERTY INTERFACE_LINK_LIBRARIES ${ARGN})
endfunction()

sluice_take_archives(fmt::fmt fmt)
sluice_take_archives(spdlog::spdlog spdlog)
sluice_take_archives(OpenSSL::SSL ssl)
sluice_take_archives(OpenSSL::Crypto crypto)
sluice_take_archives(PkgConfig::sodium sodium)

# A wheel runs with the C++ library of GCC 11. spdlog asks for one function of GCC 12's, and code with
# _GLIBCXX_ASSERTIONS for another (SluiceOptions.cmake).
add_library(sluice_older_library STATIC "${PROJECT_SOURCE_DIR}/cmake/older_library.cc")
set_target_properties(sluice_older_library PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_link_libraries(sluice_common_options INTERFACE sluice_older_library)
set_property(TARGET spdlog::spdlog APPEND PROPERTY INTERFACE_LINK_LIBRARIES sluice_older_library)
set_property(TARGET spdlog::spdlog APPEND PROPERTY INTERFACE_LINK_OPTIONS
  "-Wl,--wrap=_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE")

# `sluice --version` prints this list.
file(STRINGS "${SLUICE_STATIC}/libraries.txt" lines)
list(TRANSFORM lines REPLACE "^([^ ]+ [^ ]+).*" "\\1")
list(JOIN lines ", " SLUICE_LIBRARIES_INSIDE)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${SLUICE_STATIC}/libraries.txt")
