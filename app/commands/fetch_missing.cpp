#include "app/commands/fetch_missing.h"

#include <optional>

#include "app/command.h"
#include "tandem/base/error.h"
#include "tandem/base/file_lock.h"
#include "tandem/base/files.h"
#include "tandem/base/process.h"
#include "tandem/data/named_datasets.h"
#include "tandem/launch/launcher.h"

namespace tandem::app {

void fetch_missing(
    const std::string& name, int ranks_here, std::chrono::milliseconds timeout) {
  if (!dataset_is_missing(name)) {
    return;
  }
  std::optional<FileLock> lock;
  if (ranks_here > 1) {
    lock.emplace(cache_directory() + "/fetch.lock", Deadline(timeout));
    if (!dataset_is_missing(name)) {
      return;
    }
  }
  ProcessOptions options;
  // Standard output is for what the recipe prints.
  options.command = {"/bin/sh",     "-c",   "exec \"$@\" >&2", "sh",
                     worker_path(), "data", "fetch",           name};
  options.variables = rank_variables(1);
  if (!Process(options).wait().ok()) {
    throw DataError(
        "[data] " + name +
        " is not fetched, as the line before says; choose another --data");
  }
}

}  // namespace tandem::app
