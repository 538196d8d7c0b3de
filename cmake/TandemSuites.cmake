# Read by CTest when it starts, with `ctest -C suites` only: makes one test of each suite
# of a program, beside those of each TEST that gtest_discover_tests() makes.
#
# Loading LibTorch takes longer than most tests, so a thousand processes of one test
# each would spend their time on that. Each suite leaves what its tests gave in
# ${results}/NAME.xml, which scripts/summarise-tests counts.
#
# Set before it is included: program, emulator (of another processor, or empty), results,
# label, timeout, environment. The variable TANDEM_LEFT_OUT may name tests, as
# GoogleTest's filters do.

# CTest sets no policies, and would take "suites" for the variable below.
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
string(REGEX MATCHALL "\n[^ \n][^\n]*\\." suites "\n${listed}")
foreach(suite IN LISTS suites)
  string(REGEX REPLACE "\n|\\.$" "" suite "${suite}")
  string(REPLACE "/" "-" file "${suite}")
  add_test("${suite}" ${emulator} "${program}" "--gtest_filter=${suite}.*${left_out}"
    "--gtest_output=xml:${results}/${file}.xml")
  set_tests_properties("${suite}" PROPERTIES
    LABELS "${label}" TIMEOUT "${timeout}" ENVIRONMENT "${environment}")
endforeach()
