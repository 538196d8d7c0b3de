#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tandem/comm/communicator.h"
#include "tandem/config/options/strategy_options.h"
#include "tandem/core/arena.h"
#include "tandem/data/read_record.h"

namespace tandem {

/// Settings of ReplicaGuard; the fields of DistributedDataParallelOptions.
struct ReplicaGuardOptions {
  DriftCheck drift_check = DriftCheck::stop;
  bool check_samples = true;
  int64_t check_every = 100;
};

/// Detects mistakes in custom loops that would otherwise train a wrong model without an
/// error:
/// - parameters that differ between ranks;
/// - ranks that read the same samples, or use different samplers (ReadRecord);
/// - a rank that trains another module than the wrapped module.
///
/// A comparison is one all_gather of about 130 bytes per rank, and reads the parameters
/// once. Used by one thread at a time.
class ReplicaGuard {
 public:
  /// Uses the ReadRecord of the calling thread. Collective. Throws ConfigError if
  /// `options` are invalid or differ between ranks.
  ReplicaGuard(
      Communicator& comm, ModelArenas& arenas, const ReplicaGuardOptions& options);
  /// Logs an error if this rank read training samples, but ran no backward; a warning
  /// if it ran no backward and read no samples.
  ~ReplicaGuard();
  ReplicaGuard(const ReplicaGuard&) = delete;
  ReplicaGuard& operator=(const ReplicaGuard&) = delete;

  /// Counts a backward of the wrapped module, with or without reduction.
  void begin_backward() {
    ++num_backwards_;
  }
  /// Adds this rank's gradient of a slot, before the reduction.
  void add_gradient(size_t slot, const at::Tensor& gradient) {
    if (num_reduced_ == 0 && options_.check_samples && comm_.size() > 1) {
      add_to_fingerprint(slot, gradient);
    }
  }
  /// Ends a backward that has reduced gradients. Compares the ranks in the backwards 1,
  /// 2, 4, 8, ... and in every multiple of `check_every`. Collective. Throws Error.
  void end_backward();

  /// Compares the ranks now. Collective. Throws Error.
  void check();

 private:
  void add_to_fingerprint(size_t slot, const at::Tensor& gradient);
  bool read_samples_only() const;
  at::Tensor own_row() const;
  void compare(const std::string& when);
  void compare_parameters(const at::Tensor& rows, const std::string& when);

  Communicator& comm_;
  ModelArenas& arenas_;
  const ReplicaGuardOptions options_;
  const std::shared_ptr<const ReadRecord> reads_;
  // Number of reads, and of exceptions in flight, when the object was constructed.
  const int64_t reads_before_;
  const int exceptions_before_;
  int64_t num_backwards_ = 0;
  // Number of backwards that have reduced gradients.
  int64_t num_reduced_ = 0;
  // Fingerprint of this rank's gradients in the first reducing backward; 0 if all
  // gradients are 0.
  uint64_t gradients_ = 0;
  bool checked_ = false;
};

}  // namespace tandem
