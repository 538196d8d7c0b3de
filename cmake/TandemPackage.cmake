# Configures CPack for the Debian packages `tandem` and `libtandem-dev`. scripts/package runs
# it in the preset `package`.

# Version and maintainer are those of the newest entry of packaging/changelog. The entry's
# revision sorts before -1, the first revision of an official Debian package.
set(changelog ${PROJECT_SOURCE_DIR}/packaging/changelog)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  ${changelog} ${PROJECT_SOURCE_DIR}/CHANGELOG.md)
file(READ ${changelog} text)
if(NOT text MATCHES "^tandem \\(([^)]+)-([^)-]+)\\)" OR
   NOT CMAKE_MATCH_1 STREQUAL PROJECT_VERSION)
  message(FATAL_ERROR
    "packaging/changelog does not begin with version ${PROJECT_VERSION}; add an entry for it")
endif()
set(CPACK_DEBIAN_PACKAGE_RELEASE ${CMAKE_MATCH_2})
string(REGEX MATCH "\n -- ([^\n]+>)  " ignored "${text}")
set(CPACK_PACKAGE_CONTACT ${CMAKE_MATCH_1})

foreach(pair "changelog.Debian:${changelog}" "changelog:${PROJECT_SOURCE_DIR}/CHANGELOG.md")
  string(REPLACE ":" ";" pair ${pair})
  list(GET pair 0 name)
  list(GET pair 1 file)
  execute_process(COMMAND gzip -9nc ${file} COMMAND_ERROR_IS_FATAL ANY
    OUTPUT_FILE ${CMAKE_CURRENT_BINARY_DIR}/${name}.gz)
endforeach()
foreach(component_package runtime:tandem development:libtandem-dev)
  string(REPLACE ":" ";" component_package ${component_package})
  list(GET component_package 0 component)
  list(GET component_package 1 package)
  install(FILES ${PROJECT_SOURCE_DIR}/packaging/copyright
                ${CMAKE_CURRENT_BINARY_DIR}/changelog.Debian.gz
                ${CMAKE_CURRENT_BINARY_DIR}/changelog.gz
          DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package} COMPONENT ${component})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_CURRENT_LIST_DIR}/TandemStrip.cmake)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
# Without this empty value, CPack would put its summary before both descriptions.
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME tandem)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
# LibTorch also accepts the reference BLAS, which is many times slower.
set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libopenblas0-pthread | libopenblas0 | libmkl-rt")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "ca-certificates, openmpi-bin")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SUGGESTS libtandem-dev)
set(CPACK_DEBIAN_RUNTIME_DESCRIPTION
"distributed training of neural networks with LibTorch
Trains on several processes, threads or hosts. A recipe describes a run:
data parallel, local SGD, Hogwild, parameter server or pipeline. The program
also compares recipes, predicts their speed, saves checkpoints that Python
reads, and starts other LibTorch programs as torchrun does.")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libtandem-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
# tandemConfig.cmake and tandem.pc need these packages. The static library works only with
# the LibTorch that it was compiled against.
string(REGEX MATCH "^[0-9]+[.]([0-9]+)" torch ${Torch_VERSION})
math(EXPR next "${CMAKE_MATCH_1} + 1")
string(REGEX REPLACE "[0-9]+$" ${next} next_torch ${torch})
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
"libtorch-dev (>= ${torch}), libtorch-dev (<< ${next_torch}~), libgloo-dev, libdnnl-dev, \
libfmt-dev, libspdlog-dev, libtomlplusplus-dev, nlohmann-json3-dev, zlib1g-dev, \
libdeflate-dev, libzip-dev, libssl-dev, libpng-dev, libjpeg62-turbo-dev")
if(MPI_CXX_FOUND)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libopenmpi-dev")
endif()
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_RECOMMENDS "libopenblas0-pthread, tandem")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "cmake, pkg-config")
set(CPACK_DEBIAN_DEVELOPMENT_DESCRIPTION
"distributed training of neural networks - development files
Headers, static libraries and examples of tandem, to build LibTorch programs
that train on several ranks. find_package(tandem) and pkg-config find them.")

include(CPack)
