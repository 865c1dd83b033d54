# Compiler settings shared by every folder.
option(SLUICE_TESTS "Build the tests" ${PROJECT_IS_TOP_LEVEL})
option(SLUICE_BENCH "Build the measurements in bench/" ${PROJECT_IS_TOP_LEVEL})
option(SLUICE_FUZZ "Build the libFuzzer targets (clang only)" OFF)
option(SLUICE_WERROR "Treat warnings as errors" OFF)
option(SLUICE_PYTHON "Build the Python module, if pybind11 and Python's headers are there"
  ${PROJECT_IS_TOP_LEVEL})
option(SLUICE_UCX "Build the UCX fabric engine" ON)
option(SLUICE_SIMGRID "Build the network model over SimGrid, if SimGrid is there"
  ${PROJECT_IS_TOP_LEVEL})
set(SLUICE_STATIC "" CACHE PATH
  "Folder of static libraries to link instead of the system's shared ones, for a wheel")
set(SLUICE_TORCH "" CACHE STRING
  "Folders of the Torch packages to build the backend for; default: that of the interpreter")
set(SLUICE_SANITIZE "" CACHE STRING "Sanitizers to build with, as given to -fsanitize=")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)  # see SluiceFolder.cmake; not part of `all`
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")

find_program(SLUICE_CCACHE ccache)
if(SLUICE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache needs the sloppiness to cache files that use a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    "${CMAKE_COMMAND};-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;${SLUICE_CCACHE}")
endif()

add_library(sluice_common_options INTERFACE)
target_compile_options(sluice_common_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wsuggest-override
  -Wimplicit-fallthrough
  # Bit-exactness: a fused multiply-add rounds once where two operations round twice, so it must
  # never depend on the CPU or the build type.
  -ffp-contract=off
  # The static libraries also end up in the Python module. Programs get the option too, as one
  # precompiled header fits one choice only.
  -fPIC
  # libsluice.so exports only what is marked with SLUICE_API.
  -fvisibility=hidden -fvisibility-inlines-hidden
  # ccache needs this option to see the content of the precompiled header that a file was compiled
  # with.
  $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
  "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>"
  $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety>
  # GCC 12 warns of these in its own std::string as soon as it optimises "text" + string (GCC bug
  # 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Wno-stringop-overflow;-Wno-array-bounds>
  # To gcc, a folder compiled as one file is a main file with headers that have unnamed namespaces.
  $<$<AND:$<CXX_COMPILER_ID:GNU>,$<BOOL:${CMAKE_UNITY_BUILD}>>:-Wno-subobject-linkage>
  # clang warns of a deprecated call inside gcc's own library (in std::stable_sort), as if it were
  # ours.
  $<$<CXX_COMPILER_ID:Clang>:-Wno-deprecated-declarations>
  $<$<BOOL:${SLUICE_WERROR}>:-Werror>)
if(SLUICE_SANITIZE)
  target_compile_definitions(sluice_common_options INTERFACE SLUICE_SANITIZED)
  target_compile_options(sluice_common_options INTERFACE
    -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    # gcc sees the sanitizers' own code as uses of unset variables, also in the standard library.
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_link_options(sluice_common_options INTERFACE -fsanitize=${SLUICE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL Clang AND NOT SLUICE_FUZZ)
    # UCX redirects mmap and its like while it is loaded, and misses the way out of a sanitizer
    # linked into the program.
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-resource-dir
      OUTPUT_VARIABLE runtime OUTPUT_STRIP_TRAILING_WHITESPACE)
    target_link_options(sluice_common_options INTERFACE
      -shared-libsan "-Wl,-rpath,${runtime}/lib/linux")
  endif()
endif()

# The code reads bytes of strangers, so a fault in it must end the process and not be used: the C++
# library checks its preconditions, the stack has canaries, glibc checks the sizes of copies, and
# tables of addresses are read-only once a file is loaded. A sanitizer has checks of its own in the
# same places. tests/programs/hardened_test.py and scripts/wheel_check.py look for all of them.
target_compile_definitions(sluice_common_options INTERFACE _GLIBCXX_ASSERTIONS)
if(NOT SLUICE_SANITIZE)
  target_compile_options(sluice_common_options INTERFACE -fstack-protector-strong)
  target_link_options(sluice_common_options INTERFACE -Wl,-z,relro,-z,now)
endif()
if(SLUICE_STATIC)  # calls a function of GCC 12's library if a precondition fails
  target_link_options(sluice_common_options INTERFACE
    -Wl,--wrap=_ZSt21__glibcxx_assert_failPKciS0_S0_)
endif()
add_library(sluice_options INTERFACE)
target_link_libraries(sluice_options INTERFACE sluice_common_options)
if(NOT SLUICE_SANITIZE)
  # Some compilers bring a level of their own. Without optimisation glibc warns of any level.
  target_compile_options(sluice_options INTERFACE
    "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:SHELL:-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3>")
endif()

# Tests run once in a build: not optimised, they compile in two thirds of the time. The code that
# they test is optimised as the build type says.
add_library(sluice_test_options INTERFACE)
target_link_libraries(sluice_test_options INTERFACE sluice_common_options)
target_compile_options(sluice_test_options INTERFACE -O0)

# These options are for the files that hold vectorised loops. GCC 12 vectorises such loops only from
# -O3 on, square roots only if nobody reads errno after them, and choices between two sums only if
# nobody catches floating-point exceptions. No option changes a result. Debug builds have them too:
# nearly all time of their tests goes into these loops. GCC 12 warns at -O3 of a read in
# std::vector::insert that is not there (as above).
set(SLUICE_KERNEL_OPTIONS -fno-math-errno -fno-trapping-math -O3
  $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overread>)
