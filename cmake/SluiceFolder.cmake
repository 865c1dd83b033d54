# One target per folder: sluice_folder(queue SOURCES ... TESTS ... USES base plan LINKS OpenSSL::SSL)
#   SOURCES     the .cc files of the library sluice_<name>
#   TESTS       the *_test.cc files, built into one program sluice_<name>_test
#   USES        folders of ours it stands on
#   LINKS       foreign libraries its .cc files need; LINKS_PUBLIC those that its headers need too
#   TEST_LINKS  what only the tests need
# A folder may lie inside another (fabric/tcp is named fabric_tcp).
# Its headers are found by themselves. scripts/headers.py compiles each one alone, and, slower and with gcc, the target
# all_verify_interface_header_sets.
function(sluice_folder name)
  cmake_parse_arguments(arg "" "" "SOURCES;TESTS;USES;LINKS;LINKS_PUBLIC;TEST_LINKS" ${ARGN})
  set(target sluice_${name})
  list(TRANSFORM arg_USES PREPEND sluice_)
  if(arg_SOURCES)
    add_library(${target} STATIC ${arg_SOURCES})
    target_link_libraries(${target} PUBLIC ${arg_USES} ${arg_LINKS_PUBLIC} PRIVATE ${arg_LINKS} sluice_options)
    target_precompile_headers(${target} REUSE_FROM sluice_precompiled)
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    target_link_libraries(${target} INTERFACE ${arg_USES} ${arg_LINKS_PUBLIC} ${arg_LINKS})
    set(scope INTERFACE)
  endif()
  target_compile_features(${target} ${scope} cxx_std_20)
  file(GLOB headers CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.h")
  target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS "${PROJECT_SOURCE_DIR}" FILES ${headers})
  target_include_directories(${target} ${scope} "${PROJECT_SOURCE_DIR}/include")
  # At the end of the folder's CMakeLists.txt, when the options of single files are known.
  cmake_language(EVAL CODE "cmake_language(DEFER CALL sluice_leave_out_of_precompiling ${arg_SOURCES} ${arg_TESTS})")
  if(SLUICE_TESTS AND arg_TESTS)
    add_executable(${target}_test ${arg_TESTS})
    target_link_libraries(${target}_test PRIVATE ${target} sluice_test_options GTest::gmock GTest::gtest_main ${arg_TEST_LINKS})
    target_precompile_headers(${target}_test REUSE_FROM sluice_precompiled_test)
    gtest_discover_tests(${target}_test TEST_PREFIX ${name}. NO_PRETTY_VALUES PROPERTIES TIMEOUT 120 DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
