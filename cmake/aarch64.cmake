# A toolchain file: Debian's cross compiler for arm64, and arm64's packages in a folder
# of their own, which `scripts/setup --arm` fills.

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

# Its compiler wrapper, which CMake would ask, does not run here.
set(MPI_CXX_LIB_NAMES mpi)
set(MPI_mpi_LIBRARY ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/libmpi.so.40)
set(MPI_CXX_HEADER_DIR ${CMAKE_SYSROOT}/usr/lib/aarch64-linux-gnu/openmpi/include)

# CTest runs the tests under it.
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${CMAKE_SYSROOT})
