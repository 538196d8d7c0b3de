# The kernels for GPUs, tandem/kernels/cuda/*.cu, compiled by nvcc where there is one, and
# with a LibTorch for CUDA the library of what computes on them, tandem_cuda. A command of our own, not CMake's language CUDA: that hands nvcc
# the sanitizers' flags, and ends the configuration where nvcc does not know the compiler.
# Tests compile the same sources as C++ in any case.
# Sets TANDEM_CUDA_OBJECTS, empty without nvcc.
if(TARGET torch_cuda)
  set(TANDEM_NO_CUDA_MEANS "this build has no --device cuda")
else()
  set(TANDEM_NO_CUDA_MEANS "no kernels for GPUs are tried out")
endif()

# Two seconds each and source. All that CUDA 13 and we have: 75;80;86;89;90;100;120. Code
# for 80 runs on 86 and 89 too, and on those from 100 on the translation of the last.
set(architectures 80 90)
if(TARGET torch_cuda)
  list(PREPEND architectures 75)
endif()
set(TANDEM_CUDA_ARCHITECTURES ${architectures} CACHE STRING
    "GPUs to compile kernels for; later ones translate the last of them when they start")

set(TANDEM_CUDA_OBJECTS)
find_program(TANDEM_NVCC nvcc PATHS /usr/local/cuda/bin
             DOC "CUDA's compiler; empty or NOTFOUND: no kernels for GPUs")
if(NOT TANDEM_NVCC OR CMAKE_CROSSCOMPILING)
  message(STATUS "nvcc was not found, so ${TANDEM_NO_CUDA_MEANS}; install CUDA's toolkit "
                 "or set TANDEM_NVCC")
  return()
endif()

set(nvcc ${TANDEM_NVCC} -ccbin ${CMAKE_CXX_COMPILER} -std=c++17)
set(gencode)
foreach(architecture IN LISTS TANDEM_CUDA_ARCHITECTURES)
  list(APPEND gencode
    -gencode arch=compute_${architecture},code=sm_${architecture})
endforeach()
list(GET TANDEM_CUDA_ARCHITECTURES -1 last)
list(APPEND gencode -gencode arch=compute_${last},code=compute_${last})

# Tried until it works.
if(NOT TANDEM_NVCC_WORKS STREQUAL "${nvcc};${gencode}")
  set(probe ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/nvcc_probe)
  file(WRITE ${probe}.cu "#include <string>\n__global__ void probe() {}\n")
  execute_process(COMMAND ${nvcc} ${gencode} -c ${probe}.cu -o ${probe}.o
                  RESULT_VARIABLE failed ERROR_VARIABLE said OUTPUT_VARIABLE said)
  if(failed)
    string(REGEX REPLACE "\n.*" "" said "${said}")
    message(STATUS "${TANDEM_NVCC} failed, so ${TANDEM_NO_CUDA_MEANS}: ${said}")
    return()
  endif()
  set(TANDEM_NVCC_WORKS "${nvcc};${gencode}" CACHE INTERNAL "")
endif()
message(STATUS "Kernels for GPUs: ${TANDEM_NVCC}, ${TANDEM_CUDA_ARCHITECTURES}")

# Without contraction: what the CPU computes in the same way has the same bits.
file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tandem/kernels/cuda/*.cu)
foreach(source IN LISTS sources)
  get_filename_component(name ${source} NAME_WE)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/cuda/${name}.o)
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${nvcc} -O3 --fmad=false -lineinfo ${gencode}
            -Werror all-warnings -Xcompiler=-Wall,-Wextra,-Wshadow
            -I${PROJECT_SOURCE_DIR} -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d
    COMMENT "Compiling ${name}.cu for GPUs" VERBATIM)
  list(APPEND TANDEM_CUDA_OBJECTS ${object})
endforeach()
file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/cuda)
# Nothing uses them without a LibTorch for CUDA, and they are a minute's work: there
# `cmake --build build/release --target tandem_cuda_kernels` tries them out.
add_custom_target(tandem_cuda_kernels DEPENDS ${TANDEM_CUDA_OBJECTS})

# What talks to CUDA's runtime from C++, with a comparison of nccl.h and ours.
get_filename_component(toolkit ${TANDEM_NVCC} REALPATH)
get_filename_component(toolkit ${toolkit} DIRECTORY)
find_path(TANDEM_CUDA_INCLUDE cuda_runtime_api.h HINTS ${toolkit}/../include
          DOC "CUDA's headers")
find_path(TANDEM_NCCL_INCLUDE nccl.h HINTS ${toolkit}/../include DOC "NCCL's header")
if(TANDEM_CUDA_INCLUDE)
  set(sources ${PROJECT_SOURCE_DIR}/tandem/comm/nccl/cuda_streams.cpp)
  if(TANDEM_NCCL_INCLUDE)
    list(APPEND sources ${PROJECT_SOURCE_DIR}/tandem/comm/nccl/nccl_abi.cpp)
  endif()
  add_library(tandem_cuda_streams OBJECT ${sources})
  target_include_directories(tandem_cuda_streams PRIVATE ${PROJECT_SOURCE_DIR})
  target_include_directories(tandem_cuda_streams SYSTEM PRIVATE
    ${TANDEM_CUDA_INCLUDE} $<$<BOOL:${TANDEM_NCCL_INCLUDE}>:${TANDEM_NCCL_INCLUDE}>)
  target_link_libraries(tandem_cuda_streams PRIVATE tandem_warnings)
endif()

# What a program for GPUs links besides tandem_lib (tandem/exec/device/cuda_devices.h).
if(TARGET torch_cuda AND TARGET tandem_cuda_streams)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tandem/exec/device/*.cpp)
  add_library(tandem_cuda STATIC
    ${sources} ${TANDEM_CUDA_OBJECTS}
    $<TARGET_OBJECTS:tandem_cuda_streams>)
  target_include_directories(tandem_cuda SYSTEM PRIVATE ${TANDEM_CUDA_INCLUDE})
  # LibTorch's operators for CUDA announce themselves when their library is loaded; no
  # symbol of it is named.
  target_link_libraries(tandem_cuda
    PUBLIC tandem_lib torch_cuda_library c10_cuda torch::cudart
    PRIVATE tandem_warnings)
endif()
