# Finds Debian's LibTorch, or the LibTorch of the Python in TANDEM_TORCH_PYTHON. Defines the
# target tandem_torch.

if(TANDEM_TORCH_PYTHON)
  execute_process(
    COMMAND ${TANDEM_TORCH_PYTHON} -c
            "import torch; print(torch.utils.cmake_prefix_path)"
    OUTPUT_VARIABLE tandem_torch_prefix OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE tandem_torch_failed)
  if(tandem_torch_failed)
    message(FATAL_ERROR
      "TANDEM_TORCH_PYTHON is ${TANDEM_TORCH_PYTHON}, which cannot import torch; install "
      "torch there, or leave it empty to use Debian's libtorch-dev")
  endif()
  # Torch's CMake files search for further packages, so this prefix comes before Debian's.
  get_filename_component(tandem_torch_root ${tandem_torch_prefix}/../.. ABSOLUTE)
  list(PREPEND CMAKE_PREFIX_PATH ${tandem_torch_root})
  set(Torch_DIR ${tandem_torch_prefix}/Torch CACHE PATH "" FORCE)
  # Installed programs find LibTorch, too.
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
endif()

# Without this variable the CMake files of a CUDA LibTorch search for a GPU, and print a long
# message if they find none. tandem compiles no CUDA code.
set(TORCH_CUDA_ARCH_LIST 9.0)
# Newer Debian packages warn that kineto is missing, although they do not contain it. This
# variable prevents the warning.
find_library(kineto_LIBRARY NAMES kineto c10)
find_package(Torch REQUIRED)
message(STATUS "LibTorch ${Torch_VERSION} (${TORCH_INSTALL_PREFIX})")

if(Torch_VERSION VERSION_GREATER_EQUAL 2.9 AND CMAKE_CXX_STANDARD LESS 20)
  set(CMAKE_CXX_STANDARD 20)
endif()

add_library(tandem_torch INTERFACE)
if(TARGET torch_cuda)
  # Loading CUDA takes half a gigabyte of memory and doubles the start-up time. Therefore,
  # only libtandem_cuda.so links CUDA (TandemCuda.cmake).
  target_link_libraries(tandem_torch INTERFACE torch_cpu c10)
  target_include_directories(tandem_torch SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
else()
  target_link_libraries(tandem_torch INTERFACE ${TORCH_LIBRARIES})
endif()
if(NOT TANDEM_TORCH_PYTHON)
  # tandem also calls Gloo directly. LibTorch from PyPI contains Gloo, Debian's links it.
  target_link_libraries(tandem_torch INTERFACE gloo)
else()
  # LibTorch's libraries find each other by their run paths. The linker would search the
  # system's directories instead and may find older versions.
  target_link_options(tandem_torch INTERFACE -Wl,--allow-shlib-undefined)
endif()
# tandem's headers include LibTorch's headers, so projects that link tandem need these
# settings.
target_compile_features(tandem_torch INTERFACE cxx_std_${CMAKE_CXX_STANDARD})
target_compile_definitions(tandem_torch INTERFACE USE_C10D_GLOO USE_DISTRIBUTED)
