#include "app/command_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "app/describe.h"
#include "tandem/config/fields.h"
#include "tandem/config/foreign_flags.h"

namespace tandem::app {

namespace {

// Returns a CLI11 validator, which checks that a value is a T from `least` to `most`.
// The error contains `what`, a description of these values.
template <typename T>
CLI::Validator within(T least, T most, const std::string& what) {
  const auto check = [=](const std::string& text) -> std::string {
    T value = 0;
    const bool fits =
        CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
    return fits ? "" : "'" + text + "' is not " + what;
  };
  return {check, ""};
}

// Returns a message about a required argument that is missing: a flag such as --out,
// or a word such as RUN.
std::string explain_missing(const CLI::App& app, const std::string& name) {
  const auto* option = app.get_option_no_throw(name);
  if (option == nullptr) {
    return name + " is missing; see " + app.get_name() + " --help";
  }
  std::string label = name;
  if (option->get_positional()) {
    std::transform(label.begin(), label.end(), label.begin(), ::toupper);
  }
  return label + " is missing, expected " + option->get_description() + "; write " +
         app.get_name() + " " + label + (label == name ? " VALUE" : "");
}

// Returns the message of a CLI11 error; a clearer message if an argument is missing,
// or if a flag has no value or is given more than once.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = first_line(error);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    return explain_missing(app, text.substr(0, text.find(" is required")));
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr) {
    return text;
  }
  const std::string flag = text.substr(0, text.find(':'));
  return text.find("received") != std::string::npos
             ? flag + " is given more than once; leave all but one out"
             : flag + " has no value; write a value after it";
}

// Throws ConfigError for an argument that CLI11 has not parsed.
[[noreturn]] void refuse_unknown(const CLI::App& app, const std::string& argument) {
  std::vector<std::string> flags;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) {
      flags.push_back("--" + name);
    }
  }
  const auto flag = argument.substr(0, argument.find('='));
  const auto advice = advice_on(flag);
  throw ConfigError(
      "[command line] unknown argument '" + flag + "'" +
      (advice.empty()
           ? did_you_mean(flag, flags) + "; see " + app.get_name() + " --help"
           : advice));
}

// Returns the help of a setting, including the values that `tandem train` lists at the
// end of its help.
std::string help_of(const Field& field) {
  if (!field.words_at_the_end) {
    return field.help();
  }
  std::vector<std::string> names;
  for (const auto& word : field.words) {
    names.push_back(word.name);
  }
  return field.what + ": " + join(names);
}

}  // namespace

DataError cannot_write_output(int reason) {
  return DataError(
      "[app] cannot write the output: " + std::string(std::strerror(reason)) +
      "; send it elsewhere");
}

void check_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw cannot_write_output(errno);
  }
}

CLI::Validator whole_number(int64_t least, int64_t most) {
  return within(least, most, fmt::format("a whole number from {} to {}", least, most));
}
CLI::Validator number(double least, double most) {
  return within(least, most, fmt::format("a number from {:g} to {:g}", least, most));
}

void parse(CLI::App& app, const Arguments& arguments) {
  app.allow_extras();
  app.set_help_flag("-h,--help", "show this help");
  if (arguments == Arguments{kDescribeFlag}) {
    std::cout << describe(app);
    throw HelpShown{};
  }
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    throw HelpShown{};
  } catch (const CLI::ParseError& error) {
    throw ConfigError("[command line] " + explain(app, error));
  }
  if (const auto extras = app.remaining(); !extras.empty()) {
    refuse_unknown(app, extras.front());
  }
}

CLI::Option* add_setting(CLI::App& app, RunConfig& config, const char* name) {
  const Field& field = find_field(name, app.get_name());
  const auto take = [&config, &field](const std::string& text) {
    set_field(config, field, text, field.flag());
  };
  const std::string help = help_of(field);
  if (field.type == Field::Type::boolean) {
    const std::string word = field.flag().substr(2);
    return app.add_flag("--" + word + ",!--no-" + word, help)->each(take);
  }
  return app.add_option_function<std::string>(field.flag(), take, help);
}

void add_network_file(CLI::App& app, std::string& path) {
  app.add_option_function<std::string>(
      "--model",
      [&path](const std::string& text) {
        if (!find_field("model", "--model").is_path(text)) {
          throw ConfigError(
              "[command line] --model is '" + text +
              "', expected a network file, NET.pt2 or NET.pt; leave out --model");
        }
        path = text;
      },
      "NET.pt2 or NET.pt, the network file of the training (default: the copy in the "
      "run's directory)");
}

void add_trust(CLI::App& app, bool& trusts) {
  app.add_flag(
      "--trust", trusts,
      "run the code of TorchScript (.pt) that a recipe or the folder of a run or "
      "checkpoint names (default: only code of a file that --model names)");
}

}  // namespace tandem::app
