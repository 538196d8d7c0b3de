#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace tandem {

/// A value in a Python pickle, owned by the Pickle.
struct PickleValue {
  enum class Kind {
    // Integer or boolean, in `number`.
    number,
    // Text, in `text`.
    text,
    // Tuple or list, in `items`.
    sequence,
    // Dict or OrderedDict; `items` are key, value, key, value and so on.
    dict,
    // Class or function; `text` is "MODULE NAME".
    global,
    // Call of a class or function, which the reader never executes; `items` are the
    // callee and its arguments.
    call,
    // Object outside of the pickle; `items` contains its id.
    persistent,
    // None, a float or any other value.
    other,
  };
  Kind kind = Kind::other;
  int64_t number = 0;
  std::string text;
  std::vector<const PickleValue*> items;
};

/// Reads pickles of torch.save (protocol 2) as plain values. It loads no classes and
/// calls no functions, so a file from any source is safe to read.
class Pickle {
 public:
  /// Default maximum number of values. It limits memory, because a value can use a
  /// hundred times the memory of its opcode.
  static constexpr size_t kMostValues = 10'000'000;
  /// Maximum memory that one value uses, in bytes, without the characters of its text.
  static constexpr size_t kBytesPerValue = 160;

  /// Parses `bytes`. `path` is the name of the file in errors. Throws DataError for
  /// bytes that are not a pickle, end early, or have a newer protocol. Throws
  /// ConfigError for more than `most_values` values. If the pickle uses a value several
  /// times through its memo, each use counts.
  Pickle(
      const std::string& bytes, const std::string& path,
      size_t most_values = kMostValues);

  const PickleValue& root() const {
    return *root_;
  }

 private:
  // All values of the pickle. They are in one container, so that no recursion is needed
  // to destroy deeply nested values.
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
};

}  // namespace tandem
