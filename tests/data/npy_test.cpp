#include "tandem/data/npy.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tests/core/expect.h"
#include "tests/core/most_memory.h"
#include "tests/scratch.h"

namespace tandem::npy_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// Returns a file of version 1.0, or of another version if `version` is given.
std::string npy(
    const std::string& dictionary, const std::string& data,
    const std::string& version = std::string("\1\0", 2)) {
  const auto size = static_cast<uint32_t>(dictionary.size());
  const std::string bytes(reinterpret_cast<const char*>(&size), sizeof(size));
  return "\x93NUMPY" + version + bytes.substr(0, version[0] == 1 ? 2 : 4) + dictionary +
         data;
}

std::string dictionary(const std::string& descr, const std::string& shape) {
  return "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

Bytes bytes_of(const std::string& text) {
  return std::vector<uint8_t>(text.begin(), text.end());
}

NpyArray parse(const std::string& file) {
  return parse_npy(bytes_of(file), "input");
}

TEST(Npy, HeadersMayHaveAnyOrderAndSpaces) {
  for (const char* header :
       {"{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }",
        "{'shape':(2,3),'fortran_order':False,'descr':'|u1'}\n",
        " {\"fortran_order\" : False , \"descr\" : \"<u1\",\n 'shape': ( 2, 3 , ) } "
        "\n"}) {
    SCOPED_TRACE(header);
    for (const auto& version : {std::string("\1\0", 2), std::string("\3\0", 2)}) {
      const NpyArray array = parse(npy(header, "abcdef", version));
      EXPECT_EQ(array.type, ElementType::uint8);
      EXPECT_EQ(array.shape, (std::vector<int64_t>{2, 3}));
      EXPECT_EQ(array.bytes, bytes_of("abcdef"));
      EXPECT_TRUE(array.is_mapped);
    }
  }
}

TEST(Npy, DamagedFilesAreErrors) {
  const std::string good = dictionary("|u1", "(2, 3)");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "ends inside its header"},
      {"\x93NUM", "ends inside its header"},
      {"PK\3\4 and more", "is not a .npy file"},
      {npy(good, "abcdef", std::string("\4\0", 2)), "version 4.0, expected 1.0, 2.0"},
      {npy(good, "abcdef", std::string("\1\1", 2)), "version 1.1"},
      {npy(good, "").substr(0, 60), "ends inside its header"},
      {npy(good, "", std::string("\2\0", 2)).replace(10, 1, "\1"),
       "has a header of 65595 bytes, expected at most 65535"},
      {npy(good, "abcde"), "bytes, expected 75 for shape (2, 3) of dtype 'u1'"},
      {npy(good, "abcdefg"), "has 76 bytes, expected 75"},
      {npy("", ""), "damaged header: expected '{' at byte 0"},
      {npy("{'descr': '|u1'", ""), "damaged header: expected '}'"},
      {npy("{'descr': '|u1', }", ""), "'descr', 'fortran_order' and 'shape'"},
      {npy("{'descr': '|u1', 'descr': '|u1'}", ""), "expected one 'descr'"},
      {npy("{'name': 1}", ""), "expected one 'descr'"},
      {npy("{descr: '|u1'}", ""), "expected '''"},
      {npy("{'descr: 1}", ""), "expected a closing quote"},
      {npy("{'descr' '|u1'}", ""), "expected ':'"},
      {npy("{'fortran_order': 0}", ""), "expected True or False"},
      {npy("{'shape': 3}", ""), "expected '('"},
      {npy("{'shape': (3)}", ""), "expected ','"},
      {npy("{'shape': (,)}", ""), "expected a number"},
      {npy("{'shape': (3, 4 5)}", ""), "expected ')'"},
      {npy("{'shape': (9223372036854775808,)}", ""), "expected a dimension below 2^63"},
      {npy(good + "}", "abcdef"), "expected the end of the header"},
      {npy("{'descr': ('<f4', (2,))}", ""), "structured dtype"},
      {npy(dictionary("", "(3,)"), "abc"), "has dtype ''"},
      {npy(dictionary("f4", "(3,)"), "abc"), "has dtype 'f4'"},
      {npy(dictionary("|f4", "(3,)"), "abc"), "has dtype '|f4'"},
      {npy(dictionary("|u1", "(-1,)"), "abc"), "negative dimension"},
      {npy(dictionary("|u1", "(0, 3)"), ""), "has no elements: its shape is (0, 3)"},
      {npy(dictionary("|u1", "(4294967296, 4294967296)"), "abc"),
       "expected less than 2^60 elements"},
      {npy(dictionary("<f4", "(1152921504606846976,)"), "abc"),
       "expected less than 2^60 elements"},
      {npy(dictionary("<f4", "(1152921504606846975,)"), "abc"),
       "has 88 bytes, expected"},
  };
  for (const auto& [file, said] : cases) {
    SCOPED_TRACE(said);
    EXPECT_THAT(
        error_of<DataError>([&, &content = file] { parse(content); }),
        AllOf(
            StartsWith("[data] 'input' "), HasSubstr(said), HasSubstr("; save"),
            Not(HasSubstr("\n"))));
  }
  std::string dims = "(";
  for (int i = 0; i < 65; ++i) {
    dims += "1, ";
  }
  expect_error<DataError>(
      [&] { parse(npy(dictionary("|u1", dims + ")"), "a")); },
      {"expected at most 64 dimensions"});
}

