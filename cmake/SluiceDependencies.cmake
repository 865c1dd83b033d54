# Everything comes from the system's packages (scripts/install_deps.sh); nothing is downloaded here.
# docs/dependencies.md says why each one is here. Installed too: find_package(sluice) looks for the same.
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(sodium REQUIRED IMPORTED_TARGET libsodium>=1.0.18)
if(SLUICE_TESTS)
  find_package(GTest 1.12 REQUIRED)
  find_package(rapidcheck REQUIRED)
  include(GoogleTest)
endif()
