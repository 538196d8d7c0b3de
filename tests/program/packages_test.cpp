// Files of each installed component, of which scripts/package makes Debian's packages.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>

#include "program.h"

namespace tandem::packages_test {

namespace fs = std::filesystem;

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Not;

using Names = std::set<std::string>;

// Returns all files and links below a folder, relative to it.
Names files_below(const fs::path& root) {
  Names names;
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    if (!entry.is_directory()) {
      names.insert(entry.path().lexically_relative(root).string());
    }
  }
  return names;
}

// A component that is installed alone, once for all tests.
class Installed {
 public:
  explicit Installed(const std::string& component) {
    checked(run_command(
        {"cmake", "--install", binary_dir(), "--component", component, "--prefix",
         prefix()}));
  }
  std::string prefix() const {
    return scratch_ / "prefix";
  }
  Names files(const std::string& folder = "") const {
    return files_below(fs::path(prefix()) / folder);
  }
  // Returns the path of the only file with this name.
  std::string path_of(const std::string& name) const {
    for (const auto& file : files()) {
      if (fs::path(file).filename() == name) {
        return prefix() + "/" + file;
      }
    }
    ADD_FAILURE() << name << " is not installed";
    return "";
  }

 private:
  const Scratch scratch_;
};

const Installed& runtime() {
  static const Installed installed("runtime");
  return installed;
}

const Installed& development() {
  static const Installed installed("development");
  return installed;
}

Names words_of(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  Names words;
  for (std::sregex_iterator at(text.begin(), text.end(), expression), end; at != end;
       ++at) {
    words.insert((*at)[1]);
  }
  return words;
}

Names commands() {
  return words_of(tandem_run({"--describe"}).output, "      \"name\": \"([a-z]+)\"");
}

// Libraries that LibTorch names but does not use (cmake/TandemUnused.cmake).
Names unused_libraries() {
  const auto folder = binary_dir() + "/unused";
  return fs::exists(folder) ? files_below(folder) : Names();
}

// --- files ---

TEST(Packages, ProgramHasRecipesAndAPageForEachCommand) {
  auto files = runtime().files();
  for (const auto& recipe : fs::directory_iterator(source_dir() + "/recipes")) {
    const auto name = "share/tandem/recipes/" + recipe.path().filename().string();
    EXPECT_EQ(files.erase(name), 1u) << name;
  }
  auto pages = commands();
  EXPECT_THAT(pages, IsSupersetOf({"train", "launch", "data", "bench", "version"}));
  if (TANDEM_HAS_PAGES) {
    EXPECT_EQ(files.erase("share/man/man1/tandem.1.gz"), 1u);
    for (const auto& command : pages) {
      const auto name = "share/man/man1/tandem-" + command + ".1.gz";
      EXPECT_EQ(files.erase(name), 1u) << name;
    }
    for (const std::string name :
         {"bash-completion/completions/tandem", "zsh/vendor-completions/_tandem",
          "fish/vendor_completions.d/tandem.fish"}) {
      EXPECT_EQ(files.erase("share/" + name), 1u) << name;
    }
  }
  EXPECT_EQ(
      files.erase("libexec/tandem/libtandem_cuda.so") > 0,
      fs::exists(binary_dir() + "/bin/libtandem_cuda.so"));
  for (const auto& name : unused_libraries()) {
    EXPECT_EQ(files.erase("libexec/tandem/unused/" + name), 1u) << name;
  }
  EXPECT_THAT(
      files, ElementsAre(
                 "bin/tandem", "libexec/tandem/tandem-worker",
                 "share/doc/tandem/changelog.Debian.gz",
                 "share/doc/tandem/changelog.gz", "share/doc/tandem/copyright"));
}

TEST(Packages, LibraryHasHeadersAndExamplesOnly) {
  const auto files = development().files();
  EXPECT_THAT(
      files,
      IsSupersetOf({"include/tandem/tandem.h", "share/doc/libtandem-dev/copyright"}));
  EXPECT_THAT(
      development().files("share/doc/libtandem-dev/examples"),
      IsSupersetOf({"CMakeLists.txt", "hello_ranks/main.cpp", "own_loop/main.cpp"}));
  for (const auto& name : {"libtandem.a", "libtandem_base.a", "tandemConfig.cmake"}) {
    development().path_of(name);
  }
  for (const auto& file : runtime().files()) {
    EXPECT_THAT(files, Not(Contains(file)));
  }
}

// --- an installed program ---

