#include "tandem/data/prepared_data.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <sstream>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/base/lost_pages.h"
#include "tandem/base/mapped_file.h"
#include "tandem/base/process.h"
#include "tandem/base/rank_env.h"
#include "tandem/base/signals.h"
#include "tandem/config/fields.h"
#include "tandem/data/data_parts.h"
#include "tandem/data/description.h"

namespace tandem {

namespace {

constexpr const char* kVariable = "TANDEM_PREPARED_DATA";
// Seals that mark the memory as complete. The child sets them after it has written all
// data.
constexpr int kSeals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;
constexpr size_t kPageBytes = 4096;
// Marks before the key if an error or nothing follows instead of data sets. A key
// begins with a digit.
constexpr const char* kConfigError = "ConfigError ";
constexpr const char* kDataError = "DataError ";
constexpr const char* kMapped = "Mapped ";

size_t whole_pages(size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

// --- in the child ---

void write_pages(int fd, const void* data, size_t bytes) {
  static const char zeros[kPageBytes] = {};
  write_all(fd, data, bytes, "memory");
  write_all(fd, zeros, whole_pages(bytes) - bytes, "memory");
}

void write_splits(int fd, const std::string& key, const DatasetSplits& splits) {
  std::ostringstream head;
  head << key << '\n';
  for (const auto part : kDatasetParts) {
    head << describe(splits.*part);
  }
  const std::string text = head.str();
  write_pages(fd, text.c_str(), text.size() + 1);
  for (const auto part : kDatasetParts) {
    const Dataset& split = splits.*part;
    for (const auto* samples : {&split.inputs, &split.targets}) {
      write_pages(
          fd, samples->bytes.data(),
          static_cast<size_t>(samples->bytes_of(split.size)));
    }
  }
}

// Writes a mark, the key and a text.
void write_mark(
    int fd, const char* mark, const std::string& key, const std::string& rest) {
  const std::string text = mark + key + '\n' + rest;
  write_pages(fd, text.c_str(), text.size() + 1);
}

// Writes an error of load_dataset(), which the ranks then throw. `identity` is a pipe
// or -1.
void write_error(
    int fd, int identity, const char* kind, const std::string& key,
    const std::exception& error) {
  write_mark(fd, kind, key, error.what());
  if (identity >= 0) {
    const std::string line = std::string(kind) + error.what();
    write_all(identity, line.data(), line.size(), "pipe");
  }
}

void write_identity(int identity, DatasetSplits& splits) {
  for (const auto part : kDatasetParts) {
    (splits.*part).hashes = hashes_of(splits.*part);
  }
  const std::string text = to_text(parts_of(splits));
  write_all(identity, text.data(), text.size(), "pipe");
}

// Writes the data set or an error. Writes only a mark if a part has samples in a mapped
// file, because processes share its pages without a copy.
void read_into(
    int memory, int identity, const DataRequest& request, const Deadline& deadline) {
  const std::string key = prepared_data_key(request);
  DatasetSplits splits;
  try {
    splits = load_dataset(request, deadline);
  } catch (const ConfigError& error) {
    return write_error(memory, identity, kConfigError, key, error);
  } catch (const DataError& error) {
    return write_error(memory, identity, kDataError, key, error);
  }
  if (identity >= 0) {
    write_identity(identity, splits);
    close(identity);
  }
  const auto is_mapped = [&](auto part) { return (splits.*part).inputs.is_mapped; };
  if (std::any_of(std::begin(kDatasetParts), std::end(kDatasetParts), is_mapped)) {
    return write_mark(memory, kMapped, key, "");
  }
  write_splits(memory, key, splits);
}

// Runs in the child process. Reports no error of writing, because the ranks then read
// the files.
[[noreturn]] void read_for_others(
    int memory, int identity, pid_t parent, const DataRequest& request,
    const Deadline& deadline) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The ranks then read the files, and report the error.
  on_lost_page([](const std::exception&) {});
  // The parent handles the signals of a terminal, and then ends this process.
  hold_signals();
  if (getppid() == parent) {
    try {
      read_into(memory, identity, request, deadline);
      fcntl(memory, F_ADD_SEALS, kSeals);
    } catch (const std::exception& error) {
      log_debug(std::string("[data] not prepared: ") + error.what());
    }
  }
  _exit(0);
}

// --- in a worker ---

struct Offer {
  int memory = -1;
  int done = -1;
  pid_t child = -1;
};

// Returns the child's process id and the descriptors in the environment variable, and
// removes the variable. Returns nullopt if the descriptors now refer to other files.
std::optional<Offer> take_offer() {
  const auto text = get_env(kVariable);
  unsetenv(kVariable);
  Offer offer;
  struct stat status {};
  if (!text ||
      std::sscanf(
          text->c_str(), "%d %d %d", &offer.memory, &offer.done, &offer.child) != 3 ||
      fcntl(offer.memory, F_GET_SEALS) < 0 || fstat(offer.done, &status) != 0 ||
      !S_ISFIFO(status.st_mode)) {
    return std::nullopt;
  }
  return offer;
}

// Waits until the child has ended, which closes its end of the pipe.
void wait_for_child(
    const Offer& offer, const std::string& name, const Deadline& deadline) {
  pollfd entry{offer.done, POLLIN, 0};
  constexpr Deadline::Milliseconds kLook{1'000};
  while (poll(&entry, 1, static_cast<int>(std::min(deadline.left(), kLook).count())) <=
         0) {
    if (deadline.passed()) {
      throw DataError(fmt::format(
          "[data] process {}, which reads '{}' for the ranks of {}, has not ended "
          "within {} s{}; {} --timeout-seconds",
          offer.child, name, host_name(),
          static_cast<double>(deadline.time().count()) / 1000,
          is_stopped(offer.child) ? ": it is stopped (SIGSTOP)" : "",
          is_stopped(offer.child) ? "continue it (SIGCONT), or raise" : "raise"));
    }
  }
  close(offer.done);
  // Reaps the child if it is a child of this process. That is the case if the process
  // that started it became this process by exec.
  waitpid(offer.child, nullptr, 0);
}

// Maps the memory, or returns no bytes if the memory is incomplete. The mapping of
// map_descriptor() is private, because older kernels do not allow a shared mapping of
// sealed memory. Processes share the pages nevertheless, because no process writes to
// them.
Bytes map_memory(int memory) {
  struct stat status {};
  const int seals = fcntl(memory, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || fstat(memory, &status) != 0) {
    return {};
  }
  return map_descriptor(memory, static_cast<size_t>(status.st_size));
}

// Sets `taken` to the next `bytes` bytes of `all`, and moves `offset` to the next page
// after them. Returns false if there are not enough bytes.
bool take_pages(const Bytes& all, size_t& offset, int64_t bytes, Bytes& taken) {
  const auto size = static_cast<size_t>(bytes);
  if (offset > all.size() || size > all.size() - offset) {
    return false;
  }
  taken = part_of(all, offset, size);
  offset += whole_pages(size);
  return true;
}

// Throws the error that the child wrote, if it wrote one.
void throw_error_of(
    std::istream& lines, const std::string& its_key, const std::string& key) {
  std::string message;
  if (!std::getline(lines, message) || message.rfind('[', 0) != 0) {
    return;
  }
  if (its_key == kConfigError + key) {
    throw ConfigError(message);
  }
  if (its_key == kDataError + key) {
    throw DataError(message);
  }
}

// Sets `is_checked` if the child has checked the mapped files of the data set.
std::optional<DatasetSplits> splits_in(
    const Bytes& all, const std::string& key, bool& is_checked) {
  const auto* end = std::find(all.begin(), all.end(), uint8_t{0});
  const std::string head(all.begin(), end);
  std::istringstream lines(head);
  std::string its_key;
  std::getline(lines, its_key);
  is_checked = end != all.end() && its_key == kMapped + key;
  if (end == all.end() || its_key != key) {
    throw_error_of(lines, its_key, key);
    return std::nullopt;
  }
  DatasetSplits splits;
  for (const auto part : kDatasetParts) {
    auto split = read_description(lines, all.size());
    if (!split) {
      return std::nullopt;
    }
    splits.*part = std::move(*split);
  }
  size_t offset = whole_pages(head.size() + 1);
  for (const auto part : kDatasetParts) {
    Dataset& split = splits.*part;
    for (auto* samples : {&split.inputs, &split.targets}) {
      const int64_t bytes = samples->bytes_of(split.size);
      if (!take_pages(all, offset, bytes, samples->bytes)) {
        return std::nullopt;
      }
    }
  }
  return splits;
}

std::optional<DatasetSplits> find_prepared(
    const Offer& offer, const std::string& key, const std::string& name,
    const Deadline& deadline, bool& is_checked) {
  wait_for_child(offer, name, deadline);
  const Bytes all = map_memory(offer.memory);
  close(offer.memory);
  return all.empty() ? std::nullopt : splits_in(all, key, is_checked);
}

}  // namespace

std::string prepared_data_key(const DataRequest& request) {
  std::string key = fmt::format(
      "{} {} {} {} {} {}", request.seed, static_cast<int>(request.whole_targets),
      request.ignore_index, request.for_training, settings_text(request.options),
      request.columns);
  std::replace(key.begin(), key.end(), '\n', ' ');
  return key;
}

DataReader::DataReader(
    const DataRequest& request, std::chrono::milliseconds timeout, bool identifies) {
  int ends[2];
  // A name with a line break is not possible, because the description has one line for
  // each value.
  if (request.options.source.find('\n') != std::string::npos ||
      pipe2(ends, O_CLOEXEC) != 0) {
    return;
  }
  // Workers inherit done_ and memory_. Only the child has the other end of the pipe.
  done_ = fcntl(ends[0], F_DUPFD, 0);
  close(ends[0]);
  memory_ = memfd_create("tandem-data", MFD_ALLOW_SEALING);
  const pid_t parent = getpid();
  const Pipe pipe = identifies ? open_pipe() : Pipe();
  const Descriptor written(pipe.write_end);
  identity_ = Descriptor(pipe.read_end);
  child_ = memory_ < 0 || done_ < 0 ? -1 : fork();
  if (child_ == 0) {
    read_for_others(memory_, written.fd(), parent, request, Deadline(timeout));
  }
  close(ends[1]);
}

DataReader::~DataReader() {
  reap();
  if (child_ > 0 && !reaped_) {
    kill_child(child_);
  }
  for (const int fd : {memory_, done_}) {
    if (fd >= 0) {
      close(fd);
    }
  }
}

void DataReader::reap() {
  reaped_ = reaped_ || (child_ > 0 && waitpid(child_, nullptr, WNOHANG) == child_);
}

std::optional<std::string> DataReader::identity() {
  char buffer[4096];
  while (identity_) {
    const ssize_t got = read(identity_.fd(), buffer, sizeof(buffer));
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return std::nullopt;
    }
    if (got <= 0) {
      identity_ = Descriptor();
    } else {
      identity_text_.append(buffer, static_cast<size_t>(got));
    }
  }
  if (identity_text_.rfind(kConfigError, 0) == 0) {
    throw ConfigError(identity_text_.substr(std::strlen(kConfigError)));
  }
  if (identity_text_.rfind(kDataError, 0) == 0) {
    throw DataError(identity_text_.substr(std::strlen(kDataError)));
  }
  return identity_text_;
}

Variables DataReader::variables() const {
  if (child_ <= 0) {
    return {};
  }
  return {
      {kVariable, std::to_string(memory_) + " " + std::to_string(done_) + " " +
                      std::to_string(child_)}};
}

DatasetSplits load_prepared_dataset(DataRequest request, const Deadline& deadline) {
  const std::string& source = request.options.source;
  const auto offer = take_offer();
  bool is_checked = false;
  if (offer) {
    const std::string key = prepared_data_key(request);
    if (auto splits = find_prepared(*offer, key, source, deadline, is_checked)) {
      log_debug("[data] '" + source + "' is in memory that ranks share");
      return std::move(*splits);
    }
  }
  request.logs_parts = !offer;
  request.checks_cache = !is_checked;
  auto splits = load_dataset(request, deadline);
  for (const auto part : kDatasetParts) {
    (splits.*part).hashes = hashes_of(splits.*part);
  }
  return splits;
}

}  // namespace tandem
