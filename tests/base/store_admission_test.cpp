// Ports that accept only some addresses.

#include "tandem/base/store/address_filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/base/connect_from.h"

namespace tandem::store_admission_test {

using testing::Contains;
using testing::Field;

sockaddr_in place_of(const Listener& listener) {
  sockaddr_in place{};
  socklen_t size = sizeof(place);
  EXPECT_EQ(
      getsockname(listener.socket.fd(), reinterpret_cast<sockaddr*>(&place), &size), 0);
  return place;
}

TEST(AddressFilter, OnlyListedAddressesCanConnect) {
  const auto earlier = listen_at("tcp:127.0.0.1:0");
  const AddressFilter admission(
      {"127.0.0.7", "fe80::1", "10.1.2.3", "::ffff:127.0.0.3"});
  const auto listener = listen_at("tcp:127.0.0.1:0");
  const auto place = place_of(listener);
  EXPECT_EQ(admission.apply(), 1);
  EXPECT_TRUE(connect_from("127.0.0.3", place));
  EXPECT_TRUE(connect_from("127.0.0.7", place));
  EXPECT_FALSE(connect_from("127.0.0.1", place));
  EXPECT_FALSE(connect_from("127.0.0.4", place));
  EXPECT_TRUE(connect_from("127.0.0.4", place_of(earlier)));
}

TEST(AddressFilter, FiltersIpv6) {
  const auto addresses = interface_addresses();
  EXPECT_THAT(addresses, Contains(Field(&InterfaceAddress::address, "127.0.0.1")));
  if (!testing::Value(addresses, Contains(Field(&InterfaceAddress::address, "::1")))) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  const auto answers = [](const std::set<std::string>& admitted) {
    const AddressFilter admission(admitted);
    const auto listener = listen_at("tcp:::1:0");
    EXPECT_EQ(admission.apply(), 1);
    const auto soon = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
    return static_cast<bool>(connect_once(listener.address, soon));
  };
  EXPECT_TRUE(answers({"127.0.0.1", "fe80::1", "::1"}));
  EXPECT_FALSE(answers({"127.0.0.1", "fe80::1", "1::1"}));
}

TEST(AddressFilter, TooManyAddressesDisableTheFilter) {
  std::set<std::string> many;
  for (int i = 0; i < 1000; ++i) {
    many.insert("2001:db8::" + std::to_string(i));
  }
  const AddressFilter admission(many);
  const auto listener = listen_at("tcp:127.0.0.1:0");
  EXPECT_EQ(admission.apply(), 0);
  EXPECT_TRUE(connect_from("127.0.0.4", place_of(listener)));
}

}  // namespace tandem::store_admission_test
