# `cmake --install` gives a tree that another project uses with find_package(sluice) or pkg-config:
# the public headers, libsluice.so and the programs.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
install(TARGETS sluice_library EXPORT sluice LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS sluice RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(EXPORT sluice NAMESPACE sluice::
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/sluice FILE sluice-targets.cmake)
# The part for LibTorch is built in the project that uses it: see sluice-config.cmake.in.
install(FILES include/sluice/torch.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/sluice)
install(FILES sluice/pytorch/libtorch/torch.cc sluice/pytorch/backend/torch_device.h
  DESTINATION ${CMAKE_INSTALL_DATADIR}/sluice)
configure_package_config_file(cmake/sluice-config.cmake.in
  "${PROJECT_BINARY_DIR}/sluice-config.cmake"
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/sluice PATH_VARS CMAKE_INSTALL_DATADIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/sluice-config-version.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/sluice-config.cmake"
  "${PROJECT_BINARY_DIR}/sluice-config-version.cmake"
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
# The library folder may be lib/x86_64-linux-gnu.
file(RELATIVE_PATH prefix_from_pkgconfig "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file(cmake/sluice.pc.in "${PROJECT_BINARY_DIR}/sluice.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/sluice.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
# The wheel holds the modules and the programs besides python/sluice (pyproject.toml).
if(SKBUILD)
  add_custom_target(sluice_wheel DEPENDS sluice sluice_core)
  if(TARGET sluice_c10d)
    add_dependencies(sluice_wheel sluice_c10d)
  endif()
  if(SLUICE_STATIC)
    install(FILES "${SLUICE_STATIC}/torch-sluice.cdx.json"
      DESTINATION ${SKBUILD_METADATA_DIR}/sboms COMPONENT python)
  endif()
  install(TARGETS sluice_core LIBRARY DESTINATION sluice COMPONENT python)
  install(TARGETS sluice RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
endif()
