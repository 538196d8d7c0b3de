#include "app/command_line.h"

#include "tandem/base/error.h"
#include "tandem/config/fields.h"

namespace tandem::app {

namespace {

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

}  // namespace tandem::app