CommandResult installed_run(const Arguments& arguments) {
  return run_command(with({runtime().prefix() + "/bin/tandem"}, arguments));
}

TEST(Packages, AnInstalledProgramFindsWorkerAndRecipes) {
  const auto result = checked(installed_run(
      {"train", "ddp-linear", "--data", "digits", "--limit", "64", "--epochs", "1",
       "--nproc", "2"}));
  EXPECT_THAT(result.output, HasSubstr("2 ranks"));
  checked(installed_run({"train", "quickstart.toml", "--dry-run"}));
}

// The real libraries would load their own, among them GDAL's and Qt's.
TEST(Packages, AnInstalledWorkerLoadsNoUnusedLibrary) {
  if (unused_libraries().empty()) {
    GTEST_SKIP() << "this LibTorch names no library without a use for it, as Debian's "
                    "does; scripts/build, then scripts/test -R LibTorchOnlyNames";
  }
  const auto worker = runtime().path_of("tandem-worker");
  const auto loaded = run_command({"ldd", "-r", worker});
  EXPECT_THAT(loaded.output, Not(HasSubstr("undefined symbol")));
  EXPECT_THAT(loaded.output, Not(HasSubstr("libgdal")));
  EXPECT_THAT(
      words_of(loaded.output, "=> /(?:usr/)?lib/[^ ]*(lib(?:opencv_|av|sw)[^ ]*)"),
      IsEmpty());
  // The first name that it loads; the other names are links to the same file.
  const auto found = words_of(loaded.output, "=> [^ ]*/libexec/tandem/unused/([^ ]+)");
  EXPECT_EQ(found.size(), 1u) << loaded.output;
  // Without the folder the worker loads the real libraries.
  const Scratch scratch;
  const auto alone = scratch / "tandem-worker";
  fs::copy(worker, alone);
  EXPECT_THAT(run_command({"ldd", alone}).output, HasSubstr("libgdal"));
  checked(run_command({alone, "train", "--help"}));
}

TEST(Packages, CompareAcceptsNamesOfRecipes) {
  const Scratch scratch;
  checked(installed_run(
      {"compare", "quickstart", "--limit", "64", "--out", scratch / "compare"}));
  EXPECT_THAT(read_file(scratch / "compare/table.json"), HasSubstr("\"done\""));
}

TEST(Packages, AnUnknownRecipeSuggestsTheNearestAndListsAll) {
  const auto result = installed_run({"train", "quikstart"});
  expect_exit(
      result, 2,
      {"'quikstart'", "did you mean 'quickstart'?",
       "choose one of amp-fp16, amp-nccl, ",
       "sync-batch-norm (in " + runtime().prefix() + "/share/tandem/recipes)"});
}

TEST(Packages, AnInstalledRecipeIsFoundByItsOldName) {
  for (const char* name : {"002-ddp", "002-ddp.toml"}) {
    const Scratch scratch;
    checked(installed_run(
        {"compare", name, "--data", "digits", "--limit", "64", "--epochs", "0", "--out",
         scratch / "compare"}));
    EXPECT_THAT(read_file(scratch / "compare/table.json"), HasSubstr("\"ddp-linear\""));
  }
}

TEST(Packages, RecipesListsInstalledRecipes) {
  expect_parts(
      installed_run({"recipes"}).output,
      {"\nddp                   003  DistributedDataParallel",
       "\nquickstart            -    A first run"});
}

TEST(Packages, AnUnknownFlagIsReportedBeforeAnUnknownRecipe) {
  for (const char* command : {"train", "compare", "scaling"}) {
    const auto result = installed_run({command, "--data", "digits", "--epoch", "net"});
    EXPECT_EQ(result.status.code, 2) << command;
    EXPECT_THAT(
        result.errors,
        HasSubstr("unknown argument '--epoch', did you mean '--epochs'?"));
  }
}

TEST(Packages, AFileOverridesAnInstalledRecipeAndAFolderDoesNot) {
  const Scratch scratch;
  make_directories(scratch / "quickstart");
  replace_file(scratch / "ddp-linear", "nosuch = 1\n");
  const auto in_scratch = [&](const std::string& recipe) {
    return run_command(
        {"sh", "-c", "cd \"$1\" && exec \"$0\" train \"$2\" --dry-run --nproc 1",
         runtime().prefix() + "/bin/tandem", scratch / "", recipe});
  };
  EXPECT_THAT(in_scratch("ddp-linear").errors, HasSubstr("unknown key 'nosuch'"));
  checked(in_scratch("quickstart"));
}

// --- pages ---

