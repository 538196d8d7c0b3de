#include "tandem/data/prepared_data.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"
#include "tandem/data/idx.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::prepared_data_test {

using testing::HasSubstr;

constexpr const char* kVariable = "TANDEM_PREPARED_DATA";
const std::string kTrainImages = "/train-images-idx3-ubyte";

// Values that a reader passes to its workers.
struct Offer {
  explicit Offer(const DataReader& reader) {
    const auto variables = reader.variables();
    EXPECT_EQ(variables.at(0).first, kVariable);
    EXPECT_EQ(
        std::sscanf(variables.at(0).second.c_str(), "%d %d %d", &memory, &done, &child),
        3);
  }
  int memory = -1;
  int done = -1;
  pid_t child = -1;
};

// A worker's environment. The object owns the descriptors.
class Environment {
 public:
  explicit Environment(const std::string& value) {
    setenv(kVariable, value.c_str(), 1);
  }
  explicit Environment(const DataReader& reader) {
    const Offer offer(reader);
    std::ostringstream value;
    value << dup(offer.memory) << ' ' << dup(offer.done) << ' ' << offer.child;
    setenv(kVariable, value.str().c_str(), 1);
  }
  ~Environment() {
    unsetenv(kVariable);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
};

IdxArray counting(int64_t count, uint8_t first) {
  IdxArray array{{count, 3, 5}, {}};
  for (int64_t i = 0; i < count * 15; ++i) {
    array.values.push_back(static_cast<uint8_t>(first + i));
  }
  return array;
}

// 500 images are more than a page, 3 less.
void write_folder(const std::string& folder, uint8_t first = 7) {
  make_directories(folder);
  write_idx(folder + kTrainImages, counting(500, first));
  IdxArray labels{{500}, std::vector<uint8_t>(500, 1)};
  labels.values[499] = 2;
  write_idx(folder + "/train-labels-idx1-ubyte", labels);
  write_idx(folder + "/t10k-images-idx3-ubyte", counting(3, 100));
  write_idx(folder + "/t10k-labels-idx1-ubyte", {{3}, {2, 0, 1}});
}

void expect_equal(const Dataset& a, const Dataset& b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.size, b.size);
  EXPECT_EQ(a.inputs.shape, b.inputs.shape);
  EXPECT_EQ(a.num_classes, b.num_classes);
  EXPECT_EQ(a.class_names, b.class_names);
  EXPECT_EQ(a.inputs.bytes, b.inputs.bytes);
  EXPECT_EQ(a.targets.bytes, b.targets.bytes);
  EXPECT_EQ(hashes_of(a).inputs, hashes_of(b).inputs);
  EXPECT_EQ(hashes_of(a).targets, hashes_of(b).targets);
}

// Checks the mappings of this process; copies of the bytes do not count.
bool maps_prepared_memory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:tandem-data") != std::string::npos) {
      return true;
    }
  }
  return false;
}

TEST(PreparedData, EqualsTheFilesInSharedMemory) {
  const Scratch scratch;
  write_folder(scratch.path());
  const auto read = load_dataset(scratch.path());
  const DataReader reader{DataRequest(scratch.path())};
  {
    const Environment environment(reader);
    const auto prepared = load_prepared_dataset(scratch.path());
    EXPECT_TRUE(maps_prepared_memory());
    expect_equal(prepared.train, read.train);
    expect_equal(prepared.test, read.test);
    EXPECT_EQ(prepared.train.hashes.inputs.size(), 64u) << "a rank has to hash itself";
    EXPECT_EQ(read.train.hashes.inputs, "");
    EXPECT_FALSE(get_env(kVariable)) << "processes of ours would look, too";
  }
  EXPECT_FALSE(maps_prepared_memory());
}

TEST(PreparedData, BytesOutliveTheReaderAndTheirDataset) {
  const Scratch scratch;
  write_folder(scratch.path());
  Bytes labels;
  {
    const DataReader reader{DataRequest(scratch.path())};
    const Environment environment(reader);
    labels = load_prepared_dataset(scratch.path()).train.targets.bytes;
  }
  ASSERT_EQ(labels.size(), 500u);
  EXPECT_EQ(labels[0], 1);
  EXPECT_EQ(labels[499], 2);
}

TEST(PreparedData, HasOnlyTheSamplesOfItsLimit) {
  const Scratch scratch;
  write_folder(scratch.path());
  const DataReader reader{DataRequest(scratch.path(), 2)};
  const Environment environment(reader);
  const auto prepared = load_prepared_dataset({scratch.path(), 2});
  EXPECT_TRUE(maps_prepared_memory());
  EXPECT_EQ(prepared.train.size, 2);
  EXPECT_EQ(prepared.train.targets.bytes.size(), 2u);
  EXPECT_EQ(prepared.train.inputs.bytes.size(), 30u);
  EXPECT_EQ(prepared.test.size, 2);
  EXPECT_EQ(
      prepared.train.hashes.inputs,
      hashes_of(load_dataset(scratch.path(), 2).train).inputs);
  // Sample 499 has it.
  EXPECT_EQ(prepared.train.num_classes, 3);
}

