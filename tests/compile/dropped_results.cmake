# Compiles dropped_results.cpp and compares the compiler's warnings with its marked lines.
#   cmake -Dsource=FILE -P dropped_results.cmake -- COMPILER FLAG...
set(command)
foreach(i RANGE 5 ${CMAKE_ARGC})
  list(APPEND command ${CMAKE_ARGV${i}})
endforeach()
execute_process(
  COMMAND ${command} -fsyntax-only -Wall ${source}
  ERROR_VARIABLE output RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "${source} does not compile:\n${output}")
endif()

file(READ ${source} text)
# CMake does not split a list at semicolons between brackets, so both are removed.
string(REGEX REPLACE "[][;]" "" text "${text}")
string(REPLACE "\n" ";" lines "${text}")
set(number 0)
set(mistakes "")
foreach(line IN LISTS lines)
  math(EXPR number "${number} + 1")
  string(REGEX MATCH "// dropped$" marked "${line}")
  string(REGEX MATCH "\\.cpp:${number}:[^\n]*nodiscard" reported "${output}")
  if(marked AND NOT reported)
    string(APPEND mistakes "\nline ${number} is marked, but has no warning: ${line}")
  elseif(reported AND NOT marked)
    string(APPEND mistakes "\nline ${number} has a warning, but no mark: ${line}")
  endif()
endforeach()
if(mistakes)
  message(FATAL_ERROR "${source}:${mistakes}")
endif()