class Pages : public testing::Test {
 protected:
  void SetUp() override {
    if (!TANDEM_HAS_PAGES) {
      GTEST_SKIP() << "pages are made by Python 3.11; scripts/setup, then a new build: "
                      "scripts/test -R Pages";
    }
  }
  // Returns the text of a page without hyphenation and line breaks.
  static CommandResult read(const std::string& name) {
    return run_command(
        {"man", "--warnings", "--no-hyphenation", "-E", "ascii", "-l",
         runtime().path_of(name + ".1.gz")},
        {{"MANWIDTH", "200"}, {"MAN_KEEP_FORMATTING", ""}});
  }
};

TEST_F(Pages, HaveNoErrorsAndAllSections) {
  for (const auto& command : commands()) {
    const auto page = read("tandem-" + command);
    EXPECT_TRUE(page.status.ok()) << command;
    EXPECT_EQ(page.errors, "") << command;
    for (const char* section :
         {"NAME\n", "SYNOPSIS\n", "DESCRIPTION\n", "EXIT STATUS\n", "SEE ALSO\n"}) {
      EXPECT_THAT(page.output, HasSubstr(section)) << command;
    }
  }
  const auto page = read("tandem");
  EXPECT_EQ(page.errors, "");
  expect_parts(page.output, {"ENVIRONMENT\n", "EXAMPLES\n", "tandem-train(1)"});
}

TEST_F(Pages, NameEveryFlagOfTheHelp) {
  for (const auto& command :
       {Arguments{"train"}, Arguments{"launch"}, Arguments{"plan"}, Arguments{"eval"},
        Arguments{"predict"}, Arguments{"bench", "allreduce"},
        Arguments{"data", "fetch"}}) {
    const auto help = tandem_run(with(command, {"--help"})).output;
    const auto flags = words_of(help, "(?:\n  |,)(--[a-z][a-z-]*)(?=[ ,\n])");
    EXPECT_THAT(flags, Contains("--help"));
    const auto page = read("tandem-" + command[0]).output;
    for (const auto& flag : flags) {
      EXPECT_THAT(page, testing::ContainsRegex(flag + "[ ,\n]")) << command[0];
    }
  }
}

TEST_F(Pages, ListTheValuesOfASettingWithTheirMeaning) {
  expect_parts(
      read("tandem-train").output,
      {"convnet_bn", "one set of parameters without locks", "Default: 64"});
}

TEST_F(Pages, AreAlsoPagesOfTheSite) {
  const Scratch scratch;
  checked(run_command(
      {"python3", source_dir() + "/packaging/pages", program(), scratch / "commands.md",
       scratch / "recipes.md"},
      {{"PYTHONDONTWRITEBYTECODE", "1"}}));
  const auto reference = read_file(scratch / "commands.md");
  for (const auto& command : commands()) {
    EXPECT_THAT(reference, HasSubstr("## tandem " + command + "\n"));
  }
  expect_parts(
      reference,
      {"\n`--epochs` *N*\n: ", "  * `convnet_bn`: 2 convolutions 5x5, batch norm"});
  expect_parts(
      read_file(scratch / "recipes.md"),
      {"| [hogwild](#hogwild) | [001](../tutorials/001.md) | Hogwild",
       "strategy = \"hogwild\"\n"});
}

// --- completion ---

struct Completion {
  const char* name;
  // The last word is completed.
  std::vector<std::string> words;
  // Some of the offered words, and a word that must not be offered.
  Names offers;
  std::string leaves_out = "nothing";
};

using tandem::operator<<;

class Completions : public testing::TestWithParam<Completion> {
 protected:
  void SetUp() override {
    if (!TANDEM_HAS_PAGES) {
      GTEST_SKIP() << "completion is made by Python 3.11; scripts/setup, then a new "
                      "build: scripts/test -R Completions";
    }
  }
};

TEST_P(Completions, OfBash) {
  const auto result = run_command(with(
      {"bash", "-c",
       "source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _tandem tandem\n"
       "printf '%s\\n' \"${COMPREPLY[@]}\"",
       runtime().prefix() + "/share/bash-completion/completions/tandem",
       runtime().prefix() + "/bin/tandem"},
      GetParam().words));
  EXPECT_EQ(result.errors, "");
  const auto offered = sorted_lines(result.output);
  EXPECT_THAT(offered, IsSupersetOf(GetParam().offers));
  EXPECT_THAT(offered, Not(Contains(GetParam().leaves_out)));
}

