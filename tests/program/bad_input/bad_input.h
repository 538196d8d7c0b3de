#pragma once

// What every case of bad input has in common: how it is prepared, run and checked.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "tandem/base/store/socket.h"
#include "tests/program/program.h"

namespace tandem {

/// The scratch directory of a case, and what a case can put into it.
class Stage {
 public:
  std::string operator/(const std::string& name) const {
    return scratch_ / name;
  }

  void write(const std::string& name, const std::string& content) const;
  std::string read(const std::string& name) const;
  /// Cuts a file after `size` bytes.
  void cut(const std::string& name, size_t size) const;
  /// Replaces a text by another of the same length.
  void exchange(
      const std::string& name, const std::string& from, const std::string& to) const;

  /// A folder of four IDX files, 64 training and 64 test images.
  void data(const std::string& name, int64_t height = 28, int64_t width = 28) const;
  /// What a run of simplenet on "data" for two epochs of one step left.
  void finished_run(const std::string& name) const;
  /// Its newest checkpoint, as the directory "checkpoint".
  void checkpoint() const;

  /// "@/" becomes the scratch directory, "@port" a port on which somebody listens
  /// who is no store, "@free" one where nobody does, "@full" one that accepts no more
  /// connections.
  std::string filled(std::string text) const;

 private:
  Scratch scratch_;
  Listener listener_ = listen_at("tcp:127.0.0.1:0");
  Listener full_ = listen_at("tcp:127.0.0.1:0");
  std::vector<Socket> crowd_ = crowd();
  std::string free_ = port_of(listen_at("tcp:127.0.0.1:0"));

  static std::string port_of(const Listener& listener) {
    return listener.address.substr(listener.address.rfind(':') + 1);
  }
  std::vector<Socket> crowd() const;
};

using Prepare = std::function<void(const Stage&)>;

struct BadInputCase {
  std::string name;
  std::vector<std::string> arguments;
  int code;
  // The line that the user sees holds each of these.
  std::vector<std::string> says;
  Prepare prepare = {};
  Variables variables = {};
  // A shell's text that runs "$@" under some limit.
  std::string shell = {};
  // Mount options of a small file system at "@/disk", seen by the program only. What
  // is on it at the end is copied to "@/disk.after".
  std::string disk = {};
  // More checks, at the end.
  Prepare after = {};
};

void PrintTo(const BadInputCase& bad, std::ostream* out);

class BadInput : public testing::TestWithParam<BadInputCase> {};

inline std::string name_of_case(const testing::TestParamInfo<BadInputCase>& info) {
  return info.param.name;
}

/// train on "@/data" with simplenet, unless `more` says otherwise.
std::vector<std::string> train(std::vector<std::string> more);

/// A shell's text that runs "$@" bound by permissions, as root otherwise is not.
constexpr const char* kBound = R"(
  [ $(id -u) != 0 ] || exec setpriv --bounding-set=-dac_override,-dac_read_search "$@"
  exec "$@")";

/// Prepares that the cases share.
inline void with_data(const Stage& stage) {
  stage.data("data");
}
inline void with_checkpoint(const Stage& stage) {
  stage.data("data");
  stage.checkpoint();
}

/// with_data, or with_checkpoint, and a change after it.
Prepare data_and(const Prepare& change);
Prepare checkpoint_and(const Prepare& change);

}  // namespace tandem
