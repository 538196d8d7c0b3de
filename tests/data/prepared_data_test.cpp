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
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/rank_env.h"
#include "tandem/data/idx.h"
#include "tandem/data/npy_format.h"
#include "tests/core/expect.h"
#include "tests/data/some_samples.h"
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
void write_folder(const std::string& folder) {
  make_directories(folder);
  write_idx(folder + kTrainImages, counting(500, 7));
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
  EXPECT_EQ(a.columns, b.columns);
  EXPECT_EQ(a.mean, b.mean);
  EXPECT_EQ(a.std, b.std);
  EXPECT_EQ(a.inputs.bytes, b.inputs.bytes);
  EXPECT_EQ(a.targets.bytes, b.targets.bytes);
  EXPECT_EQ(hashes_of(a).inputs, hashes_of(b).inputs);
  EXPECT_EQ(hashes_of(a).targets, hashes_of(b).targets);
}

// Returns whether this process maps a file; copies of the bytes do not count.
bool maps(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(name) != std::string::npos) {
      return true;
    }
  }
  return false;
}

bool maps_prepared_memory() {
  return maps("memfd:tandem-data");
}

// Loads prepared data.
DatasetSplits load_prepared(const DataRequest& prepared, const DataRequest& request) {
  const DataReader reader(prepared);
  const Environment environment(reader);
  return load_prepared_dataset(request);
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

TEST(PreparedData, HasAllPartsAndMeasurements) {
  const Scratch scratch;
  write_folder(scratch.path());
  DataRequest request(scratch.path());
  request.options.validation = 0.2;
  request.options.mean = ChannelValues::parse("auto").value();
  const auto read = load_dataset(request);
  ASSERT_EQ(read.validation.size, 100);
  ASSERT_EQ(read.train.mean.size(), 1u);
  const auto prepared = load_prepared(request, request);
  EXPECT_TRUE(maps_prepared_memory());
  expect_equal(prepared.train, read.train);
  expect_equal(prepared.test, read.test);
  expect_equal(prepared.validation, read.validation);
}

TEST(PreparedData, HasTheColumnsOfATable) {
  const Scratch scratch;
  std::string table = "\"a\nb\",kind,y\n";
  for (int i = 0; i < 30; ++i) {
    table += std::to_string(i) + (i % 2 == 0 ? ",\"x, y\"," : ",z,") +
             (i % 3 == 0 ? "\"one\ntwo\"\n" : "three\n");
  }
  replace_file(scratch / "t.csv", table);
  DataRequest request(scratch / "t.csv");
  request.options.target = "y";
  const auto read = load_dataset(request);
  ASSERT_EQ(read.train.class_names.at(0), "one\ntwo");
  const auto prepared = load_prepared(request, request);
  EXPECT_TRUE(maps_prepared_memory());
  expect_equal(prepared.train, read.train);
  expect_equal(prepared.test, read.test);
}

TEST(PreparedData, OfOtherSettingsIsNotUsed) {
  const Scratch scratch;
  write_folder(scratch.path());
  const DataRequest request(scratch.path());
  std::vector<DataRequest> others(11, request);
  others[0].seed = 1;
  others[1].whole_targets = WholeTargets::values;
  others[2].ignore_index = 3;
  others[3].options.validation = 0.5;
  others[4].options.test_fraction = 0.5;
  others[5].options.mean = ChannelValues::parse("auto").value();
  others[6].options.shape = "15";
  others[7].options.target = "y";
  others[8].for_training = false;
  others[9].options.limit = 2;
  others[10].options.source = scratch / "other";
  for (const auto& other : others) {
    load_prepared(other, request);
    EXPECT_FALSE(maps_prepared_memory());
  }
  const auto kept = load_prepared(request, request);
  EXPECT_TRUE(maps_prepared_memory());
}

// Processes share the pages of the file itself.
TEST(PreparedData, MappedFilesAreMappedByTheWorker) {
  const Scratch scratch;
  write_npy(scratch / "x.npy", samples_of({5}, std::vector<float>(5'000, 0.5F)));
  write_npy(scratch / "y.npy", samples_of({}, std::vector<int64_t>(1'000, 1)));
  DataRequest request(scratch.path());
  request.options.validation = 0.1;
  const auto splits = load_prepared(request, request);
  EXPECT_FALSE(maps_prepared_memory());
  EXPECT_TRUE(maps(scratch / "x.npy"));
  EXPECT_TRUE(splits.train.inputs.is_mapped);
  EXPECT_EQ(splits.train.inputs.bytes.data(), splits.test.inputs.bytes.data());
  EXPECT_EQ(splits.train.inputs.bytes.data(), splits.validation.inputs.bytes.data());
  EXPECT_EQ(splits.validation.size, 90);
  EXPECT_EQ(splits.validation.hashes.inputs.size(), 64u);
}

// The training inputs are converted to float32 in memory, but the test inputs are
// mapped, and the limit selects some of them.
TEST(PreparedData, HasTheSamplesOfALimitOfAMappedTestPart) {
  const Scratch scratch;
  std::string doubles = npy_header(ElementType::float32, {8, 1});
  doubles.replace(doubles.find("<f4"), 3, "<f8");
  std::ofstream(scratch / "train_x.npy", std::ios::binary)
      << doubles << std::string(8 * sizeof(double), '\0');
  write_npy(scratch / "test_x.npy", samples_of<float>({1}, {0, 1, 2, 3, 4, 5, 6, 7}));
  for (const char* name : {"train_y.npy", "test_y.npy"}) {
    write_npy(scratch / name, samples_of<int64_t>({}, {0, 1, 0, 1, 0, 1, 0, 1}));
  }
  const DataRequest request(scratch.path(), 4);
  const auto splits = load_prepared(request, request);
  EXPECT_FALSE(splits.train.inputs.is_mapped);
  std::vector<float> found;
  for (int64_t i = 0; i < splits.test.size; ++i) {
    const auto* input = splits.test.inputs.at(splits.test.place_of(i));
    found.push_back(*reinterpret_cast<const float*>(input));
  }
  EXPECT_THAT(found, testing::ElementsAre(0, 2, 4, 6));
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

TEST(PreparedData, ErrorsAreReportedByTheWorker) {
  const Scratch scratch;
  write_folder(scratch.path());
  replace_file(scratch.path() + kTrainImages, "no images");
  const DataReader reader{DataRequest(scratch.path())};
  const Environment environment(reader);
  expect_error<DataError>(
      [&] { load_prepared_dataset(scratch.path()); }, {"is not an IDX file of bytes"});
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
