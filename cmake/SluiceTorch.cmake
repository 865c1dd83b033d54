# Sets `torches` to the folders of the Torch packages to build for: SLUICE_TORCH, or that of the
# interpreter. The list is empty if there is no Torch.
set(torches ${SLUICE_TORCH})
if(NOT torches)
  execute_process(COMMAND ${Python_EXECUTABLE} -c
    "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE torches OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
