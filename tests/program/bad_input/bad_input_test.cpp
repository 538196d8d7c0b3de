#include "bad_input.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "tandem/data/idx.h"

namespace tandem {

namespace fs = std::filesystem;
using testing::HasSubstr;

void Stage::write(const std::string& name, const std::string& content) const {
  std::ofstream(*this / name, std::ios::binary) << content;
}

std::string Stage::read(const std::string& name) const {
  return read_file(*this / name);
}

void Stage::cut(const std::string& name, size_t size) const {
  fs::resize_file(*this / name, size);
}

void Stage::exchange(
    const std::string& name, const std::string& from, const std::string& to) const {
  auto content = read(name);
  const size_t at = content.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  ASSERT_EQ(from.size(), to.size());
  write(name, content.replace(at, from.size(), to));
}

void Stage::data(const std::string& name, int64_t height, int64_t width) const {
  constexpr int64_t kCount = 64;
  IdxArray images = {{kCount, height, width}, {}};
  IdxArray labels = {{kCount}, {}};
  for (int64_t i = 0; i < kCount; ++i) {
    labels.values.push_back(static_cast<uint8_t>(i % 10));
    for (int64_t at = 0; at < height * width; ++at) {
      images.values.push_back(static_cast<uint8_t>((i % 10) * at % 251));
    }
  }
  fs::create_directories(*this / name);
  for (const std::string part : {"train", "t10k"}) {
    const std::string start = fs::path(*this / name) / part;
    write_idx(start + "-images-idx3-ubyte", images);
    write_idx(start + "-labels-idx1-ubyte", labels);
  }
}

void Stage::finished_run(const std::string& name) const {
  run_ok(
      {"train", "--data", *this / "data", "--model", "simplenet", "--epochs", "2",
       "--out", *this / name});
}

void Stage::checkpoint() const {
  finished_run("run");
  fs::rename(*this / "run/checkpoints/step-00000002", *this / "checkpoint");
  fs::remove_all(*this / "run");
}

void Stage::make_crowd() const {
  ::listen(full_.socket.fd(), 0);
  // One of these connections exceeds the backlog, so later ones are not accepted.
  for (int i = 0; i < 4; ++i) {
    const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
    crowd_.push_back(connect_once(full_.address, soon));
  }
}

std::string Stage::filled(std::string text) const {
  if (crowd_.empty() && text.find("@full") != std::string::npos) {
    make_crowd();
  }
  const std::pair<std::string, std::string> fills[] = {
      {"@/", *this / ""},
      {"@port", port_of(listener_)},
      {"@full", port_of(full_)},
      {"@free", free_}};
  for (const auto& [mark, value] : fills) {
    for (size_t at = 0; (at = text.find(mark)) != std::string::npos;) {
      text.replace(at, mark.size(), value);
    }
  }
  return text;
}

void PrintTo(const BadInputCase& bad, std::ostream* out) {
  for (const auto& [name, value] : bad.variables) {
    *out << name << "=" << value << " ";
  }
  *out << "tandem";
  for (const auto& argument : bad.arguments) {
    *out << " " << argument;
  }
}

Arguments train(Arguments more) {
  Arguments arguments = {"train"};
  const std::vector<std::pair<std::string, std::string>> defaults = {
      {"--data", "@/data"}, {"--model", "simplenet"}};
  for (const auto& [flag, value] : defaults) {
    if (std::find(more.begin(), more.end(), flag) == more.end()) {
      arguments.push_back(flag);
      arguments.push_back(value);
    }
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Prepare data_and(const Prepare& change) {
  return [=](const Stage& stage) {
    with_data(stage);
    change(stage);
  };
}

Prepare checkpoint_and(const Prepare& change) {
  return [=](const Stage& stage) {
    with_checkpoint(stage);
    change(stage);
  };
}

namespace {

// Returns every file with its content.
std::map<std::string, std::string> contents(const std::string& folder) {
  std::map<std::string, std::string> found;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    const auto path = entry.path().string();
    found[path] = entry.is_regular_file() ? read_file(path) : "";
  }
  return found;
}

bool is_half_written(const fs::path& path) {
  const auto name = path.filename().string();
  // replace_file() adds a dot and six letters.
  const auto ending = path.extension().string();
  const bool temporary = name.rfind("tmp", 0) == 0 || name.rfind("part", 0) == 0 ||
                         (ending.size() == 7 && ending != ".safetensors");
  const bool torn =
      name.rfind("step-", 0) == 0 && !(fs::exists(path / "model.safetensors") &&
                                       fs::exists(path / "training.safetensors"));
  return temporary || torn;
}

void expect_files_kept(
    const std::map<std::string, std::string>& before, const std::string& folder) {
  const auto after = contents(folder);
  for (const auto& [path, content] : before) {
    const auto found = after.find(path);
    ASSERT_NE(found, after.end()) << path << " is gone";
    EXPECT_EQ(found->second == content, true) << path << " has changed";
  }
  for (const auto& entry : after) {
    if (before.count(entry.first) == 0) {
      EXPECT_FALSE(is_half_written(entry.first)) << entry.first;
    }
  }
}

// Returns processes whose environment names the scratch directory.
std::vector<std::string> processes_of(const std::string& folder) {
  std::vector<std::string> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "environ");
    const std::string text(std::istreambuf_iterator<char>(file), {});
    if (text.find("TMPDIR=" + folder) != std::string::npos) {
      found.push_back(entry.path().filename());
    }
  }
  return found;
}

// Runs "$@" with its own file system, whose files are copied at the end.
constexpr const char* kOnDisk = R"(
  options=$1; disk=$2; shift 2
  mount -t tmpfs -o "$options" none "$disk" || exit 77
  "$@"; code=$?
  cp -r "$disk" "$disk.after"; exit $code)";

