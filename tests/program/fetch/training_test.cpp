// `tandem train --fetch` and the data sets that it downloads.

#include <chrono>

#include "fetching.h"
#include "tandem/base/file_lock.h"

namespace tandem::training_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr int kImages = 64;

std::string idx_bytes(const std::vector<int>& dims, const std::string& values) {
  std::string bytes = {'\0', '\0', '\x08', static_cast<char>(dims.size())};
  for (const int dim : dims) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes += static_cast<char>(dim >> shift);
    }
  }
  return bytes + values;
}

// Files like MNIST's with few images.
Files small_mnist() {
  std::string labels;
  for (int i = 0; i < kImages; ++i) {
    labels += static_cast<char>(i % 10);
  }
  Files files;
  for (const std::string part : {"train", "t10k"}) {
    files[part + "-images-idx3-ubyte"] =
        idx_bytes({kImages, 28, 28}, file_bytes(kImages * 784));
    files[part + "-labels-idx1-ubyte"] = idx_bytes({kImages}, labels);
  }
  return files;
}

// Files like CIFAR-10's: records of a label and an image.
Files small_cifar() {
  Files files;
  for (const char* name :
       {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
        "data_batch_5.bin", "test_batch.bin"}) {
    for (int i = 0; i < 20; ++i) {
      files[name] +=
          static_cast<char>(i % 10) + file_bytes(3072, static_cast<unsigned>(i));
    }
  }
  return files;
}

class FetchToTrain : public FetchTest {
 protected:
  CommandResult train(const Arguments& more) const {
    return run(with({"train", "--model", "simplenet", "--epochs", "1"}, more));
  }
};

TEST_F(FetchToTrain, FetchesMissingFilesOnceBeforeRanksStart) {
  const Files files = small_mnist();
  const HttpServer server(server_of(files));
  write_mirrors(set_of("mnist", {server.url()}, files));
  const Arguments command = {"--data", "mnist", "--fetch", "--nproc", "3"};
  const auto result = checked(train(with(command, {"--out", scratch_ / "run"})));
  EXPECT_EQ(server.requests().size(), 4u);
  EXPECT_THAT(result.errors, HasSubstr("fetching mnist into"));
  EXPECT_THAT(result.output, AllOf(Not(HasSubstr("etch")), HasSubstr("64 samples")));
  EXPECT_THAT(read_file(scratch_ / "run/config.toml"), Not(HasSubstr("fetch")));

  const auto again = checked(train(command));
  EXPECT_EQ(server.requests().size(), 4u);
  EXPECT_THAT(again.errors, Not(HasSubstr("etching")));
}

TEST_F(FetchToTrain, RanksOfAnotherLauncherFetchOnce) {
  const Files files = small_mnist();
  const HttpServer server(server_of(files));
  write_mirrors(set_of("mnist", {server.url()}, files));
  checked(run(
      {"launch", "--nproc-per-node", "3", program(), "train", "--model", "simplenet",
       "--epochs", "1", "--data", "mnist", "--fetch"}));
  EXPECT_EQ(server.requests().size(), 4u);
}

// The process that fetches may be stopped forever.
TEST_F(FetchToTrain, ARankWaitsForTheFetchOfAnotherUntilTheTimeout) {
  const FileLock other(
      scratch_ / "cache/tandem/fetch.lock", Deadline(std::chrono::minutes(1)));
  Variables rank = variables();
  for (const auto& variable : Variables{
           {"RANK", "1"},
           {"LOCAL_RANK", "1"},
           {"WORLD_SIZE", "2"},
           {"LOCAL_WORLD_SIZE", "2"},
           {"MASTER_ADDR", "127.0.0.1"},
           {"MASTER_PORT", "29732"}}) {
    rank.push_back(variable);
  }
  const auto result = run_command(
      {program(), "train", "--data", "mnist", "--fetch", "--timeout-seconds", "1"},
      rank, 60);
  EXPECT_EQ(result.status.describe(), "exited with code 1");
  expect_parts(
      result.errors, {"cannot lock '", "fetch.lock'", "for 1 s", "--timeout-seconds"});
}

TEST_F(FetchToTrain, AFailedFetchEndsTheRun) {
  const HttpServer none(server_of({}));
  write_mirrors(set_of("mnist", {none.url()}, small_mnist()));
  const auto result = train({"--data", "mnist", "--fetch", "--out", scratch_ / "run"});
  expect_exit(result, 1, {"mnist is not fetched", "answered 404"});
  EXPECT_FALSE(file_exists(scratch_ / "run"));
}

TEST_F(FetchToTrain, WithoutFetchTheErrorNamesTheCommand) {
  const auto result = train({"--data", "mnist"});
  EXPECT_EQ(result.status.code, 1);
  EXPECT_THAT(
      result.errors,
      AllOf(
          StartsWith(
              "tandem: error: [data] MNIST is not in " + (scratch_ / "data/mnist")),
          testing::EndsWith("run tandem data fetch mnist, or add --fetch\n")));
}

