#include "app/command.h"
#include "app/eval_flags.h"
#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/process.h"
#include "tandem/launch/launcher.h"

namespace tandem::app {

namespace {

[[noreturn]] void become_worker(
    const std::string& name, const Arguments& arguments,
    const DeviceChoice& device = {DeviceChoice::Kind::cpu}) {
  exec_program(worker_command({name}, arguments, device), rank_variables(1));
}

}  // namespace

int run_eval(const Arguments& arguments) {
  become_worker("eval", arguments, parse_eval(arguments).config.exec.device);
}

int run_predict(const Arguments& arguments) {
  become_worker("predict", arguments, parse_predict(arguments).config.exec.device);
}

int run_data(const Arguments& arguments) {
  become_worker("data", arguments);
}

int run_export(const Arguments& arguments) {
  become_worker("export", arguments);
}

int run_model(const Arguments& arguments) {
  become_worker("model", arguments);
}

}  // namespace tandem::app