std::vector<std::string> command_of(const BadInputCase& bad, const Stage& stage) {
  Arguments command;
  if (!bad.disk.empty()) {
    command = {"unshare", "-m", "sh", "-c", kOnDisk, "sh", bad.disk, stage / "disk"};
  } else if (!bad.shell.empty()) {
    command = {"sh", "-c", bad.shell, "sh"};
  }
  command.push_back(program());
  for (const auto& argument : bad.arguments) {
    command.push_back(stage.filled(argument));
  }
  return command;
}

CommandResult run_case(const BadInputCase& bad, const Stage& stage) {
  Variables variables = {
      {"TANDEM_DATA", "/nonexistent"},
      {"XDG_CACHE_HOME", stage / "cache"},
      {"TMPDIR", stage / "tmp"}};
  for (const auto& [name, value] : bad.variables) {
    variables.emplace_back(name, stage.filled(value));
  }
  return run_command(command_of(bad, stage), variables, 120);
}

}  // namespace

TEST_P(BadInput, PrintsOneLineAndLeavesNoFiles) {
  const auto& bad = GetParam();
  if (!bad.disk.empty() &&
      !run_command({"unshare", "-m", "mount", "-t", "tmpfs", "none", "/mnt"})
           .status.ok()) {
    GTEST_SKIP() << "may not mount a file system; as root: scripts/test -R BadInput";
  }
  const Stage stage;
  for (const char* name : {"tmp", "disk"}) {
    fs::create_directories(stage / name);
  }
  if (bad.prepare) {
    bad.prepare(stage);
  }
  const auto before = contents(stage / "");
  const auto result = run_case(bad, stage);

  EXPECT_EQ(result.status.signal, 0) << result.status.describe();
  EXPECT_EQ(result.status.code, bad.code) << result.errors;
  EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1)
      << result.errors;
  EXPECT_THAT(result.errors, testing::StartsWith("tandem: "));
  for (const auto& text : bad.says) {
    EXPECT_THAT(result.errors, HasSubstr(stage.filled(text)));
  }
  expect_files_kept(before, stage / "");
  EXPECT_FALSE(fs::exists(stage / "out")) << "the run wrote before it was refused";
  EXPECT_TRUE(fs::is_empty(stage / "tmp"));
  EXPECT_THAT(processes_of(stage / ""), testing::IsEmpty());
  if (bad.after) {
    bad.after(stage);
  }
}

}  // namespace tandem
