// Files for --init that would need far more memory than their size.

#include <ATen/ops/full.h>
#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/formats/pickle.h"
#include "tandem/formats/torch_file.h"
#include "tandem/formats/torch_zip.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::torch_file_limits_test {

using testing::HasSubstr;

class TorchFileLimits : public testing::Test {
 protected:
  std::string refusal() const {
    return error_of<ConfigError>([&] { read_torch_file({path_}); });
  }

  // Writes a zip file of one record as LibTorch does.
  void write_record(
      const std::string& name, const std::string& bytes, bool compress) const {
    caffe2::serialize::PyTorchStreamWriter archive(path_);
    archive.writeRecord(name, bytes.data(), bytes.size(), compress);
    archive.writeEndOfFile();
  }

  const Scratch scratch_;
  const std::string path_ = scratch_ / "weights.pt";
};

TEST_F(TorchFileLimits, RejectCompressedRecords) {
  for (const char* name : {"data.pkl", "data/0", "byteorder"}) {
    write_record(name, std::string(10'000'000, 'N'), true);
    EXPECT_LT(read_file(path_).size(), 100'000u);
    EXPECT_THAT(refusal(), HasSubstr("has the compressed entry")) << name;
  }
}

TEST_F(TorchFileLimits, RejectRecordsCompressedByMethodOrSizesOnly) {
  constexpr size_t kMethod = 10;
  constexpr size_t kPackedSize = 20;
  for (const size_t field : {kMethod, kPackedSize}) {
    write_torch_file(path_, {{"a", at::full({100}, 1.0)}});
    std::string bytes = read_file(path_);
    const size_t entry = bytes.find("PK\1\2");
    ASSERT_NE(entry, std::string::npos);
    ++bytes[entry + field];
    replace_file(path_, bytes);
    EXPECT_THAT(refusal(), HasSubstr("has the compressed entry")) << field;
  }
}

TEST_F(TorchFileLimits, RejectPicklesOfMoreThan64MiB) {
  write_record("data.pkl", std::string((64 << 20) + 1, 'N'), false);
  EXPECT_THAT(refusal(), HasSubstr("has a pickle of 67108865 bytes"));
}

TEST_F(TorchFileLimits, RejectOverlappingRecords) {
  write_torch_file(
      path_, {{"a", at::full({100}, 1.0)}, {"b", at::full({10'000}, 1.0)}});
  EXPECT_EQ(read_torch_file({path_}).size(), 2u);
  std::string bytes = read_file(path_);
  // Sets the size of the directory's first entry to nearly the size of the file.
  const size_t entry = bytes.find("PK\1\2");
  ASSERT_NE(entry, std::string::npos);
  const auto most = static_cast<uint32_t>(bytes.size() - 100);
  std::memcpy(bytes.data() + entry + 20, &most, sizeof(most));
  std::memcpy(bytes.data() + entry + 24, &most, sizeof(most));
  replace_file(path_, bytes);
  EXPECT_THAT(refusal(), HasSubstr("has entries of more bytes than the file"));
}

TEST_F(TorchFileLimits, RejectMoreThanTenMillionValues) {
  const auto pickle_of = [](const std::string& unit, size_t count) {
    std::string bytes = "\x80\x02](";
    for (size_t i = 0; i < count; ++i) {
      bytes += unit;
    }
    return bytes + "e.";
  };
  EXPECT_EQ(Pickle(pickle_of("N", 1'000'000), "x").root().items.size(), 1'000'000u);
  for (const auto& [unit, count] :
       {std::pair<std::string, size_t>{"N", 10'000'000},
        {"q\1", 10'000'000},
        {"(", 10'000'000},
        {"Nq\1h\1", 4'000'000}}) {
    EXPECT_THAT(
        error_of<ConfigError>(
            [&, &unit = unit, &count = count] { Pickle(pickle_of(unit, count), "x"); }),
        HasSubstr("more than 10000000 values"))
        << unit;
  }
}

TEST(TorchZip, ListsTheEntriesOfLibTorch) {
  const Scratch scratch;
  const auto path = scratch / "weights.pt";
  write_torch_file(path, {{"a", at::full({100}, 1.0)}});
  const TorchZip zip({path}, "[test]", "write it again");
  ASSERT_NE(zip.find("data/0"), nullptr);
  EXPECT_EQ(zip.find("data/0")->size, 400u);
  EXPECT_EQ(zip.find("data/1"), nullptr);
  EXPECT_EQ(zip.content_of("version"), "3\n");
  expect_error<DataError>(
      [&] { return zip.content_of("data/1"); },
      {"[test] '" + path + "' has no entry 'data/1'; write it again"});
}

TEST(TorchZip, TruncatedArchivesAreRejected) {
  const Scratch scratch;
  const auto path = scratch / "weights.pt";
  write_torch_file(path, {{"a", at::full({10}, 1.0)}});
  const std::string whole = read_file(path);
  for (size_t size = 0; size < whole.size(); ++size) {
    replace_file(path, whole.substr(0, size));
    EXPECT_THAT(
        error_of<DataError>([&] { return TorchZip({path}, "", ""); }),
        HasSubstr("damaged"))
        << size;
  }
}

}  // namespace tandem::torch_file_limits_test
