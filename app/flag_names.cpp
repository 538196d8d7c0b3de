#include "app/flag_names.h"

#include <algorithm>
#include <map>

#include "tandem/base/error.h"
#include "tandem/base/text.h"
#include "tandem/config/fields.h"

namespace tandem::app {

namespace {

// A word of the command line: "--name", "--name=value", or "-n4".
struct Word {
  std::string name;
  // Value with a leading "="; "" if the word has none.
  std::string value;
};

Word split_word(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals != std::string::npos) {
    return {with_dashes(text).substr(0, equals), text.substr(equals)};
  }
  const size_t digit = text.find_first_of("0123456789");
  const bool attached = digit != std::string::npos && digit > 1 && text[1] != '-' &&
                        text.find_first_not_of("0123456789", digit) == text.npos;
  return attached ? Word{text.substr(0, digit), "=" + text.substr(digit)}
                  : Word{with_dashes(text), ""};
}

// Returns the setting with this flag or alias, or null.
const Field* field_with_flag(const std::string& flag) {
  const auto& fields = config_fields();
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const auto& field) {
    const auto& names = field.other_flags;
    return flag == field.flag() ||
           std::find(names.begin(), names.end(), flag) != names.end();
  });
  return found == fields.end() ? nullptr : &*found;
}

// Replaces --nnodes MIN:MAX, which torchrun also accepts, by --nnodes MAX --min-nnodes
// MIN. Throws ConfigError if MIN or MAX is not a whole number.
void split_host_range(Arguments& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool attached = arguments[i].rfind("--nnodes=", 0) == 0;
    if (!attached && (arguments[i] != "--nnodes" || i + 1 == arguments.size())) {
      continue;
    }
    std::string& value = arguments[attached ? i : i + 1];
    const size_t first = attached ? value.find('=') + 1 : 0;
    const size_t colon = value.find(':', first);
    if (colon != std::string::npos) {
      const std::string least = value.substr(first, colon - first);
      if (!parse_number<int>(least) || !parse_number<int>(value.substr(colon + 1))) {
        throw ConfigError(
            "[command line] --nnodes is '" + value.substr(first) +
            "', expected a number of hosts, or MIN:MAX; change it");
      }
      value.erase(first, colon + 1 - first);
      arguments.push_back("--min-nnodes=" + least);
      return;
    }
  }
}

}  // namespace

std::string with_dashes(std::string flag) {
  const size_t end = std::min(flag.find('='), flag.size());
  std::replace(flag.begin(), flag.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return flag;
}

bool has_flag(const Arguments& arguments, const std::vector<std::string>& flags) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& text) {
    return std::find(flags.begin(), flags.end(), split_word(text).name) != flags.end();
  });
}

Arguments with_own_names(const Arguments& arguments) {
  Arguments own;
  std::map<const Field*, std::string> given;
  for (const auto& argument : arguments) {
    const Word word = split_word(argument);
    const auto* field = field_with_flag(word.name);
    if (field == nullptr) {
      own.push_back(argument);
      continue;
    }
    const auto& first = given.emplace(field, word.name).first->second;
    if (first != word.name) {
      throw ConfigError(
          "[command line] " + first + " and " + word.name +
          " are names of the same setting; leave one out");
    }
    own.push_back(field->flag() + word.value);
  }
  split_host_range(own);
  return own;
}

}  // namespace tandem::app
