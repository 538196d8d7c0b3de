#include "tandem/base/error.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <system_error>

#include "tandem/base/process_limits.h"
#include "tests/base/test_tools.h"

namespace tandem::error_test {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// Expects that `name` is similar to `similar`, one of `candidates`, or to none if
// `similar` is "".
void expect_similar(
    const std::string& name, const std::vector<std::string>& candidates,
    const std::string& similar) {
  EXPECT_EQ(
      did_you_mean(name, candidates),
      similar.empty() ? "" : ", did you mean '" + similar + "'?")
      << name;
}

TEST(DidYouMean, ReturnsTheNearestCandidate) {
  expect_similar("adma", {"sgd", "adam", "adadelta"}, "adam");
  expect_similar("data_paralel", {"sequential", "data_parallel"}, "data_parallel");
  // The first of equally near candidates.
  expect_similar("layer3", {"layer1", "layer2"}, "layer1");
  // Inserted, missing, replaced and swapped letters.
  for (const auto* name : {"momentu", "mommentum", "nomentum", "mometnum"}) {
    expect_similar(name, {"momentum"}, "momentum");
  }
  expect_similar("sdg", {"adam", "sgd"}, "sgd");
  expect_similar("sgb", {"adam", "sgd"}, "sgd");
  // Four letters differ, of thirteen.
  expect_similar("bucketbytessz", {"bucket_bytes"}, "bucket_bytes");
}

TEST(DidYouMean, IsEmptyIfNoCandidateIsNear) {
  expect_similar("pipeline", {"sgd", "adam"}, "");
  expect_similar("pipeline", {}, "");
  expect_similar("z", {"a", "b"}, "");
  expect_similar("foo", {"lr", "eps", "rho", "std"}, "");
  expect_similar("abcd", {"wxyd"}, "");
}

TEST(DidYouMean, IsEmptyForANameOfManyMegabytes) {
  // Computing edit distances of this name would take minutes; the time limit of the
  // test is the check.
  const std::vector<std::string> names(100, std::string(1000, 'x'));
  EXPECT_EQ(did_you_mean(std::string(20'000'000, 'x'), names), "");
}

TEST(Error, IsOneLineOfPrintableCharacters) {
  const std::string name("a\nb\x1b[2J\x7f\0c", 10);
  EXPECT_STREQ(DataError("'" + name + "' \xc3\xa4").what(), "'a?b?[2J??c' \xc3\xa4");
  EXPECT_STREQ(CommError("x\ny", "z\r").what(), "[comm] x?y failed: z?");
}

TEST(ExitCode, IsOneForUnknownCodesOfOtherProcesses) {
  for (const int code : {2, 75}) {
    EXPECT_EQ(known_exit_code(code), code);
  }
  for (const int code : {1, 0, 3, -1, 74, 76, 143}) {
    EXPECT_EQ(known_exit_code(code), 1);
  }
  EXPECT_THROW(throw_for_exit_code(2, "x"), ConfigError);
  EXPECT_THROW(throw_for_exit_code(75, "x"), StoppedError);
  EXPECT_EQ(error_of<Error>([] { throw_for_exit_code(7, "x"); }), "x");
}

TEST(ExitCode, DependsOnTheClassOfTheError) {
  EXPECT_EQ(exit_code(StoppedError("x")), 75);
  EXPECT_EQ(exit_code(ConfigError("x")), 2);
  EXPECT_EQ(exit_code(DataError("x")), 1);
  EXPECT_EQ(exit_code(CommError("x", "y")), 1);
  EXPECT_EQ(exit_code(InternalError("x")), 1);
  EXPECT_EQ(exit_code(std::runtime_error("x")), 1);
}

TEST(FirstLine, EndsAtTheNewline) {
  EXPECT_EQ(
      first_line(std::runtime_error("bad shape\nframe #0\nframe #1")), "bad shape");
  EXPECT_EQ(first_line(std::runtime_error("bad shape")), "bad shape");
  EXPECT_EQ(first_line(std::runtime_error("")), "");
}

TEST(FirstLine, NamesSettingsToLowerIfMemoryRunsOut) {
  const auto expect_advice = [](const std::exception& error, const std::string& start) {
    const std::string line = first_line(error);
    EXPECT_EQ(line.substr(0, start.size()), start);
    EXPECT_NE(line.find("--batch-size"), std::string::npos);
    EXPECT_EQ(line.find('\n'), std::string::npos);
  };
  expect_advice(std::bad_alloc(), "[memory] there is not enough memory; lower");
  // LibTorch's message.
  expect_advice(
      std::runtime_error(
          "[enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't "
          "allocate memory: you tried to allocate 52613349376 bytes. Error code 12 "
          "(Cannot allocate memory)\nframe #0"),
      "[memory] there is not enough memory for 52613349376 bytes; lower");
}

TEST(CommError, NamesOperationPeerAndCause) {
  const CommError with_peer("all_reduce #17", "connection reset", 3);
  EXPECT_STREQ(
      with_peer.what(), "[comm] all_reduce #17 failed (rank 3): connection reset");
  EXPECT_EQ(with_peer.peer(), 3);
  const CommError without("barrier", "timed out");
  EXPECT_STREQ(without.what(), "[comm] barrier failed: timed out");
  EXPECT_EQ(without.peer(), std::nullopt);
}

TEST(Join, SeparatesParts) {
  EXPECT_EQ(join({}), "");
  EXPECT_EQ(join({"a"}), "a");
  EXPECT_EQ(join({"a", "b", "c"}), "a, b, c");
  EXPECT_EQ(join({"a", "b"}, "|"), "a|b");
  EXPECT_EQ(join({"", "a", "", "b"}), ", a, , b");
}

TEST(Check, ErrorHasConditionPlaceAndMessage) {
  const int ranks = 3;
  EXPECT_NO_THROW(TANDEM_CHECK(ranks == 3, "never"));
  try {
    TANDEM_CHECK(ranks == 4, "lost a rank");
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("[internal] lost a rank"));
    EXPECT_THAT(error.what(), HasSubstr("ranks == 4 is false"));
    EXPECT_THAT(error.what(), HasSubstr("error_test.cpp:"));
  }
}

// std::thread throws this error.
TEST(FirstLine, NamesTheLimitOfThreads) {
  const std::system_error error(
      std::make_error_code(std::errc::resource_unavailable_try_again));
  EXPECT_THAT(
      first_line(error),
      AllOf(StartsWith("[launch] "), HasSubstr("lower --nproc or --threads")));
}

TEST(ProcessLimit, IsThatOfTheFullControlGroup) {
  const Scratch root;
  const auto write = [&](const std::string& group, const char* most, const char* now) {
    make_directories(root.path() + group);
    replace_file(root.path() + group + "/pids.max", most);
    replace_file(root.path() + group + "/pids.current", now);
  };
  write("/job", "20\n", "20\n");
  write("/job/step", "max\n", "20\n");
  write("/pids/job", "9\n", "8\n");
  EXPECT_THAT(
      explain_process_limit("0::/job/step\n", root.path()),
      StartsWith("[launch] pids.max of the control group '/job' is 20, expected "));
  EXPECT_THAT(
      explain_process_limit("8:pids:/job\n0::/\n", root.path()),
      HasSubstr("pids.max of the control group '/job' is 9,"));
  write("/job", "20\n", "3\n");
  EXPECT_THAT(
      explain_process_limit("0::/job/step\n", root.path()),
      Not(HasSubstr("control group")));
}

}  // namespace tandem::error_test
