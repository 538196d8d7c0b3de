# tandem_skip_unused(PROGRAM...) reduces the start-up time of a program that links Debian's
# LibTorch to 60 %, until the program is installed. That LibTorch lists OpenCV and FFmpeg as
# dependencies, but uses no symbol of them; they load 190 further libraries. The program finds
# an empty library under each of these names in ${CMAKE_BINARY_DIR}/unused. If the folder is
# missing, the program loads the real libraries. Do not use this function for programs that
# use OpenCV or FFmpeg.

# Returns the folder of empty libraries, which the target tandem_empty makes, or "" if LibTorch
# lists no unused library.
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
  message(STATUS "Programs skip ${count} libraries that LibTorch lists but does not use")
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/tandem_empty.cpp CONTENT "")
  add_library(tandem_empty SHARED ${CMAKE_BINARY_DIR}/tandem_empty.cpp)
  set_target_properties(tandem_empty PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${folder})
  # lintian requires that a library links the C library and uses immediate binding.
  target_link_options(tandem_empty PRIVATE
    -nodefaultlibs -Wl,--no-as-needed -lc -Wl,-z,relro,-z,now)
  # The loader loads a file with several links only once.
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
    # A RUNPATH applies only to the program's direct dependencies. An RPATH also applies to
    # the dependencies of LibTorch. The loader searches an RPATH before LD_LIBRARY_PATH.
    target_link_options(${program} PRIVATE -Wl,--disable-new-dtags)
  endforeach()
endfunction()
