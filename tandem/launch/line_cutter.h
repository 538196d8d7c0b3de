#pragma once

#include <string>

namespace tandem {

/// Cuts what one rank prints into lines, so that those of several ranks do not mix, and
/// puts a prefix before each. A line ends with '\n', or with '\r' as those of a
/// progress bar do, which wait for no newline. One longer than 1 MiB goes on in
/// pieces.
class LineCutter {
 public:
  explicit LineCutter(std::string prefix) : prefix_(std::move(prefix)) {}

  /// What can be passed on now that these bytes have come.
  std::string take(const char* data, size_t size);

  /// The rest, with the newline that it lacks.
  std::string finish();

 private:
  std::string cut(size_t end);

  std::string prefix_;
  std::string rest_;
  bool in_line_ = false;
  bool after_return_ = false;
};

}  // namespace tandem
