#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace tandem {

/// A value in a Python pickle, owned by the Pickle.
struct PickleValue {
  enum class Kind {
    // In `number`: integers and booleans.
    number,
    // In `text`.
    text,
    // In `items`: a tuple or a list.
    sequence,
    // In `items`: key, value, key, value, ... of a dict or an OrderedDict.
    dict,
    // In `text`: "module name" of a class or a function.
    global,
    // In `items`: a callee and its arguments. It is never called.
    call,
    // In `items`: the id of an object outside of the pickle.
    persistent,
    // None, floats and anything else.
    other,
  };
  Kind kind = Kind::other;
  int64_t number = 0;
  std::string text;
  std::vector<const PickleValue*> items;
};

/// Reads pickles of torch.save (protocol 2) as plain values. No class is looked up and
/// no function is called, so a file from any source is safe to read.
class Pickle {
 public:
  /// Parses `bytes`; `path` is for messages. Throws DataError for bytes that are not a
  /// pickle, end early, or have another protocol, ConfigError for more than 10 million
  /// values (values that are read again from the memo count again).
  Pickle(const std::string& bytes, const std::string& path);

  const PickleValue& root() const {
    return *root_;
  }

 private:
  // Flat, so that destroying deeply nested values needs no deep recursion.
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
};

}  // namespace tandem