// A stopped fetch leaves a file out, which the next fetch downloads.
TEST_F(FetchToTrain, FetchesTheMissingHalfOfADataSet) {
  Files files = small_mnist();
  const HttpServer server(server_of(files));
  write_mirrors(set_of("mnist", {server.url()}, files));
  checked(fetch("mnist"));
  remove_all(scratch_ / "data/mnist/t10k-labels-idx1-ubyte");
  expect_parts(
      train({"--data", "mnist"}).errors,
      {"lacks t10k-labels-idx1-ubyte", "run tandem data fetch mnist"});
  checked(train({"--data", "mnist", "--fetch"}));
  EXPECT_EQ(server.requests().size(), 5u);
}

TEST_F(FetchToTrain, TrainsOnFashionMnistAndKmnist) {
  const Files files = small_mnist();
  const HttpServer server(server_of(files));
  write_mirrors(
      set_of("kmnist", {server.url()}, files) +
      set_of("fashion-mnist", {server.url()}, files));
  for (const std::string name : {"kmnist", "fashion-mnist"}) {
    const auto result = checked(train({"--data", name, "--fetch"}));
    EXPECT_THAT(result.output, HasSubstr(" on " + name + ": 64 samples"));
  }
}

class FetchArchive : public FetchToTrain {
 protected:
  // Makes the archive of files in a folder "bin", and its mirrors file.
  std::string pack(const Files& files, const std::string& url) const {
    make_directories(scratch_ / "bin");
    for (const auto& [name, bytes] : files) {
      replace_file(scratch_ / ("bin/" + name), bytes);
    }
    replace_file(scratch_ / "bin/readme.html", "read me");
    checked(run_command(
        {"tar", "-C", scratch_ / "", "--format=ustar", "-czf", scratch_ / "set.tar.gz",
         "bin"}));
    const std::string bytes = read_file(scratch_ / "set.tar.gz");
    std::string row = row_of("set.tar.gz", bytes);
    row.insert(1, "folder = \"bin\", ");
    write_mirrors(set_of("cifar-10", {url}, files, "archive = " + row + "\n"));
    return bytes;
  }
};

TEST_F(FetchArchive, CifarIsFetchedAndUnpackedForTraining) {
  const Files files = small_cifar();
  std::string archive;
  const HttpServer server(
      [&](const HttpRequest& request) { return answer_with(archive, request); });
  archive = pack(files, server.url());
  for (const char* model : {"net", "convnet_bn"}) {
    const auto result = checked(run(
        {"train", "--data", "cifar-10", "--fetch", "--model", model, "--epochs", "1",
         "--nproc", "2"}));
    EXPECT_THAT(result.output, HasSubstr(" on cifar-10: 100 samples"));
  }
  // The archive is removed and not downloaded again.
  expect_files(scratch_ / "data/cifar-10", files);
  EXPECT_THAT(fetch("cifar-10").output, HasSubstr("already"));
  EXPECT_EQ(server.requests().size(), 1u);
  expect_parts(
      run({"data", "info", "cifar-10"}).output,
      {"train: 100 samples of 3x32x32", "test: 20 samples of 3x32x32"});

  // A changed file is extracted from the archive again, and no other file.
  replace_file(scratch_ / "data/cifar-10/data_batch_3.bin", "x");
  EXPECT_THAT(fetch("cifar-10").output, HasSubstr("unpacking data_batch_3.bin\n"));
  expect_files(scratch_ / "data/cifar-10", files);
}

TEST_F(FetchArchive, AnArchiveOfTheUserIsUnpackedAndKept) {
  Files files = small_cifar();
  const HttpServer none(server_of({}));
  const std::string archive = pack(files, none.url());
  EXPECT_THAT(
      fetch("cifar-10").errors,
      HasSubstr(
          "put set.tar.gz into '" + (scratch_ / "data/cifar-10") +
          "' and run this again"));
  make_directories(scratch_ / "data/cifar-10");
  replace_file(scratch_ / "data/cifar-10/set.tar.gz", archive);
  checked(fetch("cifar-10"));
  files["set.tar.gz"] = archive;
  expect_files(scratch_ / "data/cifar-10", files);
  EXPECT_EQ(none.requests().size(), 1u);
}

TEST_F(FetchArchive, EvalRefusesImagesOfAnotherShape) {
  const Files files = small_cifar();
  std::string archive;
  const HttpServer server(
      [&](const HttpRequest& request) { return answer_with(archive, request); });
  archive = pack(files, server.url());
  checked(fetch("cifar-10"));
  const Files digits = small_mnist();
  make_directories(scratch_ / "data/mnist");
  for (const auto& [name, bytes] : digits) {
    replace_file(scratch_ / ("data/mnist/" + name), bytes);
  }
  checked(train({"--data", "mnist", "--out", scratch_ / "run"}));
  const auto steps = list_directory(scratch_ / "run/checkpoints");
  const auto result = run(
      {"eval", "--data", "cifar-10", "--checkpoint",
       scratch_ / ("run/checkpoints/" + steps.front())});
  EXPECT_EQ(result.status.code, 2);
  EXPECT_EQ(
      result.errors,
      "tandem: error: [data] the samples of cifar-10 are images 3x32x32, but this "
      "model was trained on images 1x28x28; choose another --data\n");
}

}  // namespace tandem::training_test
