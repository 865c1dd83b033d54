# Everything comes from the system's packages (scripts/install_deps.sh); nothing is downloaded here.
# docs/dependencies.md says why each one is here.
find_package(Threads REQUIRED)
find_package(fmt 9 REQUIRED)
find_package(spdlog 1.10 REQUIRED)
find_package(nlohmann_json 3.11 REQUIRED)
find_package(CLI11 2.1 REQUIRED)
if(SLUICE_TESTS)
  find_package(GTest 1.12 REQUIRED)
  include(GoogleTest)
endif()
