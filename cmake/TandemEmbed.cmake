# tandem_embed(TARGET NAME FILE) defines const std::string_view tandem::app::NAME, which
# contains the file's bytes; sources that use it declare it. Run as a script, this file
# writes the source with the definition.

if(CMAKE_SCRIPT_MODE_FILE)
  file(READ ${FILE} bytes HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
  file(WRITE ${OUT}
    "#include <string_view>\n\n"
    "namespace tandem::app {\n"
    "static const unsigned char ${NAME}Bytes[] = {${bytes}};\n"
    "extern const std::string_view ${NAME};\n"
    "const std::string_view ${NAME}(\n"
    "    reinterpret_cast<const char*>(${NAME}Bytes), sizeof(${NAME}Bytes));\n"
    "}  // namespace tandem::app\n")
  return()
endif()

set(TANDEM_EMBED_SCRIPT ${CMAKE_CURRENT_LIST_FILE})
function(tandem_embed target name file)
  set(out ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} -D FILE=${file} -D NAME=${name} -D OUT=${out}
            -P ${TANDEM_EMBED_SCRIPT}
    DEPENDS ${file} ${TANDEM_EMBED_SCRIPT} VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
