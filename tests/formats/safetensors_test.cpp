// Invalid safetensors files. tests/program reads valid files from Python.

#include "tandem/formats/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::safetensors_test {

using testing::HasSubstr;
using testing::Not;

std::string file_of(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    bytes[i] = static_cast<char>(header.size() >> (8 * i));
  }
  return bytes + header + data;
}

std::string entry(const std::string& shape, const std::string& offsets) {
  return R"({"dtype":"U8","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

std::string one_tensor(const std::string& shape, const std::string& offsets) {
  return R"({"a":)" + entry(shape, offsets) + "}";
}

std::string two_tensors(
    const std::string& offsets, const std::string& others,
    const std::string& name = "b") {
  return R"({"a":)" + entry("[2]", offsets) + R"(,")" + name + R"(":)" +
         entry("[2]", others) + "}";
}

TEST(Safetensors, ReadsTensorsInAnyOrder) {
  const auto file = parse_safetensors(
      file_of(
          R"({"z":{"dtype":"I32","shape":[1],"data_offsets":[2,6]},"empty":)" +
              entry("[0,3]", "[2,2]") + R"(,"a":)" + entry("[2,1]", "[0,2]") + "}  ",
          std::string("\x05\x06\x01\x02\0\0", 6)),
      "file");
  ASSERT_EQ(file.tensors.size(), 3u);
  EXPECT_EQ(file.tensors[0].name, "z");
  EXPECT_EQ(file.tensors[0].tensor.item<int32_t>(), 0x201);
  EXPECT_EQ(file.tensors[1].tensor.sizes(), (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(file.tensors[2].tensor.sizes(), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(file.tensors[2].tensor[1][0].item<uint8_t>(), 6);
}

TEST(Safetensors, ReadsAFileOfEmptyTensorsOnly) {
  const auto file =
      parse_safetensors(file_of(one_tensor("[5,0,7]", "[0,0]"), ""), "file");
  EXPECT_EQ(file.tensors[0].tensor.sizes(), (std::vector<int64_t>{5, 0, 7}));
}

struct Broken {
  std::string header;
  std::string said;
};

void PrintTo(const Broken& broken, std::ostream* out) {
  *out << broken.header.substr(0, 100);
}

class BrokenSafetensors : public testing::TestWithParam<Broken> {};

// All files have four bytes of data.
TEST_P(BrokenSafetensors, AreReportedWithTheError) {
  const std::string file = file_of(GetParam().header, "1234");
  const std::string said =
      error_of<DataError>([&] { parse_safetensors(file, "the file"); });
  expect_parts(said, {"'the file' ", GetParam().said});
  EXPECT_THAT(said, Not(HasSubstr("\n")));
}

INSTANTIATE_TEST_SUITE_P(
    Safetensors, BrokenSafetensors,
    testing::Values(
        Broken{"", "damaged header"}, Broken{"[]", "after its last tensor"},
        Broken{"[1]", "damaged header"}, Broken{"1", "damaged header"},
        Broken{"{}", "after its last tensor"},
        Broken{two_tensors("[0,2]", "[2,4]", "a"), "names 'a' twice"},
        Broken{
            R"({"__metadata__":{"k":"1","k":"2"},"a":)" + entry("[4]", "[0,4]") + "}",
            "names 'k' twice"},
        Broken{two_tensors("[0,2]", "[1,3]"), "overlap"},
        Broken{two_tensors("[0,2]", "[0,2]"), "overlap"},
        Broken{one_tensor("[2]", "[2,4]"), "bytes between"},
        Broken{one_tensor("[2]", "[0,2]"), "after its last tensor"},
        Broken{one_tensor("[5]", "[0,5]"), "do not fit tensor 'a'"},
        Broken{one_tensor("[3]", "[0,4]"), "do not fit tensor 'a'"},
        Broken{one_tensor("[4]", "[4,0]"), "offsets"},
        Broken{one_tensor("[4]", "[0,4,4]"), "offsets"},
        Broken{one_tensor("[4]", "[0]"), "damaged header"},
        Broken{one_tensor("4", "[0,4]"), "damaged header"},
        Broken{one_tensor("null", "[0,1]"), "damaged header"},
        Broken{one_tensor("[-4]", "[0,4]"), "has -4 in place of a size"},
        Broken{one_tensor("[4.0]", "[0,4]"), "has 4.0 in place"},
        Broken{one_tensor("[4,true]", "[0,4]"), "has true in place"},
        Broken{one_tensor("[4]", "[0,1e300]"), "in place of a size"},
        Broken{one_tensor("[18446744073709551615]", "[0,4]"), "do not fit"},
        Broken{one_tensor("[18446744073709551616]", "[0,4]"), "in place of a size"},
        Broken{one_tensor("[4294967296,4294967296]", "[0,0]"), "do not fit"},
        Broken{one_tensor("[0,9223372036854775807]", "[0,0]"), "do not fit"},
        Broken{R"({"a":{"dtype":"U7","shape":[],"data_offsets":[0,1]}})", "U7"},
        Broken{R"({"a":{"dtype":8,"shape":[],"data_offsets":[0,1]}})", "damaged"},
        Broken{R"({"a":{"shape":[4],"data_offsets":[0,4]}})", "dtype"},
        Broken{R"({"__metadata__":{"k":1}})", "damaged header"},
        Broken{
            R"({"__metadata__":{"sha256":"00"},"a":)" + entry("[4]", "[0,4]") + "}",
            "do not match its hash"},
        Broken{one_tensor("[4]", "[0,4]") + std::string(1, '\0'), "a zero byte"},
        Broken{R"({"a\nb":)" + entry("[5]", "[0,5]") + "}", "'a?b'"},
        Broken{R"({"a":)" + std::string(100'000, '[') + "}", "nested too deep"}));

TEST(Safetensors, AHeaderThatEndsEarlyIsReported) {
  const std::string whole = file_of(one_tensor("[4]", "[0,4]"), "1234");
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_THAT(
        error_of<DataError>([&] { parse_safetensors(whole.substr(0, size), "cut"); }),
        HasSubstr("'cut'"))
        << size;
  }
  // A length near 2^64, and a length that no header has.
  for (const char* length :
       {"\xff\xff\xff\xff\xff\xff\xff\xff", "\0\0\0\x10\0\0\0\0"}) {
    expect_error<DataError>(
        [&] { parse_safetensors(std::string(length, 8) + "{}", "long"); },
        {"inside its header"});
  }
}

TEST(Safetensors, RoundTripsEveryDtypeAndMetadata) {
  const Scratch scratch;
  SafetensorsFile file;
  file.metadata["note"] = "\"quoted\" \\ \n \xc3\xa4";
  for (const auto dtype :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt,
        at::kByte, at::kBool}) {
    file.tensors.push_back(
        {c10::toString(dtype), at::arange(6).view({2, 3}).to(dtype)});
  }
  file.tensors.push_back({"scalar", at::arange(1).view({})});
  file.tensors.push_back({"empty", at::empty({3, 0})});
  write_safetensors(scratch / "file", file);
  const auto again = read_safetensors(scratch / "file");
  EXPECT_EQ(again.metadata.at("note"), file.metadata["note"]);
  EXPECT_EQ(again.metadata.at("sha256").size(), 64u);
  ASSERT_EQ(again.tensors.size(), file.tensors.size());
  for (size_t i = 0; i < file.tensors.size(); ++i) {
    EXPECT_EQ(again.tensors[i].name, file.tensors[i].name);
    EXPECT_EQ(
        again.tensors[i].tensor.scalar_type(), file.tensors[i].tensor.scalar_type());
    EXPECT_TRUE(again.tensors[i].tensor.equal(file.tensors[i].tensor))
        << file.tensors[i].name;
  }
}

}  // namespace tandem::safetensors_test