TEST_P(Completions, OfFish) {
  const Scratch home;
  std::string line = "tandem";
  for (const auto& word : GetParam().words) {
    line += word == "=" ? word : line.back() == '=' ? word : " " + word;
  }
  const auto result = checked(run_command(
      {"fish", "--no-config", "-c",
       "set -x PATH $argv[1]/bin $PATH\n"
       "source $argv[1]/share/fish/vendor_completions.d/tandem.fish\n"
       "complete -C $argv[2]",
       runtime().prefix(), line},
      {{"HOME", home / ""}}));
  EXPECT_EQ(result.errors, "");
  Names offered;
  for (const auto& row : sorted_lines(result.output)) {
    const auto word = row.substr(0, row.find('\t'));
    // After --flag= fish repeats the flag.
    offered.insert(word.substr(word.find('=') + 1));
  }
  EXPECT_THAT(offered, IsSupersetOf(GetParam().offers));
  EXPECT_THAT(offered, Not(Contains(GetParam().leaves_out)));
}

INSTANTIATE_TEST_SUITE_P(
    Lines, Completions,
    testing::Values(
        Completion{"Command", {""}, {"train", "launch", "doctor"}, "step"},
        Completion{"Action", {"bench", ""}, {"step", "allreduce"}, "train"},
        Completion{"Flag", {"train", "--mod"}, {"--model"}, "--momentum"},
        Completion{
            "FlagOfAnAction",
            {"bench", "step", "--"},
            {"--steps", "--json"},
            "--nproc"},
        Completion{
            "Choice", {"train", "--strategy", ""}, {"data_parallel", "hogwild"}, "net"},
        Completion{
            "ChoiceBehindASign",
            {"train", "--model", "=", "con"},
            {"convnet", "convnet_bn"},
            "net"},
        Completion{"DataSet", {"train", "--data", ""}, {"digits", "mnist"}},
        Completion{"FileOfAFlag", {"train", "--init", ""}, {}, "ddp-linear"},
        Completion{"Model", {"model", "con"}, {"convnet", "convnet_bn"}, "custom"},
        Completion{"Recipe", {"train", "pipe"}, {"pipeline-1f1b"}, "ddp"},
        Completion{
            "AnotherRecipe", {"compare", "ddp-linear", "sync"}, {"sync-batch-norm"}}),
    testing::PrintToStringParamName());

TEST_F(Pages, ZshUnderstandsItsCompletion) {
  const auto result = checked(run_command({"zsh", "-n", runtime().path_of("_tandem")}));
  EXPECT_EQ(result.errors, "");
}

// --- an installed library ---

TEST(Packages, PkgConfigHasTheFlagsOfACompiler) {
  if (!TANDEM_HAS_PC) {
    GTEST_SKIP() << "pkg-config is for Debian's LibTorch; scripts/build, then "
                    "scripts/test -R Packages.PkgConfigHasTheFlagsOfACompiler";
  }
  const auto folder = fs::path(development().path_of("tandem.pc")).parent_path();
  const Scratch scratch;
  // With every object of the libraries.
  checked(run_command(
      {"sh", "-c",
       "c++ -O0 -o \"$0\" \"$1\" -Wl,--whole-archive -ltandem -ltandem_base "
       "-Wl,--no-whole-archive $(pkg-config --cflags --libs tandem)",
       scratch / "hello", source_dir() + "/examples/hello_ranks/main.cpp"},
      {{"PKG_CONFIG_PATH", folder.string()}}));
  const auto run = tandem_run({"launch", "--nproc-per-node", "2", scratch / "hello"});
  EXPECT_THAT(run.output, HasSubstr("1 + ... + 2 = 3")) << run.errors;
}

TEST(Packages, TheExamplesAreACMakeProject) {
  const Scratch scratch;
  checked(run_command(
      {"cmake", "-G", "Ninja", "-B", scratch / "build", "-S",
       development().prefix() + "/share/doc/libtandem-dev/examples",
       "-DCMAKE_PREFIX_PATH=" + development().prefix()}));
  const auto targets = run_command({"ninja", "-C", scratch / "build", "-t", "targets"});
  for (const auto& example : fs::directory_iterator(source_dir() + "/examples")) {
    const bool needs_mpi = example.path().filename() == "mpi_loop";
    const bool is_program = fs::exists(example.path() / "main.cpp");
    if (is_program && !(needs_mpi && TANDEM_HAS_MPI == 0)) {
      EXPECT_THAT(
          targets.output,
          HasSubstr("example_" + example.path().filename().string() + ": phony"));
    }
  }
}

}  // namespace tandem::packages_test
