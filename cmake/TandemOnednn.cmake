# Finds oneDNN. tandem_use_onednn(TARGET SOURCE...): for sources that include dnnl.hpp.

# Its CMake package wants OpenCL, which nothing here needs.
find_library(DNNL_LIBRARY dnnl REQUIRED)
if(TANDEM_TORCH_PYTHON)
  # LibTorch's include directory has the headers of the oneDNN inside it, which exports no
  # functions. A directory with those of ours alone comes before it.
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
  # What dnnl.hpp defines inline must not take the place of LibTorch's.
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -fvisibility=hidden)
  set_property(SOURCE ${ARGN} PROPERTY SKIP_PRECOMPILE_HEADERS ON)
endfunction()
