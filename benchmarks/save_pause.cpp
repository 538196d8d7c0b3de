// Measures the time for which a save of `net` (Adadelta) stops training on one rank.
// For comparison it copies the same number of bytes as often, between the saves of the
// same run.
//
//   build/release/bin/bench_save_pause [FOLDER [SECONDS]]
//
// With SECONDS it saves after every step for that time. Every minute it prints the
// memory and the number of open files of the process.

#include <dirent.h>
#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

#include "tandem/tandem.h"
#include "tandem/train/report/measures.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSaves = 60;
constexpr int64_t kStepsBetween = 50;
constexpr int64_t kStepsOfEpoch = 100;
constexpr int64_t kBatch = 16;
// Parameters, and Adadelta's two averages for each.
constexpr size_t kCopiedBytes = size_t{3} * 1'199'882 * sizeof(float);

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double resident_mib() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    double kib = 0;
    if (std::sscanf(line.c_str(), "VmRSS: %lf kB", &kib) == 1) {
      return kib / 1024;
    }
  }
  return 0;
}

int open_files() {
  int count = 0;
  DIR* folder = opendir("/proc/self/fd");
  while (readdir(folder) != nullptr) {
    ++count;
  }
  closedir(folder);
  // Without the opened folder, "." and "..".
  return count - 3;
}

// Copies the same number of bytes as a save, half-way between two saves.
class Copies : public tandem::Observer {
 public:
  tandem::Next on_step(const tandem::StepReport& step) override {
    if (step.step % kStepsBetween == kStepsBetween / 2) {
      const auto start = Clock::now();
      std::memcpy(to_.data(), from_.data(), kCopiedBytes);
      times_.add(start);
    }
    return tandem::Next::proceed;
  }

  const tandem::SavePauses& times() const {
    return times_;
  }

 private:
  std::vector<char> from_ = std::vector<char>(kCopiedBytes, 1);
  std::vector<char> to_ = std::vector<char>(kCopiedBytes, 2);
  tandem::SavePauses times_;
};

// Prints memory and open files every minute, and stops the run after `seconds`.
class Growth : public tandem::Observer {
 public:
  explicit Growth(double seconds) : seconds_(seconds) {}

  tandem::Next on_step(const tandem::StepReport& /*step*/) override {
    const double passed = seconds_since(start_);
    if (passed >= next_) {
      fmt::print(
          "{:5.0f} s: {} checkpoints, {:.1f} MiB resident, {} files open\n", passed,
          saves_, resident_mib(), open_files());
      std::fflush(stdout);
      next_ += 60;
    }
    return passed < seconds_ ? tandem::Next::proceed : tandem::Next::stop;
  }
  void on_checkpoint(const std::string& /*path*/) override {
    ++saves_;
  }

 private:
  const Clock::time_point start_ = Clock::now();
  const double seconds_;
  double next_ = 0;
  int64_t saves_ = 0;
};

tandem::RunConfig config_for(const std::string& folder) {
  tandem::RunConfig config;
  config.model.kind = tandem::ModelKind::net;
  config.optimizer.kind = tandem::OptimizerKind::adadelta;
  config.data.source = "digits";
  config.training.batch_size = kBatch;
  config.data.limit = kBatch * kStepsOfEpoch;
  config.output.out = folder;
  config.output.log_line = "off";
  config.output.eval_every = 1 << 20;
  return config;
}

void measure_pause(tandem::RunConfig config) {
  config.training.epochs = kSaves * kStepsBetween / kStepsOfEpoch;
  config.output.checkpoint_every = kStepsBetween;
  Copies copies;
  tandem::CustomParts own;
  own.observer = &copies;
  const auto comm = tandem::make_single_communicator();
  const auto data = tandem::load_dataset(config.data.source, config.data.limit);
  const auto summary = tandem::train(config, data, *comm, std::move(own));
  const auto& copy = copies.times();
  fmt::print(
      "pause for a save: mean {:.2f} ms, longest {:.2f} ms; {} copies of as many "
      "bytes: "
      "mean {:.2f} ms, longest {:.2f} ms; pause / copy: mean {:.2f}, longest {:.2f}\n",
      summary.mean_save_pause_ms, summary.longest_save_pause_ms, kSaves, copy.mean_ms(),
      copy.longest_ms(), summary.mean_save_pause_ms / copy.mean_ms(),
      summary.longest_save_pause_ms / copy.longest_ms());
}

void measure_growth(tandem::RunConfig config, double seconds) {
  config.training.epochs = 1 << 20;
  config.output.checkpoint_every = 1;
  Growth growth(seconds);
  tandem::CustomParts own;
  own.observer = &growth;
  const auto comm = tandem::make_single_communicator();
  const auto data = tandem::load_dataset(config.data.source, config.data.limit);
  tandem::train(config, data, *comm, std::move(own));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto config = config_for(argc > 1 ? argv[1] : "build/save-pause");
    if (argc > 2) {
      measure_growth(config, std::atof(argv[2]));
    } else {
      measure_pause(config);
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
