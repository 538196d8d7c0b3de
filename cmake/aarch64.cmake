# Toolchain file for Debian's cross compiler for arm64. Packages of arm64 are in a separate
# folder, which `scripts/setup --arm` fills.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

if(NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
  set(CMAKE_SYSROOT $ENV{XDG_CACHE_HOME}/tandem/arm64/root)
else()
  set(CMAKE_SYSROOT $ENV{HOME}/.cache/tandem/arm64/root)
endif()
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# CMake would run MPI's compiler wrapper, which is a program for arm64.
set(MPI_CXX_LIB_NAMES mpi)
set(MPI_mpi_LIBRARY ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/libmpi.so.40)
set(MPI_CXX_HEADER_DIR ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/openmpi/include)

# CTest runs tests under this emulator.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${CMAKE_SYSROOT})
