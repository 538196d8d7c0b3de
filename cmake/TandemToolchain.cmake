# Compiler settings of all targets.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
# Target processor: x86_64, aarch64, or another.
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

# By default, GCC starts garbage collection at 128 MB. Starting at 500 MB saves 7 % of the
# compile time.
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  add_compile_options("SHELL:--param ggc-min-heapsize=500000")
endif()

# Fused multiply-adds would change results. On x86-64, the compiler uses none without
# further flags.
if(NOT TANDEM_PROCESSOR STREQUAL x86_64)
  add_compile_options(-ffp-contract=off)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Several checkouts share the cache, because objects contain no path of a checkout.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

# tandem_precompile(TARGET HEADER...) precompiles headers that most sources of a target
# include: LibTorch's headers take 2 to 5 of the 4 to 8 seconds that compiling a source
# takes. Sources with their own COMPILE_OPTIONS need SKIP_PRECOMPILE_HEADERS. The preset tidy
# precompiles nothing, so it finds a missing #include. tandem_precompile(TARGET REUSE_FROM
# OTHER) uses the precompiled headers of OTHER, whose compile options must be the same.
function(tandem_precompile target)
  if(CMAKE_CXX_CLANG_TIDY)
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
  # Undefined behavior ends the program instead of printing a line.
  # The address sanitizer finds null pointers and accesses beyond an object, too. Those
  # checks and the one of virtual tables take a seventh of the compile time.
  if(TANDEM_SANITIZE MATCHES address)
    set(without -fno-sanitize=null,vptr,object-size)
    if(CMAKE_CXX_COMPILER_ID STREQUAL Clang)
      add_compile_definitions(__SANITIZE_ADDRESS__)  # GCC defines it.
    endif()
  endif()
  add_compile_options(-fsanitize=${TANDEM_SANITIZE} ${without} -fno-sanitize-recover=all
                      -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${TANDEM_SANITIZE})
endif()

# Each library costs start-up time, and a rank already loads 286 libraries.
add_link_options(-Wl,--as-needed)
