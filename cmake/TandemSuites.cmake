# CTest reads this file when it starts. With `ctest -C suites` it adds tests that each run
# four suites of a program, next to gtest_discover_tests(), which adds a test per TEST.
#
# Loading LibTorch takes longer than most suites, so a process per TEST would waste most of
# the time. Each process writes its results to ${results}/NAME.xml, which
# scripts/summarise-tests counts.
#
# The file that includes this file sets program, emulator (of another processor, or empty),
# results, label, timeout, environment and serial (true: no other test runs at the same time).
# The environment variable TANDEM_LEFT_OUT excludes tests by a filter of GoogleTest.

# CTest sets no policies. With an old policy, if() would expand "suites" as the variable
# below.
cmake_policy(VERSION 3.25)
if(NOT CTEST_CONFIGURATION_TYPE STREQUAL "suites" OR NOT EXISTS "${program}")
  return()
endif()
set(left_out "")
if(DEFINED ENV{TANDEM_LEFT_OUT})
  set(left_out "-$ENV{TANDEM_LEFT_OUT}")
endif()
execute_process(
  COMMAND ${emulator} "${program}" --gtest_list_tests "--gtest_filter=*${left_out}"
  OUTPUT_VARIABLE listed RESULT_VARIABLE failed TIMEOUT 60)
if(failed)
  message(FATAL_ERROR "${program} --gtest_list_tests: ${failed}\n${listed}")
endif()
string(REGEX MATCHALL "\n[^ \n]+\\." suites "\n${listed}")
if(NOT suites)
  return()
endif()
list(TRANSFORM suites REPLACE "\n|\\.$" "")
list(LENGTH suites total)
math(EXPR last "${total} - 1")
foreach(first RANGE 0 ${last} 4)
  list(SUBLIST suites ${first} 4 together)
  list(GET together 0 name)
  list(LENGTH together count)
  if(count GREATER 1)
    math(EXPR others "${count} - 1")
    string(APPEND name "+${others}")
  endif()
  string(REPLACE "/" "-" file "${name}")
  list(JOIN together ".*:" filter)
  add_test("${name}" ${emulator} "${program}" "--gtest_filter=${filter}.*${left_out}"
    "--gtest_output=xml:${results}/${file}.xml")
  set_tests_properties("${name}" PROPERTIES
    LABELS "${label}" TIMEOUT "${timeout}" ENVIRONMENT "${environment}"
    RUN_SERIAL "${serial}")
endforeach()
