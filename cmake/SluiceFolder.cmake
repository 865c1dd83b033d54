# One target per folder: sluice_folder(queue USES base plan LINKS OpenSSL::SSL)
#   USES        folders of ours it stands on
#   LINKS       foreign libraries its .cc files need; LINKS_PUBLIC those that its headers need too
#   THREADS     its tests have several threads, so the thread sanitizer runs them
#   TEST_LINKS  libraries that only the tests need
#   SOURCES     the .cc files of the library sluice_<name>, without tests; default: all of them
#   WITHOUT     .cc files that belong to another target
#   INSIDE      folders inside it whose files belong to the same target
# Files *_test.cc are built into one program, sluice_<name>_test. A folder may lie inside another
# (fabric/tcp is named fabric_tcp). Headers are found by themselves, also those in testing/, which
# hold fixtures for tests. The target sluice_<name>_verify_interface_header_sets compiles each alone.
function(sluice_folder name)
  cmake_parse_arguments(arg "THREADS" "" "SOURCES;WITHOUT;INSIDE;USES;LINKS;LINKS_PUBLIC;TEST_LINKS"
    ${ARGN})
  set(target sluice_${name})
  list(TRANSFORM arg_USES PREPEND sluice_)
  foreach(used IN LISTS arg_USES)
    if(NOT TARGET ${used})
      message(FATAL_ERROR "${target} goes up: ${used} does not stand below it in sluice/CMakeLists.txt")
    endif()
  endforeach()
  set(inside ${arg_INSIDE})
  list(TRANSFORM inside APPEND "/*.cc" OUTPUT_VARIABLE sources_inside)
  list(TRANSFORM inside APPEND "/*.h" OUTPUT_VARIABLE headers_inside)
  file(GLOB all RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS *.cc ${sources_inside})
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  set(sources ${all})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  if(arg_WITHOUT)
    list(REMOVE_ITEM sources ${arg_WITHOUT})
    list(REMOVE_ITEM tests ${arg_WITHOUT})
  endif()
  if(arg_SOURCES)
    set(sources ${arg_SOURCES})
    set(tests)
  endif()
  if(sources)
    add_library(${target} STATIC ${sources})
    target_link_libraries(${target}
      PUBLIC ${arg_USES} ${arg_LINKS_PUBLIC} PRIVATE ${arg_LINKS} sluice_options)
    target_precompile_headers(${target} REUSE_FROM sluice_precompiled)
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${arg_USES} ${arg_LINKS_PUBLIC} ${arg_LINKS})
    set(scope INTERFACE)
  endif()
  target_compile_features(${target} ${scope} cxx_std_20)
  file(GLOB headers CONFIGURE_DEPENDS *.h ${headers_inside})
  if(NOT EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/testing/CMakeLists.txt")
    file(GLOB fixtures CONFIGURE_DEPENDS testing/*.h)
  endif()
  target_sources(${target} ${scope}
    FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${headers} ${fixtures})
  target_include_directories(${target} ${scope} "${PROJECT_SOURCE_DIR}/include")
  # Runs at the end of the folder's CMakeLists.txt, when the options of single files are known.
  cmake_language(EVAL CODE
    "cmake_language(DEFER CALL sluice_leave_out_of_precompiling ${sources} ${tests})")
  # Where there is one thread the thread sanitizer finds nothing, and takes minutes to build.
  if(SLUICE_TESTS AND tests AND (arg_THREADS OR NOT SLUICE_SANITIZE STREQUAL "thread"))
    add_executable(${target}_test ${tests})
    target_link_libraries(${target}_test
      PRIVATE ${target} sluice_test_options GTest::gmock GTest::gtest_main ${arg_TEST_LINKS})
    target_precompile_headers(${target}_test REUSE_FROM sluice_precompiled_test)
    gtest_discover_tests(${target}_test TEST_PREFIX ${name}. NO_PRETTY_VALUES
      PROPERTIES TIMEOUT 120 DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
