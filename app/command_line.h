#pragma once

#include <fmt/core.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "app/command.h"
#include "app/describe.h"
#include "tandem/base/error.h"
#include "tandem/config/foreign_flags.h"
#include "tandem/config/run_config.h"

namespace tandem::app {

/// Exception that parse() throws after it has printed the text of a flag such as
/// --help.
struct HelpShown {};

/// Returns the error of a command whose output could not be written.
inline DataError cannot_write_output(int reason) {
  return DataError(
      "[app] cannot write the output: " + std::string(std::strerror(reason)) +
      "; send it elsewhere");
}

/// Flushes standard output. Throws DataError if it could not be written.
inline void check_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    throw cannot_write_output(errno);
  }
}

/// Returns a CLI11 validator, which checks that a value is a T from `least` to `most`.
/// The error contains `what`, a description of these values.
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

inline CLI::Validator whole_number(int64_t least, int64_t most = 1'000'000'000) {
  return within(least, most, fmt::format("a whole number from {} to {}", least, most));
}
inline CLI::Validator number(double least, double most) {
  return within(least, most, fmt::format("a number from {:g} to {:g}", least, most));
}

/// Returns a message about a required argument that is missing: a flag such as --out,
/// or a word such as RUN.
inline std::string explain_missing(const CLI::App& app, const std::string& name) {
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

/// Returns the message of a CLI11 error; a clearer message if an argument is missing,
/// or if a flag has no value or is given more than once.
inline std::string explain(const CLI::App& app, const CLI::ParseError& error) {
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

/// Parses arguments with CLI11. Throws HelpShown for --help and --describe. Throws
/// ConfigError for invalid arguments; for an unknown flag, the error names the most
/// similar flag.
inline void parse(CLI::App& app, const Arguments& arguments) {
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
  std::vector<std::string> flags;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) {
      flags.push_back("--" + name);
    }
  }
  const auto extras = app.remaining();
  if (!extras.empty()) {
    const auto flag = extras.front().substr(0, extras.front().find('='));
    const auto advice = advice_on(flag);
    throw ConfigError(
        "[command line] unknown argument '" + flag + "'" +
        (advice.empty()
             ? did_you_mean(flag, flags) + "; see " + app.get_name() + " --help"
             : advice));
  }
}

/// Settings that, with `data`, define the samples: their sizes and their targets.
inline constexpr const char* kSampleSettings[] = {
    "target", "shape", "image_size", "block_size", "loss"};

/// Adds the flag that `tandem train` has for a setting. Parsing throws ConfigError for
/// an invalid value. `config` must outlive `app`.
CLI::Option* add_setting(CLI::App& app, RunConfig& config, const char* name);

/// Adds --model for commands that read a checkpoint: the path of its network file.
/// Parsing throws ConfigError for another value. `path` must outlive `app`.
void add_network_file(CLI::App& app, std::string& path);

}  // namespace tandem::app
