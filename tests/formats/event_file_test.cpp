// Records and messages of event files. tests/program/tensorboard_test.cpp reads event
// files with TensorBoard.

#include "tandem/formats/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tests/base/test_tools.h"

namespace tandem::event_file_test {

using namespace std::string_literals;
using testing::ElementsAre;
using testing::SizeIs;
using testing::StartsWith;

template <typename Number>
Number number_at(const std::string& bytes, size_t at) {
  Number number{};
  std::memcpy(&number, bytes.data() + at, sizeof(number));
  return number;
}

uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c(bytes.data(), bytes.size());
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

// Returns the contents of all records of a file.
std::vector<std::string> records_of(const std::string& file) {
  std::vector<std::string> records;
  for (size_t at = 0; at < file.size();) {
    const auto size = number_at<uint64_t>(file, at);
    EXPECT_EQ(number_at<uint32_t>(file, at + 8), masked_crc(file.substr(at, 8)));
    EXPECT_LE(at + 16 + size, file.size());
    records.push_back(file.substr(at + 12, size));
    EXPECT_EQ(number_at<uint32_t>(file, at + 12 + size), masked_crc(records.back()));
    at += 16 + size;
  }
  return records;
}

// Returns the values of a message of protocol buffers by their field. The value of a
// varint has eight bytes.
std::multimap<int, std::string> fields_of(const std::string& message) {
  std::multimap<int, std::string> fields;
  size_t at = 0;
  const auto varint = [&] {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<uint8_t>(message.at(at++));
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        return value;
      }
    }
  };
  while (at < message.size()) {
    const uint64_t key = varint();
    std::string value(8, '\0');
    if ((key & 7) == 0) {
      const uint64_t number = varint();
      std::memcpy(value.data(), &number, sizeof(number));
    } else {
      const size_t size = (key & 7) == 1 ? 8 : ((key & 7) == 5 ? 4 : varint());
      value = message.substr(at, size);
      at += size;
    }
    fields.emplace(static_cast<int>(key >> 3), value);
  }
  return fields;
}

// Returns the only value of a field.
std::string field(const std::string& message, int number) {
  const auto fields = fields_of(message);
  EXPECT_EQ(fields.count(number), 1u) << number;
  const auto found = fields.find(number);
  return found == fields.end() ? std::string(8, '\0') : found->second;
}

int64_t step_of(const std::string& event) {
  return number_at<int64_t>(field(event, 2), 0);
}

Scalars scalars_of(const std::string& event) {
  Scalars scalars;
  for (const auto& [number, value] : fields_of(field(event, 5))) {
    EXPECT_EQ(number, 1);
    scalars.emplace_back(field(value, 1), number_at<float>(field(value, 2), 0));
  }
  return scalars;
}

// The tests of RFC 3720, section B.4.
TEST(Crc32c, HasTheValuesOfItsStandard) {
  const auto crc = [](const std::string& bytes) {
    return crc32c(bytes.data(), bytes.size());
  };
  EXPECT_EQ(crc(""), 0u);
  EXPECT_EQ(crc("123456789"), 0xe3069283u);
  EXPECT_EQ(crc(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc(std::string(32, '\xff')), 0x62a8ab43u);
}

class EventFiles : public testing::Test {
 protected:
  std::string read(const std::string& name) const {
    return read_file(directory_ + "/" + name);
  }

  const Scratch scratch_;
  const std::string directory_ = scratch_ / "events";
};

// Files of TensorFlow and PyTorch begin with the same bytes: the length of the first
// record, and its checksum.
TEST_F(EventFiles, BeginLikeOtherEventFiles) {
  EventFile file(directory_, 0);
  const auto names = list_directory(directory_);
  ASSERT_THAT(names, SizeIs(1));
  EXPECT_THAT(names[0], StartsWith("events.out.tfevents."));
  const auto bytes = read(names[0]);
  EXPECT_EQ(bytes.substr(0, 12), "\x18\0\0\0\0\0\0\0\xa3\x7f\x4b\x22"s);
  EXPECT_EQ(field(records_of(bytes).at(0), 3), "brain.Event:2");
}

TEST_F(EventFiles, HaveTheNumbersOfEachStep) {
  EventFile file(directory_, 300);
  const Scalars first = {{"train/loss", 0.5}, {"train/lr", -1e-3f}};
  const Scalars second = {{"test/accuracy", std::nan("")}};
  const int64_t large = int64_t{1} << 40;
  file.add(7, first);
  file.add(large, second);
  const auto events = records_of(read(list_directory(directory_).at(0)));
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(step_of(events[1]), 300);
  const auto start = field(events[1], 7);
  EXPECT_EQ(number_at<int64_t>(field(start, 1), 0), 1);
  EXPECT_EQ(step_of(events[2]), 7);
  EXPECT_EQ(scalars_of(events[2]), first);
  EXPECT_EQ(step_of(events[3]), large);
  EXPECT_TRUE(std::isnan(scalars_of(events[3]).at(0).second));
  // After 2026-01-01.
  EXPECT_GT(number_at<double>(field(events[2], 1), 0), 1767225600);
}

// All files are made within a second, and the clock of one host was ahead.
TEST_F(EventFiles, HaveNamesInTheOrderOfTheirStarts) {
  EventFile first(directory_, 1);
  EventFile second(directory_, 2);
  replace_file(directory_ + "/events.out.tfevents.9000000000.other", "");
  EventFile third(directory_, 3);
  std::vector<int64_t> starts;
  for (const auto& name : list_directory(directory_)) {
    const auto events = records_of(read(name));
    starts.push_back(events.empty() ? 0 : step_of(events.at(1)));
  }
  EXPECT_THAT(starts, ElementsAre(1, 2, 0, 3));
}

TEST_F(EventFiles, EndWithAWholeRecordIfTheDiskIsFull) {
  EventFile file(directory_, 0);
  const auto path = directory_ + "/" + list_directory(directory_).at(0);
  const auto before = read_file(path);
  {
    const FileSizeLimit limit(before.size() + 10);
    expect_error<DataError>([&] { file.add(1, {{"train/loss", 1}}); }, {path});
  }
  EXPECT_EQ(read_file(path), before);
  file.add(2, {{"train/loss", 1}});
  EXPECT_THAT(records_of(read_file(path)), SizeIs(3));
}

TEST_F(EventFiles, NeedADirectory) {
  replace_file(directory_, "");
  expect_error<DataError>([&] { EventFile(directory_, 0); }, {directory_});
}

}  // namespace tandem::event_file_test
