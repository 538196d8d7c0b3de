# Installs two components: runtime (the program), and development (files for
# find_package(tandem) and pkg-config). TandemPackage makes a package of each.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Users start workers only through the program, so the worker is not in PATH.
install(TARGETS tandem_program
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
set(worker tandem_worker)
if(TARGET tandem_cuda)
  list(APPEND worker tandem_cuda)
endif()
install(TARGETS ${worker}
        RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/tandem COMPONENT runtime
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/tandem COMPONENT runtime)
tandem_unused_folder(unused)
if(unused)
  install(DIRECTORY ${unused}
          DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/tandem COMPONENT runtime)
  set_property(TARGET tandem_worker APPEND PROPERTY INSTALL_RPATH "$ORIGIN/unused")
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/recipes
        DESTINATION ${CMAKE_INSTALL_DATADIR}/tandem COMPONENT runtime)
# So the program in a build tree finds recipes as an installed program does.
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/tandem)
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/recipes
     ${CMAKE_BINARY_DIR}/share/tandem/recipes SYMBOLIC)

install(TARGETS tandem_base tandem_lib tandem_torch tandem_warnings
        EXPORT tandemTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tandem
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development
        FILES_MATCHING PATTERN "*.h"
        # The folder `ops` contains no headers, so it would be installed empty.
        PATTERN ops EXCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples
        DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/libtandem-dev COMPONENT development
        USE_SOURCE_PERMISSIONS)
install(EXPORT tandemTargets NAMESPACE tandem::
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tandem COMPONENT development)
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/tandemConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/tandemConfig.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
write_basic_package_version_file(
  ${CMAKE_CURRENT_BINARY_DIR}/tandemConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
# With this export, find_package(tandem) works with this build, without an installation.
export(EXPORT tandemTargets NAMESPACE tandem::
       FILE ${CMAKE_CURRENT_BINARY_DIR}/tandemTargets.cmake)
configure_file(${CMAKE_CURRENT_LIST_DIR}/TandemUnused.cmake
               ${CMAKE_CURRENT_BINARY_DIR}/TandemUnused.cmake COPYONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tandemConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/tandemConfigVersion.cmake
              ${CMAKE_CURRENT_LIST_DIR}/TandemUnused.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tandem COMPONENT development)

# tandem.pc is not installed for a LibTorch from PyPI, because its flags do not find that
# LibTorch.
if(NOT TANDEM_TORCH_PYTHON)
  file(RELATIVE_PATH TANDEM_PC_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
  set(TANDEM_PC_REQUIRES
      "fmt spdlog tomlplusplus libcrypto zlib libdeflate libzip libpng libjpeg")
  if(MPI_CXX_FOUND)
    string(APPEND TANDEM_PC_REQUIRES " mpi-c")
  endif()
  set(TANDEM_PC_CFLAGS "-DUSE_C10D_GLOO -DUSE_DISTRIBUTED")
  if(CMAKE_CXX_STANDARD GREATER 17)
    string(PREPEND TANDEM_PC_CFLAGS "-std=c++${CMAKE_CXX_STANDARD} ")
  endif()
  foreach(folder IN LISTS TORCH_INCLUDE_DIRS)
    if(NOT folder STREQUAL "/usr/include")
      string(APPEND TANDEM_PC_CFLAGS " -I${folder}")
    endif()
  endforeach()
  set(TANDEM_PC_LIBS "-ltorch -ltorch_cpu -lc10 -lgloo")
  configure_file(${PROJECT_SOURCE_DIR}/packaging/tandem.pc.in
                 ${CMAKE_CURRENT_BINARY_DIR}/tandem.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tandem.pc
          DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endif()

# Manual pages and completion are made from the output of the built program (--describe).
find_package(Python3 3.11 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT CMAKE_CROSSCOMPILING AND NOT TANDEM_SANITIZE)
  set(pages ${PROJECT_SOURCE_DIR}/packaging/pages)
  set(made ${CMAKE_CURRENT_BINARY_DIR}/pages)
  file(GLOB sources CONFIGURE_DEPENDS ${pages}/*.py ${pages}/notes.toml)
  add_custom_command(OUTPUT ${made}.stamp
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${made}
    COMMAND ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1
            ${Python3_EXECUTABLE} ${pages} $<TARGET_FILE:tandem_program> ${made}
    COMMAND ${CMAKE_COMMAND} -E touch ${made}.stamp
    DEPENDS ${sources} tandem_program tandem_worker VERBATIM)
  add_custom_target(tandem_pages ALL DEPENDS ${made}.stamp)
  install(DIRECTORY ${made}/ DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT runtime)
endif()
