// Output on a terminal: the progress bar, lines of epochs, colors.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "program.h"

namespace tandem::terminal_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kRed = "\033[31m";
const std::string kBold = "\033[1m";
const std::string kClear = "\r\033[K";

// Runs `tandem ARGUMENTS` in its own terminal.
class Terminal {
 public:
  explicit Terminal(Arguments arguments, const Variables& more = {}) {
    arguments.insert(arguments.begin(), program());
    std::vector<char*> words;
    for (auto& word : arguments) {
      words.push_back(word.data());
    }
    words.push_back(nullptr);
    pid_ = forkpty(&fd_, nullptr, nullptr, nullptr);
    if (pid_ == 0) {
      // Otherwise Ctrl-C discards output that the test has not read yet, which may
      // include the end of a line.
      termios settings{};
      tcgetattr(STDIN_FILENO, &settings);
      settings.c_lflag |= NOFLSH;
      tcsetattr(STDIN_FILENO, TCSANOW, &settings);
      unsetenv("NO_COLOR");
      setenv("TERM", "xterm", 1);
      for (const auto& [name, value] : more) {
        setenv(name.c_str(), value.c_str(), 1);
      }
      execv(words[0], words.data());
      _exit(127);
    }
    fcntl(fd_, F_SETFD, FD_CLOEXEC);
  }
  ~Terminal() {
    close(fd_);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // Returns all output so far, after it contains `text` or the program ended.
  const std::string& read_until(const std::string& text) {
    while (shown_.find(text) == std::string::npos && read_more()) {
    }
    return shown_;
  }
  const std::string& read_to_end() {
    while (read_more()) {
    }
    return shown_;
  }
  void press(char key) const {
    ASSERT_EQ(::write(fd_, &key, 1), 1);
  }

 private:
  bool read_more() {
    constexpr int kPatienceMs = 120'000;
    pollfd entry{fd_, POLLIN, 0};
    char block[4096];
    const ssize_t got =
        poll(&entry, 1, kPatienceMs) > 0 ? ::read(fd_, block, sizeof(block)) : -1;
    shown_.append(block, static_cast<size_t>(std::max<ssize_t>(0, got)));
    return got > 0;
  }

  int fd_ = -1;
  pid_t pid_ = -1;
  std::string shown_;
};

const std::vector<std::string> kShortRun = {"train",   "--model",     "simplenet",
                                            "--limit", "1280",        "--epochs",
                                            "2",       "--log-every", "2"};

TEST(Terminal, KeepsALineWithTheTrainingLossOfEachEpoch) {
  const auto shown = Terminal(kShortRun).read_to_end();
  EXPECT_THAT(shown, HasSubstr("samples/s  loss "));  // the bar
  expect_parts(
      shown,
      {kClear + "epoch 1/2  training loss ", kClear + "epoch 2/2  training loss "});
  expect_parts(
      tandem_run(kShortRun).output,
      {"\nepoch 1/2  training loss ", "\nepoch 2/2  training loss "});
}

TEST(Terminal, HasColorsForErrorsAndTheResult) {
  EXPECT_THAT(
      Terminal({"train", "--epochs", "x"}).read_to_end(), HasSubstr(kRed + "error:"));
  EXPECT_THAT(
      Terminal(kShortRun).read_to_end(), HasSubstr(kBold + "Finished training"));
}

TEST(Terminal, HasNoColorsWithNoColorOrOnADumbTerminalOrAPipe) {
  for (const auto& variable : Variables{{"NO_COLOR", "1"}, {"TERM", "dumb"}}) {
    const auto wrong = Terminal({"train", "--epochs", "x"}, {variable}).read_to_end();
    EXPECT_THAT(wrong, AllOf(HasSubstr("tandem: error: "), Not(HasSubstr(kRed))));
    const auto run = Terminal(kShortRun, {variable}).read_to_end();
    EXPECT_THAT(run, AllOf(HasSubstr("Finished training"), Not(HasSubstr(kBold))));
  }
  EXPECT_THAT(tandem_run({"train", "--epochs", "x"}).errors, Not(HasSubstr("\033")));
  EXPECT_THAT(
      Terminal({"train", "--epochs", "x"}, {{"NO_COLOR", ""}}).read_to_end(),
      HasSubstr(kRed));
}

class Interrupted : public testing::TestWithParam<const char*> {};

TEST_P(Interrupted, PrintsItsEndOnANewLine) {
  const Scratch scratch;
  Terminal terminal(
      {"train", "--model", "simplenet", "--epochs", "100000", "--nproc", GetParam(),
       "--limit", "1280", "--log-every", "5", "--out", scratch / "run"});
  terminal.read_until(" left");
  terminal.press('\003');
  auto shown = terminal.read_to_end();
  // The terminal echoes Ctrl-C at any place of a line.
  if (const size_t echo = shown.find("^C"); echo != std::string::npos) {
    shown.erase(echo, 2);
  }
  const size_t end = shown.find("tandem: [train] stopped by a signal");
  ASSERT_NE(end, std::string::npos) << shown;
  EXPECT_THAT(shown.substr(0, end), testing::EndsWith("\n" + kClear));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Interrupted, testing::Values("1", "2"));

}  // namespace tandem::terminal_test
