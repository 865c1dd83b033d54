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
sluice_take_archives(PkgConfig::prometheus
  prometheus-cpp-pull prometheus-cpp-core civetweb-cpp civetweb z)

# A wheel runs with the C++ library of GCC 11. spdlog asks for one function of GCC 12's.
add_library(sluice_older_wait STATIC "${PROJECT_SOURCE_DIR}/cmake/older_wait.cc")
set_target_properties(sluice_older_wait PROPERTIES POSITION_INDEPENDENT_CODE ON)
set_property(TARGET spdlog::spdlog APPEND PROPERTY INTERFACE_LINK_LIBRARIES sluice_older_wait)
set_property(TARGET spdlog::spdlog APPEND PROPERTY INTERFACE_LINK_OPTIONS
  "-Wl,--wrap=_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE")

# `sluice --version` prints this list.
file(STRINGS "${SLUICE_STATIC}/libraries.txt" lines)
list(TRANSFORM lines REPLACE "^([^ ]+ [^ ]+).*" "\\1")
list(JOIN lines ", " SLUICE_LIBRARIES_INSIDE)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${SLUICE_STATIC}/libraries.txt")
