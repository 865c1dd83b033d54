# `cmake --install` gives a tree that another project uses with find_package(sluice).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
get_property(folders GLOBAL PROPERTY SLUICE_FOLDERS)
install(TARGETS ${folders} EXPORT sluice
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS sluice RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(PROGRAMS python/sluice-plot DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT sluice NAMESPACE sluice:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/sluice FILE sluice-targets.cmake)
configure_package_config_file(cmake/sluice-config.cmake.in "${PROJECT_BINARY_DIR}/sluice-config.cmake"
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/sluice PATH_VARS CMAKE_INSTALL_INCLUDEDIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/sluice-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES cmake/SluiceDependencies.cmake
  "${PROJECT_BINARY_DIR}/sluice-config.cmake" "${PROJECT_BINARY_DIR}/sluice-config-version.cmake"
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
# Not built here but where it is used: see sluice-config.cmake.in.
install(DIRECTORY sluice/pytorch/libtorch DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sluice/pytorch)
# What the wheel holds besides python/sluice (pyproject.toml): the modules, and the programs.
if(SKBUILD)
  install(TARGETS sluice_core LIBRARY DESTINATION sluice COMPONENT python)
  if(TARGET sluice_c10d)
    install(TARGETS sluice_c10d LIBRARY DESTINATION sluice COMPONENT python)
  endif()
  install(TARGETS sluice RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
  install(PROGRAMS python/sluice-plot DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
endif()
