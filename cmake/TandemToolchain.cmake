# Compiler settings of our own targets.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Of the processor that is compiled for: x86_64, aarch64, or another.
set(TANDEM_PROCESSOR ${CMAKE_SYSTEM_PROCESSOR})
if(TANDEM_PROCESSOR MATCHES "^(amd64|AMD64)$")
  set(TANDEM_PROCESSOR x86_64)
elseif(TANDEM_PROCESSOR STREQUAL arm64)
  set(TANDEM_PROCESSOR aarch64)
endif()
set(CMAKE_CXX_STANDARD 17 CACHE STRING "C++ standard (a newer LibTorch raises it)")
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)

# GCC tidies its memory from 128 MB on; from half a gigabyte on takes 7 % less time.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options("SHELL:--param ggc-min-heapsize=500000")
endif()

# Elsewhere compilers fuse multiplications with additions unless told not to; on x86-64
# they have no instruction for it without further flags.
if(NOT TANDEM_PROCESSOR STREQUAL x86_64)
  add_compile_options(-ffp-contract=off)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # What one checkout compiled serves another: objects contain no path of it.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

# tandem_precompile(TARGET HEADER...): GCC reads these once for all sources of a target,
# most of which include them: LibTorch's take 2 to 5 of the 4 to 8 seconds of a source.
# Sources with COMPILE_OPTIONS of their own need SKIP_PRECOMPILE_HEADERS. Other compilers
# read each source as it stands, so an #include that is missing is found there.
# tandem_precompile(TARGET REUSE_FROM OTHER): what was read for OTHER, whose options are the same.
function(tandem_precompile target)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    return()
  endif()
  if(ARGV1 STREQUAL REUSE_FROM)
    target_precompile_headers(${target} ${ARGN})
  else()
    target_precompile_headers(${target} PRIVATE ${ARGN})
  endif()
endfunction()

add_library(tandem_warnings INTERFACE)
target_compile_options(tandem_warnings INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion
  $<$<BOOL:${TANDEM_WERROR}>:-Werror>)

if(TANDEM_SANITIZE)
  # Undefined behaviour ends the program instead of printing a line.
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
endif()

# Unused libraries cost start-up time: a rank links 286 of them as it is.
add_link_options(-Wl,--as-needed)
