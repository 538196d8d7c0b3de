#pragma once

#include <climits>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "tandem/comm/nccl/streams.h"

namespace tandem {

// Types of nccl.h that are used here. That header comes with CUDA's toolkit only;
// nccl_abi.cpp compares the two where there is one.

using NcclComm = struct NcclCommOfLibrary*;

struct NcclUniqueId {
  char bytes[128];
};

enum class NcclResult : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7
};

enum class NcclDataType : int {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  int64 = 4,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9
};

enum class NcclRedOp : int { sum = 0, max = 2, min = 3 };

/// What NCCL 2.14 had of it, under that version: a newer NCCL takes its own defaults
/// for the rest.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21400;
  int blocking = 0;
  int unset = INT_MIN;
};

/// What is used of NCCL, as functions named after nccl.h's, so that one in main memory
/// can stand in for it.
struct NcclApi {
  using GetVersion = NcclResult(int* version);
  using GetUniqueId = NcclResult(NcclUniqueId* id);
  using CommInitRankConfig = NcclResult(
      NcclComm* comm, int size, NcclUniqueId id, int rank, NcclConfig* config);
  using CommGetAsyncError = NcclResult(NcclComm comm, NcclResult* error);
  using OfComm = NcclResult(NcclComm comm);
  using AllReduce = NcclResult(
      const void* input, void* output, size_t count, NcclDataType dtype, NcclRedOp op,
      NcclComm comm, StreamHandle stream);
  using Broadcast = NcclResult(
      const void* input, void* output, size_t count, NcclDataType dtype, int root,
      NcclComm comm, StreamHandle stream);
  // `count`: elements of the part.
  using ReduceScatter = AllReduce;
  using AllGather = NcclResult(
      const void* input, void* output, size_t count, NcclDataType dtype, NcclComm comm,
      StreamHandle stream);
  using Send = NcclResult(
      const void* input, size_t count, NcclDataType dtype, int peer, NcclComm comm,
      StreamHandle stream);
  using Recv = NcclResult(
      void* output, size_t count, NcclDataType dtype, int peer, NcclComm comm,
      StreamHandle stream);
  using Group = NcclResult();
  using GetErrorString = const char*(NcclResult result);
  using GetLastError = const char*(NcclComm comm);

  std::function<GetVersion> get_version;
  std::function<GetUniqueId> get_unique_id;
  std::function<CommInitRankConfig> comm_init_rank_config;
  std::function<CommGetAsyncError> comm_get_async_error;
  std::function<OfComm> comm_finalize;
  std::function<OfComm> comm_destroy;
  std::function<OfComm> comm_abort;
  std::function<AllReduce> all_reduce;
  std::function<Broadcast> broadcast;
  std::function<ReduceScatter> reduce_scatter;
  std::function<AllGather> all_gather;
  std::function<Send> send;
  std::function<Recv> recv;
  std::function<Group> group_start;
  std::function<Group> group_end;
  std::function<GetErrorString> get_error_string;
  std::function<GetLastError> get_last_error;
};

/// NCCL as this machine has it, which stays loaded until the process ends.
///
/// Throws ConfigError when it cannot be loaded or is older than 2.18.
std::shared_ptr<const NcclApi> load_nccl(const std::string& library = "libnccl.so.2");

}  // namespace tandem
