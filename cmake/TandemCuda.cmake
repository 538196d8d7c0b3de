# Builds libtandem_cuda.so (tandem/comm/cuda/cuda_library.h) if LibTorch has CUDA. The worker
# loads it for --device cuda, so a run on CPUs does not load half a gigabyte of CUDA.

# nccl.h must belong to the NCCL that LibTorch loads, so the directory of the wheel comes
# first.
file(GLOB wheel_nccl ${TORCH_INSTALL_PREFIX}/../nvidia/nccl/include)
find_path(TANDEM_NCCL_INCLUDE nccl.h PATHS ${wheel_nccl} NO_DEFAULT_PATH
          DOC "Folder of nccl.h, of the version that LibTorch uses")
find_path(TANDEM_NCCL_INCLUDE nccl.h PATHS ${CUDAToolkit_INCLUDE_DIRS})
find_path(TANDEM_CUDA_INCLUDE cuda_runtime_api.h
          HINTS ${CUDAToolkit_INCLUDE_DIRS} /usr/local/cuda/include
          DOC "Folder of CUDA's headers")
if(NOT TANDEM_NCCL_INCLUDE OR NOT TANDEM_CUDA_INCLUDE)
  message(STATUS "This build has no --device cuda, since nccl.h or CUDA's headers are "
                 "missing; set TANDEM_NCCL_INCLUDE and TANDEM_CUDA_INCLUDE")
  return()
endif()

add_library(tandem_cuda MODULE ${PROJECT_SOURCE_DIR}/tandem/comm/cuda/cuda_plugin.cpp)
set_target_properties(tandem_cuda PROPERTIES
  # The worker searches for the library in its own folder.
  LIBRARY_OUTPUT_DIRECTORY ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}
  CXX_VISIBILITY_PRESET hidden)
target_compile_definitions(tandem_cuda PRIVATE USE_C10D_NCCL)
target_include_directories(tandem_cuda PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(tandem_cuda SYSTEM PRIVATE
  ${TANDEM_NCCL_INCLUDE} ${TANDEM_CUDA_INCLUDE})
target_link_libraries(tandem_cuda PRIVATE
  tandem_torch torch_cuda_library c10_cuda torch::cudart tandem_warnings)
