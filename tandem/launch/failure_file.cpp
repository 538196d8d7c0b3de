#include "tandem/launch/failure_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <sstream>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr const char* kFailureVariable = "TANDEM_FAILURE_FILE";

bool is_rank_of_launcher() {
  return !get_env("TANDEM_STORE").value_or("").empty();
}

// Returns a line "RANK CODE KIND MESSAGE". KIND is 'c' for a consequence, otherwise
// 'r'.
std::string to_line(const std::exception& error) {
  const int rank = parse_number<int>(get_env("RANK").value_or("")).value_or(0);
  const bool consequence = dynamic_cast<const CommError*>(&error) != nullptr;
  return std::to_string(rank) + " " + std::to_string(exit_code(error)) +
         (consequence ? " c " : " r ") + first_line(error) + "\n";
}

// Parses a line. Any program that a rank starts can write lines, so unknown exit codes
// are replaced by 1 (known_exit_code()).
std::optional<FailureReport> from_line(const std::string& line) {
  FailureReport report;
  std::istringstream text(line);
  char kind = 0;
  if (!(text >> report.rank >> report.code >> kind) || text.get() != ' ') {
    return std::nullopt;
  }
  report.code = known_exit_code(report.code);
  report.consequence = kind == 'c';
  std::getline(text, report.message);
  return report;
}

bool append_report(const std::exception& error) {
  const auto path = get_env(kFailureVariable);
  const int fd = path ? open(path->c_str(), O_WRONLY | O_APPEND | O_CLOEXEC) : -1;
  if (fd < 0) {
    return false;
  }
  const std::string line = to_line(error);
  // Uses one write, so that lines of several processes do not mix.
  const bool written = write(fd, line.data(), line.size()) > 0;
  close(fd);
  return written;
}

}  // namespace

FailureFile::FailureFile() : fd_(memfd_create("tandem-failure", MFD_CLOEXEC)) {
  TANDEM_CHECK(fd_ >= 0, "no memory for reports of failures");
}

FailureFile::~FailureFile() {
  close(fd_);
}

Variables FailureFile::variables() const {
  return {
      {kFailureVariable,
       "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd_)}};
}

std::vector<FailureReport> FailureFile::read() const {
  std::vector<FailureReport> reports;
  std::istringstream lines(read_file("/proc/self/fd/" + std::to_string(fd_)));
  for (std::string line; std::getline(lines, line);) {
    if (auto report = from_line(line)) {
      reports.push_back(std::move(*report));
    }
  }
  return reports;
}

void FailureFile::throw_first(const std::string& who) const {
  if (const auto reports = read(); !reports.empty()) {
    throw_for_exit_code(reports[0].code, who + ": " + reports[0].message);
  }
}

bool report_to_launcher(const std::exception& error) {
  return is_rank_of_launcher() && append_report(error);
}

void report_to_parent(const std::exception& error) {
  if (!is_rank_of_launcher()) {
    append_report(error);
  }
}

}  // namespace tandem
