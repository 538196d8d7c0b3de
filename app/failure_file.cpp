#include "app/failure_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"

namespace tandem::app {

namespace {

using nlohmann::ordered_json;

constexpr const char* kVariable = "TANDEM_FAILURE_FILE";

template <typename E>
bool is(const std::exception& error) {
  return dynamic_cast<const E*>(&error) != nullptr;
}

FailureKind kind_of(const std::exception& error) {
  return is<ConfigError>(error)     ? FailureKind::config
         : is<DataError>(error)     ? FailureKind::data
         : is<CommError>(error)     ? FailureKind::comm
         : is<InternalError>(error) ? FailureKind::internal
                                    : FailureKind::other;
}

}  // namespace

FailureFile::FailureFile() : fd_(memfd_create("tandem-failure", MFD_CLOEXEC)) {
  TANDEM_CHECK(fd_ >= 0, "no memory for what a program may say");
}

FailureFile::~FailureFile() {
  close(fd_);
}

Variables FailureFile::variables() const {
  return {
      {kVariable, "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_)}};
}

std::optional<Failure> FailureFile::read() const {
  const std::string lines = read_file("/proc/self/fd/" + std::to_string(fd_));
  const auto json =
      ordered_json::parse(lines.substr(0, lines.find('\n')), nullptr, false);
  if (!json.is_object()) {
    return std::nullopt;
  }
  const auto kind = find_choice<FailureKind>(json.value("kind", ""));
  return Failure{kind.value_or(FailureKind::other), json.value("message", "")};
}

void leave_failure(const std::exception& error) {
  const auto path = get_env(kVariable);
  const int fd = path ? open(path->c_str(), O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
  if (fd < 0) {
    return;
  }
  const ordered_json json = {
      {"kind", name_of(kind_of(error))}, {"message", first_line(error)}};
  const std::string line =
      json.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
  try {
    write_all(fd, line.data(), line.size(), *path);
  } catch (const DataError&) {
    // There is nobody left to tell.
  }
  close(fd);
}

void throw_failure(const std::string& who, const Failure& failure) {
  const std::string text = who + ": " + failure.message;
  switch (failure.kind) {
    case FailureKind::config:
      throw ConfigError(text);
    case FailureKind::data:
      throw DataError(text);
    default:
      throw Error(text);
  }
}

}  // namespace tandem::app
