// Bytes of messages between ranks over TCP, also from a hostile sender.

#include "tandem/comm/rpc/message_encoding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/quantize_per_tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

#include "tandem/base/error.h"
#include "tests/core/expect.h"

namespace tandem::message_encoding_test {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

struct Frame {
  FrameStart start;
  std::string description;
};

Frame frame_of(const RpcMessage& message) {
  const auto encoded = encode(7, message);
  const auto start = decode_start(encoded.text.substr(0, kFrameStartBytes));
  TANDEM_CHECK(start, "the start is invalid");
  return {*start, encoded.text.substr(kFrameStartBytes)};
}

// Returns the description of a message with one tensor.
std::string description_of(
    at::ScalarType dtype, const std::vector<int64_t>& sizes, uint64_t count = 1) {
  std::string bytes;
  const auto put = [&](auto number) {
    bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  put(uint64_t{0});
  put(count);
  put(static_cast<uint8_t>(dtype));
  put(static_cast<uint8_t>(sizes.size()));
  for (const int64_t size : sizes) {
    put(size);
  }
  return bytes;
}

TEST(MessageEncoding, HeaderDtypesAndSizesComeBack) {
  const std::vector<at::Tensor> tensors = {
      at::zeros({2, 3}), at::full({}, 7, at::kLong), at::empty({0, 5}, at::kDouble),
      at::full({4}, true, at::kBool), at::zeros({3}, at::kBFloat16)};
  const auto frame = frame_of({std::string("a\0b", 3), tensors});
  EXPECT_EQ(frame.start.id, 7u);
  EXPECT_EQ(frame.start.description_bytes, frame.description.size());
  EXPECT_EQ(frame.start.data_bytes, 24u + 8 + 0 + 4 + 6);
  const auto message = decode_description(frame.description, frame.start.data_bytes);
  ASSERT_TRUE(message);
  EXPECT_EQ(message->header, std::string("a\0b", 3));
  ASSERT_EQ(message->tensors.size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(message->tensors[i].scalar_type(), tensors[i].scalar_type());
    EXPECT_EQ(message->tensors[i].sizes(), tensors[i].sizes());
  }
}

TEST(MessageEncoding, ContiguousTensorsAreNotCopied) {
  const auto rows = at::arange(12).view({3, 4});
  const auto encoded = encode(0, {"", {rows, rows.t()}});
  EXPECT_EQ(encoded.tensors.at(0).data_ptr(), rows.data_ptr());
  EXPECT_TRUE(encoded.tensors.at(1).is_contiguous());
  EXPECT_TRUE(encoded.tensors.at(1).equal(rows.t()));
}

TEST(MessageEncoding, AConjugatedViewIsResolved) {
  const auto values = at::full({2}, c10::complex<float>(1, 2), at::kComplexFloat);
  const auto sent = encode(0, {"", {values.conj()}}).tensors.at(0);
  EXPECT_FALSE(sent.is_conj());
  EXPECT_EQ(sent.data_ptr<c10::complex<float>>()[0], c10::complex<float>(1, -2));
}

TEST(MessageEncoding, SparseAndQuantizedTensorsAreRefused) {
  const auto sparse = at::ones({2, 2}).to_sparse();
  expect_error<ConfigError>([&] { encode(0, {"", {sparse}}); }, {"sparse"});
  const auto quantized = at::quantize_per_tensor(at::ones({2}), 1.0, 0, at::kQInt8);
  expect_error<ConfigError>([&] { encode(0, {"", {quantized}}); }, {"quantized"});
  const std::vector<at::Tensor> many(kMostTensors + 1, at::zeros({}));
  expect_error<ConfigError>([&] { encode(0, {"", many}); }, {"65537 tensors"});
}

TEST(MessageEncoding, AStartWithTooLargeSizesIsRefused) {
  const auto start_of = [](uint64_t description, uint64_t data) {
    const FrameStart start{1, description, data};
    return std::string(reinterpret_cast<const char*>(&start), sizeof(start));
  };
  EXPECT_TRUE(decode_start(start_of(kMostDescriptionBytes, kMostDataBytes)));
  EXPECT_FALSE(decode_start(start_of(kMostDescriptionBytes + 1, 0)));
  EXPECT_FALSE(decode_start(start_of(0, kMostDataBytes + 1)));
  EXPECT_FALSE(decode_start(start_of(~uint64_t{0}, 0)));
  EXPECT_FALSE(decode_start(start_of(0, 0).substr(1)));
}

TEST(MessageEncoding, TruncatedAndLongerDescriptionsAreRefused) {
  const auto frame = frame_of({"header", {at::zeros({2, 3}), at::zeros({4})}});
  const uint64_t data = frame.start.data_bytes;
  ASSERT_TRUE(decode_description(frame.description, data));
  for (size_t size = 0; size < frame.description.size(); ++size) {
    EXPECT_FALSE(decode_description(frame.description.substr(0, size), data)) << size;
  }
  EXPECT_FALSE(decode_description(frame.description + '\0', data));
}

TEST(MessageEncoding, SizesMustMatchTheData) {
  const auto bytes = description_of(at::kFloat, {2, 3});
  EXPECT_TRUE(decode_description(bytes, 24));
  for (const uint64_t data :
       {uint64_t{0}, uint64_t{23}, uint64_t{25}, kMostDataBytes}) {
    EXPECT_FALSE(decode_description(bytes, data)) << data;
  }
}

TEST(MessageEncoding, SizesThatOverflowAreRefused) {
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {-1},
           {kMost},
           {int64_t{1} << 62, 4},
           {int64_t{1} << 32, int64_t{1} << 32},
           {0, kMost},
           {kMost, kMost, 0},
           {-4, -1},
           std::vector<int64_t>(255, 2)}) {
    for (const uint64_t data : {uint64_t{0}, uint64_t{4}, kMostDataBytes}) {
      EXPECT_FALSE(decode_description(description_of(at::kFloat, sizes), data));
    }
  }
}

TEST(MessageEncoding, CountsBeyondTheBytesAreRefused) {
  for (const uint64_t count :
       {uint64_t{2}, kMostTensors, kMostTensors + 1, ~uint64_t{0}}) {
    EXPECT_FALSE(decode_description(description_of(at::kFloat, {1}, count), 4))
        << count;
  }
  // A header that is longer than the description.
  EXPECT_FALSE(decode_description(std::string(16, '\xff'), 0));
}

TEST(MessageEncoding, DtypesWithoutPlainValuesAreRefused) {
  for (const auto dtype :
       {at::kQInt8, at::kQInt32, at::ScalarType::Undefined, at::ScalarType::NumOptions,
        static_cast<at::ScalarType>(100)}) {
    EXPECT_FALSE(decode_description(description_of(dtype, {4}), 4));
  }
}

TEST(MessageEncoding, ChangedBytesGiveNoLargerTensors) {
  const auto frame = frame_of({"header", {at::zeros({2, 3}), at::zeros({4})}});
  std::minstd_rand random(1);
  for (int i = 0; i < 20'000; ++i) {
    auto bytes = frame.description;
    for (int changes = 0; changes < 3; ++changes) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (const auto message = decode_description(bytes, frame.start.data_bytes)) {
      size_t total = 0;
      for (const auto& tensor : message->tensors) {
        total += tensor.nbytes();
      }
      EXPECT_EQ(total, frame.start.data_bytes);
    }
  }
}

}  // namespace tandem::message_encoding_test