TEST(Npy, MissingFilesAndOtherThanFilesAreErrors) {
  const Scratch scratch;
  make_directories(scratch / "folder");
  ASSERT_EQ(mkfifo((scratch / "pipe").c_str(), 0600), 0);
  replace_file(scratch / "empty", std::string());
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"nowhere", "No such file"},
      {"folder", "directory"},
      {"pipe", "is a pipe"},
      {"empty", "; save it again with "}};
  for (const auto& [name, said] : cases) {
    const std::string path = scratch / name;
    const auto expected = AllOf(HasSubstr("'" + path + "'"), HasSubstr(said));
    EXPECT_THAT(error_of<DataError>([&] { read_npy(path); }), expected);
    EXPECT_THAT(error_of<DataError>([&] { read_npz(path); }), expected);
  }
}

TEST(Npy, DataThatIsNotAlignedIsCopied) {
  const float values[] = {1.5F, -2, 0.1F};
  const std::string data(reinterpret_cast<const char*>(values), sizeof(values));
  for (size_t spaces = 0; spaces < 4; ++spaces) {
    const std::string header = dictionary("<f4", "(3,)") + std::string(spaces, ' ');
    const std::string file = npy(header, data);
    const NpyArray array = parse(file);
    EXPECT_EQ(array.is_mapped, (file.size() - data.size()) % sizeof(float) == 0);
    const auto address = reinterpret_cast<uintptr_t>(array.bytes.data());
    EXPECT_EQ(address % sizeof(float), 0u);
    EXPECT_EQ(array.bytes, bytes_of(data));
  }
}

TEST(Npy, AMappedArrayOutlivesItsFile) {
  const Scratch scratch;
  const std::vector<uint8_t> elements(10'000, 7);
  write_npy(scratch / "x.npy", ElementType::uint8, {100, 100}, elements.data());
  const NpyArray array = read_npy(scratch / "x.npy");
  remove_all(scratch / "x.npy");
  EXPECT_TRUE(array.is_mapped);
  EXPECT_EQ(array.bytes, Bytes(elements));
}

// A sparse file with a valid header.
void write_sparse(
    const std::string& path, const std::string& descr, int64_t num_elements,
    int64_t bytes) {
  const std::string header =
      npy(dictionary(descr, "(" + std::to_string(num_elements / 1000) + ", 1000)"), "");
  const std::string padding(64 - header.size() % 64, ' ');
  std::string file = header + padding;
  file[8] = static_cast<char>(file[8] + static_cast<char>(padding.size()));
  replace_file(path, file);
  ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(file.size()) + bytes), 0);
}

TEST(Npy, AFileLargerThanMemoryTakesNoMemory) {
  const Scratch scratch;
  constexpr int64_t kBytes = 200'000'000'000;
  write_sparse(scratch / "x.npy", "<f4", kBytes / 4, kBytes);
  const int64_t before = most_memory_kb();
  const NpyArray array = read_npy(scratch / "x.npy");
  EXPECT_EQ(array.shape, (std::vector<int64_t>{50'000'000, 1000}));
  ASSERT_EQ(array.bytes.size(), static_cast<size_t>(kBytes));
  EXPECT_EQ(array.bytes[0] + array.bytes[kBytes / 2] + array.bytes[kBytes - 1], 0);
  EXPECT_LT(most_memory_kb() - before, 4'000);

  write_sparse(scratch / "doubles.npy", "<f8", kBytes / 8, kBytes);
  expect_error<ConfigError>(
      [&] { read_npy(scratch / "doubles.npy"); },
      {"doubles.npy' has 100000000000 bytes, more than half of the free",
       "save x.astype('float32')"});
  EXPECT_LT(most_memory_kb() - before, 4'000);
}

TEST(Npy, WritingIsAtomic) {
  const Scratch scratch;
  const uint8_t element = 5;
  expect_error<DataError>(
      [&] { write_npy(scratch / "no/such/folder", ElementType::uint8, {1}, &element); },
      {"no/such/folder"});
  write_npy(scratch / "x.npy", ElementType::uint8, {1}, &element);
  const NpyArray before = read_npy(scratch / "x.npy");
  write_npy(scratch / "x.npy", ElementType::uint8, {}, &element);
  EXPECT_EQ(before.bytes[0], 5);
  EXPECT_TRUE(read_npy(scratch / "x.npy").shape.empty());
  EXPECT_EQ(list_directory(scratch.path()).size(), 1u);
  EXPECT_EQ(read_file(scratch / "x.npy").size(), 129u);
}

}  // namespace tandem::npy_test
