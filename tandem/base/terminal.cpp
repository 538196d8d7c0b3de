#include "tandem/base/terminal.h"

#include <unistd.h>

#include "tandem/base/rank_env.h"

namespace tandem {

namespace {

const char* code_of(Emphasis emphasis) {
  switch (emphasis) {
    case Emphasis::error:
      return "\033[31m";
    case Emphasis::warning:
      return "\033[33m";
    case Emphasis::result:
      break;
  }
  return "\033[1m";
}

}  // namespace

bool is_terminal(int fd) {
  return isatty(fd) == 1 && get_env("TERM").value_or("") != "dumb" &&
         !get_env("OMPI_COMM_WORLD_SIZE");
}

std::string emphasised(int fd, Emphasis emphasis, const std::string& text) {
  const bool colors = is_terminal(fd) && get_env("NO_COLOR").value_or("").empty();
  return colors ? code_of(emphasis) + text + "\033[0m" : text;
}

}  // namespace tandem
