#include "app/host_identity.h"

#include <gmock/gmock.h>

#include <optional>

#include "tests/base/test_tools.h"

namespace tandem::host_identity_test {

using app::Arguments;
using app::HostIdentity;
using app::parse_train_arguments;

// A host of a run on two hosts, with its own CSV file.
class Host {
 public:
  explicit Host(
      const Arguments& more, const std::string& last_line = "1,2,0\n",
      const std::string& model = "simplenet") {
    replace_file(file_, "a,b,c\n0,1,0\n1,0,1\n1,1,1\n0,0,0\n" + last_line);
    Arguments arguments = {"--data",   file_,           "--target",      "c",
                           "--nnodes", "1:2",           "--node-rank",   "1",
                           "--model",  model,           "--master-port", "29500",
                           "--out",    scratch_ / "run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto config = parse_train_arguments(arguments);
    reader_.emplace(DataRequest(config), std::chrono::minutes(1), true);
    identity_.emplace(arguments, config, EarlierSettings(), &*reader_);
  }
  std::string text() {
    std::optional<std::string> text;
    EXPECT_TRUE(eventually([&] { return (text = identity_->text()).has_value(); }));
    return text.value_or("");
  }
  void check(const std::string& host_0) {
    EXPECT_TRUE(eventually([&] { return identity_->check(host_0); }));
  }

 private:
  const Scratch scratch_;
  const std::string file_ = scratch_ / "table.csv";
  std::optional<DataReader> reader_;
  std::optional<HostIdentity> identity_;
};

TEST(HostIdentity, IsEqualForEqualHosts) {
  Host host_0({});
  Host same({"--master-addr", "127.0.0.1"});
  same.check(host_0.text());
}

TEST(HostIdentity, NamesASettingThatDiffers) {
  Host host_0({});
  Host other({"--lr", "0.5"});
  expect_error<ConfigError>(
      [&] { other.check(host_0.text()); },
      {"lr is 0.5, expected ", " as on host 0; change --lr"});
}

TEST(HostIdentity, NamesThePartOfTheDataThatDiffers) {
  Host host_0({});
  Host other({}, "1,3,0\n");
  expect_error<ConfigError>(
      [&] { other.check(host_0.text()); }, {"inputs differ from those of host 0"});
}

TEST(HostIdentity, NamesANetworkFileThatDiffers) {
  const Scratch scratch;
  const std::string files[] = {scratch / "a.pt2", scratch / "b.pt2"};
  replace_file(files[0], "one network");
  replace_file(files[1], "another network");
  Host host_0({}, "1,2,0\n", files[0]);
  Host other({}, "1,2,0\n", files[1]);
  expect_error<ConfigError>(
      [&] { other.check(host_0.text()); },
      {"the file of --model differs from that of host 0; copy the file of host 0"});
  replace_file(files[1], "one network");
  Host same({}, "1,2,0\n", files[1]);
  same.check(host_0.text());
}

TEST(HostIdentity, ReportsDataThatCannotBeRead) {
  Host host_0({});
  Host other({}, "1,3\n");
  expect_error<DataError>([&] { other.check(host_0.text()); }, {"table.csv"});
}

}  // namespace tandem::host_identity_test
