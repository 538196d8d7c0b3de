// Files whose first bytes look like another format.

#include "tandem/formats/weights_format.h"
#include "tandem/base/files.h"

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tandem/base/error.h"
#include "tandem/checkpoint/weights.h"
#include "tandem/formats/safetensors.h"
#include "tandem/formats/torch_file.h"
#include "tests/core/expect.h"
#include "tests/scratch.h"

namespace tandem::weights_format_test {

using namespace std::string_literals;
using testing::HasSubstr;

constexpr size_t kMostHeaderBytes = 70'000;

WeightsFormat format_of(const std::string& bytes) {
  return weights_format(bytes.substr(0, kWeightsStart), bytes.size());
}

// One tensor of two bytes, or none if the header is too short for it.
std::string safetensors_with_header_of(size_t length) {
  std::string header = R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})";
  std::string data = "\x28\x29";
  if (length < header.size()) {
    header = "{}";
    data.clear();
  }
  header.resize(length, ' ');
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

TEST(WeightsFormat, DetectsSafetensorsForEveryHeaderLength) {
  const Scratch scratch;
  const auto path = scratch / "weights";
  for (size_t length = 8; length <= kMostHeaderBytes; ++length) {
    const auto bytes = safetensors_with_header_of(length);
    ASSERT_EQ(format_of(bytes), WeightsFormat::safetensors) << length;
    // Files that begin like a pickle or a zip file are all read.
    if (length > 2000 && bytes[0] != '\x80' && bytes[0] != 'P') {
      continue;
    }
    write(path, bytes);
    const auto tensors = read_weights(path);
    if (bytes.back() == '\x29') {
      ASSERT_EQ(tensors.size(), 1u) << length;
      ASSERT_EQ(tensors[0].tensor[0].item<int>(), 0x28) << length;
    }
  }
}

TEST(WeightsFormat, DetectsTandemsFilesForEveryMetadataLength) {
  const Scratch scratch;
  std::string first_bytes;
  for (size_t length = 0; length < 512; length += 4) {
    write_safetensors(
        scratch / "weights",
        {{{"a", at::full({3}, 7.0)}}, {{"note", std::string(length, 'x')}}});
    first_bytes += read_file(scratch / "weights")[0];
    ASSERT_EQ(read_weights(scratch / "weights")[0].tensor[2].item<double>(), 7)
        << length;
  }
  EXPECT_THAT(first_bytes, HasSubstr("\x80"));
}

TEST(WeightsFormat, DetectsTorchSaveByItsFirstBytes) {
  const Scratch scratch;
  write_torch_file(scratch / "net.pt", {{"a", at::full({3}, 7.0)}});
  EXPECT_EQ(format_of(read_file(scratch / "net.pt")), WeightsFormat::zip);
  EXPECT_EQ(format_of("PK\5\6"s + std::string(18, '\0')), WeightsFormat::zip);
  const std::string magic = "\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
  const std::string frame = "\x95\x0d\0\0\0\0\0\0\0"s;
  const std::string member = "storages";
  const std::string tar = member + std::string(257 - member.size(), '\0') + "ustar  ";
  for (const auto& bytes :
       {"\x80\x02" + magic, "\x80\x03" + magic, "\x80\x04" + frame + magic, tar}) {
    EXPECT_EQ(format_of(bytes), WeightsFormat::legacy_torch);
    write(scratch / "old.pt", bytes);
    expect_error<DataError>(
        [&] { return read_weights(scratch / "old.pt"); }, {"before PyTorch 1.6"});
  }
}

TEST(WeightsFormat, OtherFilesAreUnknown) {
  const std::string whole = safetensors_with_header_of(100);
  for (const auto& bytes :
       {""s, "P"s, "PK"s, "PK\3"s, "PK and more of a text"s, "\x80"s,
        // Pickles that torch.save did not write.
        "\x80\x02}q\0."s, "\x80\x04\x95\x02\0\0\0\0\0\0\0}."s,
        // A length without its header, and a header that is cut.
        whole.substr(0, 8), whole.substr(0, 107), "{\"a\": \"json\"}"s}) {
    EXPECT_EQ(format_of(bytes), WeightsFormat::unknown) << bytes;
  }
}

}  // namespace tandem::weights_format_test
