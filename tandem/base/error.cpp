#include "tandem/base/error.h"

#include <algorithm>
#include <new>
#include <numeric>
#include <system_error>

#include "tandem/base/process_limits.h"

namespace tandem {

namespace {

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

// LibTorch's allocator throws a general error type. Only this part of the message shows
// that memory ran out.
constexpr const char* kTriedToAllocate = "you tried to allocate ";

bool is_out_of_memory(const std::exception& error, const std::string& text) {
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         text.find(kTriedToAllocate) != std::string::npos;
}

std::string explain_out_of_memory(const std::string& text) {
  const size_t at = text.find(kTriedToAllocate);
  const size_t number = at + std::string(kTriedToAllocate).size();
  const std::string bytes =
      at == std::string::npos
          ? ""
          : " for " + text.substr(number, text.find(' ', number) - number) + " bytes";
  return "[memory] there is not enough memory" + bytes +
         "; lower --batch-size, --eval-batch-size, --accumulate or --nproc, or choose "
         "another --model";
}

std::string comm_message(
    const std::string& operation, const std::string& cause,
    const std::optional<int>& peer) {
  std::string text = "[comm] " + operation + " failed";
  if (peer) {
    text += " (rank " + std::to_string(*peer) + ")";
  }
  return text + ": " + cause;
}

}  // namespace

std::string printable(std::string text) {
  const auto byte_at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  for (size_t i = 0; i < text.size(); ++i) {
    if (byte_at(i) < 0x20 || byte_at(i) == 0x7f) {
      text[i] = '?';
    } else if (i > 0 && byte_at(i - 1) == 0xc2 && byte_at(i) < 0xa0) {
      text[i - 1] = text[i] = '?';
    }
  }
  return text;
}

Error::Error(const std::string& message) : std::runtime_error(printable(message)) {}

CommError::CommError(
    const std::string& operation, const std::string& cause, std::optional<int> peer)
    : Error(comm_message(operation, cause, peer)), cause_(cause), peer_(peer) {}

int exit_code(const std::exception& error) {
  return dynamic_cast<const ConfigError*>(&error) != nullptr    ? 2
         : dynamic_cast<const StoppedError*>(&error) != nullptr ? kExitStopped
                                                                : 1;
}

int known_exit_code(int code) {
  return code == 2 || code == kExitStopped ? code : 1;
}

void throw_for_exit_code(int code, const std::string& message) {
  switch (known_exit_code(code)) {
    case 2:
      throw ConfigError(message);
    case kExitStopped:
      throw StoppedError(message);
    default:
      throw Error(message);
  }
}

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  if (is_out_of_memory(error, text)) {
    return explain_out_of_memory(text);
  }
  const auto* failed = dynamic_cast<const std::system_error*>(&error);
  if (failed != nullptr &&
      failed->code() == std::errc::resource_unavailable_try_again) {
    return explain_process_limit();
  }
  return text.substr(0, text.find('\n'));
}

std::string did_you_mean(
    const std::string& name, const std::vector<std::string>& candidates) {
  const std::string* best = nullptr;
  // A name of two or three letters is similar if one letter differs, or if the letters
  // are in another order.
  const size_t most =
      name.size() <= 3 ? name.size() / 2 : std::max<size_t>(2, name.size() / 3);
  size_t best_distance = most + 1;
  for (const auto& candidate : candidates) {
    // A much longer name cannot be similar, and comparing it would be slow.
    if (name.size() >= candidate.size() + best_distance) {
      continue;
    }
    const bool reordered =
        name.size() == candidate.size() &&
        std::is_permutation(name.begin(), name.end(), candidate.begin());
    const size_t distance = reordered ? 1 : edit_distance(name, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = &candidate;
    }
  }
  return best == nullptr ? "" : ", did you mean '" + *best + "'?";
}

std::string join(const std::vector<std::string>& parts, const std::string& separator) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    text += (i == 0 ? "" : separator) + parts[i];
  }
  return text;
}

void fail_check(
    const char* condition, const char* file, int line, const std::string& message) {
  throw InternalError(
      "[internal] " + message + " (" + condition + " is false at " + file + ":" +
      std::to_string(line) + "); please report this");
}

}  // namespace tandem
