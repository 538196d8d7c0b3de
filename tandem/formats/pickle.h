#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace tandem {

/// A value of a Python pickle. Owned by its Pickle.
struct PickleValue {
  enum class Kind {
    // `number`; booleans too.
    number,
    // `text`.
    text,
    // `items`: of a tuple or a list.
    sequence,
    // `items`: key, value, key, value, ... of a dict or an OrderedDict.
    dict,
    // `text`: "module name" of a class or a function.
    global,
    // `items`: what is called and its arguments. Nobody calls it.
    call,
    // `items`: the id of something outside of the pickle.
    persistent,
    // None, floats and anything else.
    other,
  };
  Kind kind = Kind::other;
  int64_t number = 0;
  std::string text;
  std::vector<const PickleValue*> items;
};

/// Reads what torch.save writes (pickle protocol 2) as plain values: no class is
/// looked up, no function is called, so a file from anywhere is safe to read.
class Pickle {
 public:
  /// `path` is for messages. Throws DataError for bytes that are not a pickle, end
  /// early, or have another protocol, ConfigError for more than 10 million values
  /// (those that are taken again from the memo count again).
  Pickle(const std::string& bytes, const std::string& path);

  const PickleValue& root() const {
    return *root_;
  }

 private:
  // Flat, so that destroying what a file nests deeply takes no deep recursion.
  std::deque<PickleValue> values_;
  const PickleValue* root_ = nullptr;
};

}  // namespace tandem