TEST(PreparedData, OfAnotherNameOrLimitIsNotUsed) {
  const Scratch one;
  const Scratch other;
  write_folder(one.path(), 7);
  write_folder(other.path(), 8);
  {
    const DataReader reader{DataRequest(one.path())};
    const Environment environment(reader);
    EXPECT_EQ(load_prepared_dataset(other.path()).train.inputs.bytes[0], 8);
  }
  const DataReader reader{DataRequest(one.path(), 2)};
  const Environment environment(reader);
  EXPECT_EQ(load_prepared_dataset(one.path()).train.size, 500);
}

// A stopped child never ends.
TEST(PreparedData, TimeoutNamesAChildThatDoesNotEnd) {
  const Scratch scratch;
  write_folder(scratch.path());
  // The child's open() waits for a writer.
  remove_all(scratch.path() + kTrainImages);
  ASSERT_EQ(mkfifo((scratch.path() + kTrainImages).c_str(), 0600), 0);
  const DataReader reader{DataRequest(scratch.path())};
  const pid_t child = Offer(reader).child;
  const auto failure = [&] {
    const Environment environment(reader);
    return error_of<DataError>([&] {
      load_prepared_dataset(scratch.path(), Deadline(std::chrono::milliseconds(50)));
    });
  };
  EXPECT_THAT(failure(), HasSubstr("process " + std::to_string(child)));
  ASSERT_EQ(kill(child, SIGSTOP), 0);
  int status = 0;
  waitpid(child, &status, WUNTRACED);
  EXPECT_THAT(failure(), HasSubstr("is stopped (SIGSTOP)"));
}

TEST(PreparedData, HasTheColumnsOfATable) {
  const Scratch scratch;
  DataRequest request(scratch / "table.csv");
  request.options.target = "kind";
  replace_file(
      request.options.source,
      "size,kind\n1,\"two\nlines\"\n2,flat\n3,flat\n4,flat\n5,flat\n");
  const auto read = load_dataset(request);
  EXPECT_THAT(read.train.class_names, testing::ElementsAre("flat", "two\nlines"));
  const DataReader reader{request};
  const Environment environment(reader);
  const auto prepared = load_prepared_dataset(request);
  EXPECT_TRUE(maps_prepared_memory());
  expect_equal(prepared.train, read.train);
  EXPECT_EQ(prepared.train.columns, read.train.columns);
}

TEST(PreparedData, ErrorsAreReportedByTheWorker) {
  const Scratch scratch;
  write_folder(scratch.path());
  replace_file(scratch.path() + kTrainImages, "no images");
  const DataReader reader{DataRequest(scratch.path())};
  const Environment environment(reader);
  EXPECT_THAT(
      error_of<DataError>([&] { load_prepared_dataset(scratch.path()); }),
      HasSubstr("is not an IDX file of bytes"));
}

TEST(PreparedData, TheWorkerReadsTheFilesIfTheReaderDies) {
  const Scratch scratch;
  write_folder(scratch.path());
  // Opening a FIFO for reading waits for a writer.
  const std::string images = scratch.path() + kTrainImages;
  ASSERT_EQ(rename(images.c_str(), (images + "-kept").c_str()), 0);
  ASSERT_EQ(mkfifo(images.c_str(), 0600), 0);
  const DataReader reader{DataRequest(scratch.path())};
  kill(Offer(reader).child, SIGKILL);
  ASSERT_EQ(rename((images + "-kept").c_str(), images.c_str()), 0);
  const Environment environment(reader);
  EXPECT_EQ(load_prepared_dataset(scratch.path()).train.size, 500);
  EXPECT_FALSE(maps_prepared_memory());
}

TEST(PreparedData, AnInvalidVariableIsIgnored) {
  const Scratch scratch;
  write_folder(scratch.path());
  const int file = open((scratch / "file").c_str(), O_CREAT | O_RDWR, 0600);
  ASSERT_GE(file, 0);
  const std::string number = std::to_string(file);
  for (const std::string& value :
       {std::string(), std::string("x"), number + " " + number + " 1",
        std::string("4000 4001 1"), std::string("-1 -1 -1")}) {
    const Environment environment(value);
    EXPECT_EQ(load_prepared_dataset(scratch.path()).train.size, 500) << value;
    EXPECT_FALSE(get_env(kVariable));
  }
  EXPECT_GE(fcntl(file, F_GETFD), 0) << "it is not ours to close";
  close(file);
}

}  // namespace tandem::prepared_data_test
