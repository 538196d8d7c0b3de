# Debian's LibTorch names OpenCV and FFmpeg as libraries that it needs, and uses not one
# symbol of them. They bring 190 others, and loading those is nearly half of a program's
# start. tandem_skip_unused(PROGRAM...) has a program find an empty library under each of
# these names, in the folder `unused` beside it; without that folder it loads the real ones.
# For programs of ours only, in which nothing else could want OpenCV.

set(TANDEM_UNUSED_FOLDER)
get_target_property(libtorch_cpu torch_cpu LOCATION)
if(NOT CMAKE_CROSSCOMPILING AND libtorch_cpu)
  execute_process(COMMAND ldd -u -r ${libtorch_cpu} OUTPUT_VARIABLE said ERROR_QUIET)
  set(families "opencv_[a-z0-9_]+|avcodec|avformat|avutil|swscale|swresample")
  string(REGEX MATCHALL "lib(${families})\\.so[.0-9]*" names "${said}")
  if(names)
    list(LENGTH names count)
    message(STATUS "Not loaded: ${count} libraries that LibTorch names but does not use")
    set(TANDEM_UNUSED_FOLDER ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/unused)
    file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/empty.cpp CONTENT "")
    add_library(tandem_empty SHARED ${CMAKE_BINARY_DIR}/empty.cpp)
    set_target_properties(tandem_empty PROPERTIES
      LIBRARY_OUTPUT_DIRECTORY ${TANDEM_UNUSED_FOLDER})
    target_link_options(tandem_empty PRIVATE -nostdlib)
    # For the loader, links to one file are one library of several names.
    foreach(name IN LISTS names)
      add_custom_command(TARGET tandem_empty POST_BUILD VERBATIM
        COMMAND ${CMAKE_COMMAND} -E create_symlink
                $<TARGET_FILE_NAME:tandem_empty> ${TANDEM_UNUSED_FOLDER}/${name})
    endforeach()
  endif()
endif()

function(tandem_skip_unused)
  if(NOT TANDEM_UNUSED_FOLDER)
    return()
  endif()
  foreach(program IN LISTS ARGN)
    add_dependencies(${program} tandem_empty)
    set_property(TARGET ${program} APPEND PROPERTY BUILD_RPATH "$ORIGIN/unused")
    set_property(TARGET ${program} APPEND PROPERTY INSTALL_RPATH "$ORIGIN/unused")
    # A RUNPATH would be for what the program itself names, not for what LibTorch does.
    target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
  endforeach()
endfunction()
