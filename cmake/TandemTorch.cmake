# Finds LibTorch: Debian's, or that of the Python named by TANDEM_TORCH_PYTHON.
# Defines the target tandem_torch.

if(TANDEM_TORCH_PYTHON)
  execute_process(
    COMMAND ${TANDEM_TORCH_PYTHON} -c
            "import torch; print(torch.utils.cmake_prefix_path)"
    OUTPUT_VARIABLE tandem_torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE tandem_torch_failed)
  if(tandem_torch_failed)
    message(FATAL_ERROR
      "${TANDEM_TORCH_PYTHON} cannot import torch; install it there, or leave "
      "TANDEM_TORCH_PYTHON empty for Debian's libtorch-dev")
  endif()
  # Comes before Debian's, for Torch and for what Torch's own files look for.
  get_filename_component(tandem_torch_root ${tandem_torch_prefix}/../.. ABSOLUTE)
  list(PREPEND CMAKE_PREFIX_PATH ${tandem_torch_root})
  set(Torch_DIR ${tandem_torch_prefix}/Torch CACHE PATH "" FORCE)
  # What is installed finds it too.
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
endif()

# Read by a CUDA LibTorch, for a language that we do not use: else it searches for a GPU
# and reports at length that there is none.
set(TORCH_CUDA_ARCH_LIST 9.0)
# Debian's newer packages look for a kineto that they do not ship, and warn.
find_library(kineto_LIBRARY NAMES kineto c10)
find_package(Torch REQUIRED)
message(STATUS "LibTorch ${Torch_VERSION} (${TORCH_INSTALL_PREFIX})")

if(Torch_VERSION VERSION_GREATER_EQUAL 2.9 AND CMAKE_CXX_STANDARD LESS 20)
  set(CMAKE_CXX_STANDARD 20)
endif()

add_library(tandem_torch INTERFACE)
if(TARGET torch_cuda)
  # A program that computes on CPUs loads nothing of CUDA: half a gigabyte, and as long
  # again to start. Only libtandem_cuda.so needs it (TandemCuda.cmake).
  target_link_libraries(tandem_torch INTERFACE torch_cpu c10)
  target_include_directories(tandem_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
else()
  target_link_libraries(tandem_torch INTERFACE ${TORCH_LIBRARIES})
endif()
if(Torch_VERSION VERSION_LESS 2)
  # We call Gloo itself for bfloat16, which LibTorch 1.13 does not know how to sum.
  target_link_libraries(tandem_torch INTERFACE gloo)
endif()
if(TANDEM_TORCH_PYTHON)
  # Its libraries find each other by their own run paths; the linker would look for
  # what they need in the system's directories and may find an older one.
  target_link_options(tandem_torch INTERFACE -Wl,--allow-shlib-undefined)
endif()
# Its headers are in ours: projects that link tandem need the same.
target_compile_features(tandem_torch INTERFACE cxx_std_${CMAKE_CXX_STANDARD})
target_compile_definitions(tandem_torch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
