#include "tandem/launch/mpirun.h"

#include <unistd.h>

#include <algorithm>

#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

bool is_plain(const std::string& word) {
  return !word.empty() &&
         word.find_first_not_of(
             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
             "_-+./:=,@%") == std::string::npos;
}

std::string quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) {
    text += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return text + "'";
}

}  // namespace

bool has_mpirun() {
  const auto folders = split(get_env("PATH").value_or(""), ':');
  return std::any_of(folders.begin(), folders.end(), [](const auto& folder) {
    return file_exists(folder + "/mpirun");
  });
}

std::vector<std::string> mpirun_command(
    int ranks, const std::vector<std::string>& command, MpirunCores cores) {
  const bool shared = cores == MpirunCores::shared;
  std::vector<std::string> all = {"mpirun"};
  if (geteuid() == 0) {
    all.emplace_back("--allow-run-as-root");
  }
  if (shared || ranks > usable_cpus()) {
    all.emplace_back("--oversubscribe");
  }
  if (shared) {
    all.insert(all.end(), {"--bind-to", "none"});
  }
  all.insert(all.end(), {"-np", std::to_string(ranks)});
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

std::string shell_line(const std::vector<std::string>& command) {
  std::string line;
  for (const auto& word : command) {
    line += (line.empty() ? "" : " ") + (is_plain(word) ? word : quoted(word));
  }
  return line;
}

}  // namespace tandem
