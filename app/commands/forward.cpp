#include "app/command.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/process.h"
#include "tandem/launch/launcher.h"

namespace tandem::app {

namespace {

[[noreturn]] void become_worker(const std::string& name, const Arguments& arguments) {
  std::vector<std::string> command = {worker_path(), name};
  command.insert(command.end(), arguments.begin(), arguments.end());
  exec_program(command, rank_variables(1));
}

}  // namespace

std::string worker_path() {
  const std::string own = executable_path();
  const std::string folder = own.substr(0, own.rfind('/'));
  const std::string prefix = folder.substr(0, folder.rfind('/'));
  const std::string built = folder + "/tandem-worker";
  const std::string installed = prefix + "/libexec/tandem/tandem-worker";
  if (!file_exists(built) && !file_exists(installed)) {
    throw DataError(
        "[app] '" + built + "' is missing, and so is '" + installed +
        "'; build or install tandem again");
  }
  return file_exists(built) ? built : installed;
}

int run_eval(const Arguments& arguments) {
  become_worker("eval", arguments);
}

int run_data(const Arguments& arguments) {
  become_worker("data", arguments);
}

int run_export(const Arguments& arguments) {
  become_worker("export", arguments);
}

}  // namespace tandem::app
