#pragma once

// Common parts of all tests with bad input: preparation, run and checks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "tandem/base/store/socket.h"
#include "tests/program/program.h"

namespace tandem {

/// The scratch directory of a test case, and functions that prepare its content.
class Stage {
 public:
  std::string operator/(const std::string& name) const {
    return scratch_ / name;
  }

  void write(const std::string& name, const std::string& content) const;
  std::string read(const std::string& name) const;
  /// Truncates a file to `size` bytes.
  void cut(const std::string& name, size_t size) const;
  /// Replaces a text in a file by a text of the same length.
  void exchange(
      const std::string& name, const std::string& from, const std::string& to) const;

  /// Writes a data set of four IDX files to the folder `name`, with 64 training images
  /// and 64 test images.
  void data(const std::string& name, int64_t height = 28, int64_t width = 28) const;
  /// Trains simplenet on the folder "data" for two epochs of one step, with `name` as
  /// the directory of the run.
  void finished_run(const std::string& name) const;
  /// Makes a directory "checkpoint" with the newest checkpoint of a run of
  /// finished_run().
  void checkpoint() const;

  /// Replaces the placeholders in a text. "@/" becomes the scratch directory. "@port"
  /// becomes a port whose listener is not a store, "@free" a port without a listener,
  /// and "@full" a port that accepts no more connections.
  std::string filled(std::string text) const;

 private:
  Scratch scratch_;
  Listener listener_ = listen_at("tcp:127.0.0.1:0");
  Listener full_ = listen_at("tcp:127.0.0.1:0");
  // Connections that fill the backlog of full_. filled() makes them for "@full".
  mutable std::vector<Socket> crowd_;
  std::string free_ = port_of(listen_at("tcp:127.0.0.1:0"));

  static std::string port_of(const Listener& listener) {
    return listener.address.substr(listener.address.rfind(':') + 1);
  }
  void make_crowd() const;
};

using Prepare = std::function<void(const Stage&)>;

struct BadInputCase {
  std::string name;
  Arguments arguments;
  int code;
  // Texts that the error line must contain.
  std::vector<std::string> says;
  Prepare prepare = {};
  Variables variables = {};
  // Shell command that runs the program ("$@") under a limit; "" for no limit.
  std::string shell = {};
  // Mount options of a small file system at "@/disk", which only the program can
  // access; "" for no file system. After the run, its files are copied to
  // "@/disk.after".
  std::string disk = {};
  // Function that makes further checks after the run.
  Prepare after = {};
};

void PrintTo(const BadInputCase& bad, std::ostream* out);

class BadInput : public testing::TestWithParam<BadInputCase> {};

inline std::string name_of_case(const testing::TestParamInfo<BadInputCase>& info) {
  return info.param.name;
}

/// Returns arguments that train simplenet on "@/data", unless `more` overrides them.
Arguments train(Arguments more);

/// Shell command that runs the program ("$@"). If the user is root, the program still
/// needs file permissions, because the command removes the capabilities that bypass
/// them.
constexpr const char* kBound = R"(
  [ $(id -u) != 0 ] || exec setpriv --bounding-set=-dac_override,-dac_read_search "$@"
  exec "$@")";

/// Returns a case with these members.
inline BadInputCase bad_input(
    const std::string& name, const Arguments& arguments, int code,
    const std::vector<std::string>& says, const Prepare& prepare = {},
    const Variables& variables = {}) {
  return {name, arguments, code, says, prepare, variables};
}

/// Returns the case with another member `shell`, `disk` or `after`.
inline BadInputCase in_shell(const std::string& shell, BadInputCase bad) {
  bad.shell = shell;
  return bad;
}
inline BadInputCase on_disk(const std::string& disk, BadInputCase bad) {
  bad.disk = disk;
  return bad;
}
inline BadInputCase and_then(const Prepare& after, BadInputCase bad) {
  bad.after = after;
  return bad;
}

/// Preparations that several test cases use.
inline void with_data(const Stage& stage) {
  stage.data("data");
}
inline void with_checkpoint(const Stage& stage) {
  stage.data("data");
  stage.checkpoint();
}

/// Returns a preparation that calls with_data() or with_checkpoint(), and then
/// `change`.
Prepare data_and(const Prepare& change);
Prepare checkpoint_and(const Prepare& change);

}  // namespace tandem
