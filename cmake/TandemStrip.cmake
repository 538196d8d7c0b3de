# CPack runs this script before it makes packages. It strips the same sections as dh_strip.

file(GLOB_RECURSE programs
  ${CPACK_TEMPORARY_DIRECTORY}/*/usr/bin/* ${CPACK_TEMPORARY_DIRECTORY}/*/usr/libexec/*)
file(GLOB_RECURSE archives ${CPACK_TEMPORARY_DIRECTORY}/*.a)
set(sections --remove-section=.comment --remove-section=.note)
execute_process(COMMAND strip ${sections} ${programs} COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND strip --strip-debug --enable-deterministic-archives ${sections} ${archives}
  COMMAND_ERROR_IS_FATAL ANY)
