# Sets `torches` to the folders of the Torch packages to build for: SLUICE_TORCH, or that of the
# interpreter. The list is empty if there is no Torch.
set(torches ${SLUICE_TORCH})
if(NOT torches)
  execute_process(COMMAND ${Python_EXECUTABLE} -c
    "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE torches OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()

# sluice_torch_definitions(TARGET TORCH VERSION): the settings that this Torch was compiled with, and
# that code which shares its types must have.
function(sluice_torch_definitions target torch version)
  string(REGEX REPLACE "^[^0-9]*[0-9]+\\.([0-9]+).*" "\\1" minor "${version}")
  if(minor LESS 7)  # the old std::string
    target_compile_definitions(${target} PRIVATE _GLIBCXX_USE_CXX11_ABI=0)
  endif()
  # Up to 2.8 its pybind11 exchanges types only between modules that name one compiler. The names
  # are those that torch._C._PYBIND11_* report.
  if(minor LESS 9)
    set(abi_6 1011)
    set(abi_7 1016)
    set(abi_8 1018)
    target_compile_definitions(${target} PRIVATE PYBIND11_COMPILER_TYPE="_gcc"
      PYBIND11_STDLIB="_libstdcpp" PYBIND11_BUILD_ABI="_cxxabi${abi_${minor}}")
  endif()
endfunction()
