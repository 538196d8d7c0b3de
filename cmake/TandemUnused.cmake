# tandem_skip_unused(PROGRAM...): a program that links Debian's LibTorch starts in 0.6 of the
# time, until it is installed. That LibTorch names OpenCV and FFmpeg as libraries
# that it needs, and uses not one symbol of them; they bring 190 others. The program finds an
# empty library under each of these names, in ${CMAKE_BINARY_DIR}/unused; without that folder
# it loads the real ones. Not for programs that use OpenCV or FFmpeg themselves.

# The folder of empty libraries, made by the target tandem_empty; "" where LibTorch names no
# library in vain.
function(tandem_unused_folder out)
  get_property(known GLOBAL PROPERTY TANDEM_UNUSED_FOLDER SET)
  if(NOT known)
    set(folder "")
    if(TARGET torch_cpu AND NOT CMAKE_CROSSCOMPILING)
      get_target_property(libtorch_cpu torch_cpu LOCATION)
      execute_process(COMMAND ldd -u -r ${libtorch_cpu} OUTPUT_VARIABLE said ERROR_QUIET)
      set(families "opencv_[a-z0-9_]+|avcodec|avformat|avutil|swscale|swresample")
      string(REGEX MATCHALL "lib(${families})\\.so[.0-9]*" names "${said}")
      if(names)
        set(folder ${CMAKE_BINARY_DIR}/unused)
        tandem_add_empty(${folder} ${names})
      endif()
    endif()
    set_property(GLOBAL PROPERTY TANDEM_UNUSED_FOLDER "${folder}")
  endif()
  get_property(folder GLOBAL PROPERTY TANDEM_UNUSED_FOLDER)
  set(${out} "${folder}" PARENT_SCOPE)
endfunction()

function(tandem_add_empty folder)
  list(LENGTH ARGN count)
  message(STATUS "Not loaded: ${count} libraries that LibTorch names but does not use")
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/tandem_empty.cpp CONTENT "")
  add_library(tandem_empty SHARED ${CMAKE_BINARY_DIR}/tandem_empty.cpp)
  set_target_properties(tandem_empty PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${folder})
  # Debian's checks want a library to need at least the C library, and to be bound at once.
  target_link_options(tandem_empty PRIVATE
    -nodefaultlibs -Wl,--no-as-needed -lc -Wl,-z,relro,-z,now)
  # For the loader, links to one file are one library of several names.
  foreach(name IN LISTS ARGN)
    add_custom_command(TARGET tandem_empty POST_BUILD VERBATIM
      COMMAND ${CMAKE_COMMAND} -E create_symlink
              $<TARGET_FILE_NAME:tandem_empty> ${folder}/${name})
  endforeach()
endfunction()

function(tandem_skip_unused)
  tandem_unused_folder(folder)
  if(NOT folder)
    return()
  endif()
  foreach(program IN LISTS ARGN)
    add_dependencies(${program} tandem_empty)
    set_property(TARGET ${program} APPEND PROPERTY BUILD_RPATH ${folder})
    # As a RUNPATH it would be for what the program itself names, not for what LibTorch
    # does. An RPATH is searched before LD_LIBRARY_PATH.
    target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
  endforeach()
endfunction()
