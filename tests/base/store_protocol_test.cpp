#include "tandem/base/store/protocol.h"

#include <gtest/gtest.h>

namespace tandem::store_protocol::store_protocol_test {

constexpr auto kMostMs = int64_t{0x1122334455667788};

std::vector<Request> valid_requests() {
  const std::string binary("\0\xff\n\x80", 4);
  return {
      {Operation::set, 0, {"key", binary}},
      {Operation::get, 1500, {"key"}},
      {Operation::wait, kMostMs, {"a", "", "c"}},
      {Operation::add, -1, {"count", "-12"}},
      {Operation::compare_set, 0, {"key", "", "new"}},
      {Operation::has, 0, {std::string(300, 'k')}},
      {Operation::remove, 0, {"key"}},
      {Operation::num_keys, 0, {}},
      {Operation::greet, 0, {"rank", "1", "2"}},
  };
}

TEST(StoreProtocol, DecodesWhatItEncodes) {
  for (const auto& request : valid_requests()) {
    Request again{Operation::set, 99, {"left", "over"}};
    ASSERT_TRUE(decode(encode(request), again)) << static_cast<int>(request.operation);
    EXPECT_EQ(again.operation, request.operation);
    EXPECT_EQ(again.timeout_ms, request.timeout_ms);
    EXPECT_EQ(again.texts, request.texts);
  }
}

TEST(StoreProtocol, StaysVersionThree) {
  // Another build of tandem reads these bytes.
  const std::string bytes = encode({Operation::get, 258, {"ab"}});
  EXPECT_EQ(bytes, std::string("\2\2\1\0\0\0\0\0\0\1\0\0\0\2\0\0\0ab", 19));
  EXPECT_EQ(encode_length(0x01020304), std::string("\4\3\2\1"));
  for (const uint32_t length : {0u, 1u, 255u, 256u, kMaxFrameBytes, 0xffffffffu}) {
    EXPECT_EQ(decode_length(encode_length(length).data()), length);
  }
}

TEST(StoreProtocol, RejectsTruncatedRequestsAndExtraBytes) {
  Request again;
  for (const auto& request : valid_requests()) {
    const auto bytes = encode(request);
    for (size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode(bytes.substr(0, size), again))
          << static_cast<int>(request.operation) << " cut to " << size;
    }
    EXPECT_FALSE(decode(bytes + '\0', again)) << static_cast<int>(request.operation);
  }
}

TEST(StoreProtocol, RejectsUnknownOperationsAndWrongNumbersOfTexts) {
  std::vector<std::pair<Operation, std::vector<size_t>>> wrong = {
      {Operation::set, {0, 1, 3}},
      {Operation::get, {0, 2}},
      {Operation::wait, {0}},
      {Operation::add, {0, 1, 3}},
      {Operation::compare_set, {0, 1, 2, 4}},
      {Operation::has, {0}},
      {Operation::remove, {0, 2}},
      {Operation::num_keys, {1}},
      {Operation::greet, {0}},
  };
  for (const int unknown : {0, 10, 127, 128, 255}) {
    wrong.push_back({static_cast<Operation>(unknown), {0, 1, 2, 3}});
  }
  for (const auto& [operation, counts] : wrong) {
    for (const size_t count : counts) {
      Request again;
      EXPECT_FALSE(
          decode(encode({operation, 0, std::vector<std::string>(count, "x")}), again))
          << static_cast<int>(operation) << " with " << count;
    }
  }
}

TEST(StoreProtocol, RejectsLengthsPastTheEnd) {
  auto bytes = encode({Operation::get, 0, {"key"}});
  for (const uint32_t length : {4u, 0x7fffffffu, 0xfffffffcu, 0xffffffffu}) {
    bytes.replace(13, 4, encode_length(length));
    Request again;
    EXPECT_FALSE(decode(bytes, again)) << length;
  }
  bytes.replace(9, 4, encode_length(0xffffffffu));
  Request again;
  EXPECT_FALSE(decode(bytes, again));
}

}  // namespace tandem::store_protocol::store_protocol_test
