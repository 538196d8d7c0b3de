# Finds oneDNN. tandem_use_onednn(TARGET SOURCE...) is for sources that include dnnl.hpp.

# oneDNN's CMake package requires OpenCL, which tandem does not use.
find_library(DNNL_LIBRARY dnnl REQUIRED)
if(TANDEM_TORCH_PYTHON)
  # LibTorch's include directory has headers of the oneDNN inside LibTorch, which exports no
  # functions. Therefore, a directory with only the system's headers comes first.
  find_path(DNNL_INCLUDE_DIR dnnl_version.h PATHS /usr/include NO_DEFAULT_PATH REQUIRED)
  set(TANDEM_ONEDNN_HEADERS ${CMAKE_BINARY_DIR}/onednn)
  file(GLOB headers ${DNNL_INCLUDE_DIR}/dnnl*)
  file(MAKE_DIRECTORY ${TANDEM_ONEDNN_HEADERS}/oneapi)
  foreach(header ${headers} ${DNNL_INCLUDE_DIR}/oneapi/dnnl)
    file(RELATIVE_PATH name ${DNNL_INCLUDE_DIR} ${header})
    file(CREATE_LINK ${header} ${TANDEM_ONEDNN_HEADERS}/${name} SYMBOLIC)
  endforeach()
endif()

function(tandem_use_onednn target)
  if(NOT TANDEM_TORCH_PYTHON)
    target_link_libraries(${target} PRIVATE ${DNNL_LIBRARY} gomp)
    return()
  endif()
  target_include_directories(${target} SYSTEM BEFORE PRIVATE ${TANDEM_ONEDNN_HEADERS})
  target_link_libraries(${target} PRIVATE ${CMAKE_DL_LIBS})
  # Inline functions of dnnl.hpp must not replace LibTorch's.
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -fvisibility=hidden)
  set_property(SOURCE ${ARGN} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
endfunction()
