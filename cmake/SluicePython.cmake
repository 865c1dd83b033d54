# sluice_link(TO FILE...): links files and folders of the sources into a folder of the build tree,
# so that it is a Python package too: PYTHONPATH=build/dev/python.
function(sluice_link to)
  file(MAKE_DIRECTORY "${to}")
  foreach(file IN LISTS ARGN)
    get_filename_component(name "${file}" NAME)
    file(CREATE_LINK "${file}" "${to}/${name}" SYMBOLIC)
  endforeach()
endfunction()

# sluice_python_program(NAME MODULE DESCRIPTION [INTERPRETER]): writes the program sluice-NAME of the
# build tree, which `sluice NAME` finds beside itself. Those of a wheel come from its pyproject.toml.
function(sluice_python_program name module description)
  set(interpreter "${Python_EXECUTABLE}")
  if(ARGC GREATER 3)
    set(interpreter "${ARGV3}")
  endif()
  set(program "${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/sluice-${name}")
  file(CONFIGURE OUTPUT "${program}" @ONLY CONTENT [[
#!@interpreter@
"""@description@"""
import sys

sys.path.insert(0, "@PROJECT_BINARY_DIR@/python")
from @module@ import main

main()
]])
  file(CHMOD "${program}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
    GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
endfunction()
