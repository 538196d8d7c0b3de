// Compares nccl_api.h with nccl.h; compiled where CUDA's toolkit has one.

#include <nccl.h>

#include <cstddef>
#include <type_traits>

#include "tandem/comm/nccl/nccl_api.h"

namespace tandem {

namespace {

// Whether a caller passes the one as the other.
template <typename Theirs, typename Ours>
constexpr bool kAlike =
    sizeof(Theirs) == sizeof(Ours) && alignof(Theirs) == alignof(Ours) &&
    std::is_pointer_v<Theirs> == std::is_pointer_v<Ours>&& std::is_class_v<Theirs> ==
        std::is_class_v<Ours> &&
    (std::is_integral_v<Theirs> || std::is_enum_v<Theirs>) ==
        (std::is_integral_v<Ours> || std::is_enum_v<Ours>);

template <typename... Types>
struct Arguments {};

template <typename... Theirs, typename... Ours>
constexpr bool all_alike(Arguments<Theirs...>, Arguments<Ours...>) {
  if constexpr (sizeof...(Theirs) == sizeof...(Ours)) {
    return (kAlike<Theirs, Ours> && ...);
  }
  return false;
}

template <typename Theirs, typename Ours>
constexpr bool kSameCall = false;
template <typename R, typename... A, typename S, typename... B>
constexpr bool kSameCall<R(A...), S(B...)> =
    kAlike<R, S>&& all_alike(Arguments<A...>(), Arguments<B...>());

static_assert(kSameCall<decltype(ncclGetVersion), NcclApi::GetVersion>);
static_assert(kSameCall<decltype(ncclGetUniqueId), NcclApi::GetUniqueId>);
static_assert(kSameCall<decltype(ncclCommInitRankConfig), NcclApi::CommInitRankConfig>);
static_assert(kSameCall<decltype(ncclCommGetAsyncError), NcclApi::CommGetAsyncError>);
static_assert(kSameCall<decltype(ncclCommFinalize), NcclApi::OfComm>);
static_assert(kSameCall<decltype(ncclCommDestroy), NcclApi::OfComm>);
static_assert(kSameCall<decltype(ncclCommAbort), NcclApi::OfComm>);
static_assert(kSameCall<decltype(ncclAllReduce), NcclApi::AllReduce>);
static_assert(kSameCall<decltype(ncclBroadcast), NcclApi::Broadcast>);
static_assert(kSameCall<decltype(ncclReduceScatter), NcclApi::ReduceScatter>);
static_assert(kSameCall<decltype(ncclAllGather), NcclApi::AllGather>);
static_assert(kSameCall<decltype(ncclSend), NcclApi::Send>);
static_assert(kSameCall<decltype(ncclRecv), NcclApi::Recv>);
static_assert(kSameCall<decltype(ncclGroupStart), NcclApi::Group>);
static_assert(kSameCall<decltype(ncclGroupEnd), NcclApi::Group>);
static_assert(kSameCall<decltype(ncclGetErrorString), NcclApi::GetErrorString>);
static_assert(kSameCall<decltype(ncclGetLastError), NcclApi::GetLastError>);
static_assert(!kSameCall<decltype(ncclSend), NcclApi::AllGather>);

static_assert(sizeof(NcclUniqueId) == NCCL_UNIQUE_ID_BYTES);

template <typename Theirs, typename Ours>
constexpr bool same(Theirs theirs, Ours ours) {
  return static_cast<int>(theirs) == static_cast<int>(ours);
}

static_assert(same(ncclSuccess, NcclResult::success));
static_assert(same(ncclUnhandledCudaError, NcclResult::unhandled_cuda_error));
static_assert(same(ncclSystemError, NcclResult::system_error));
static_assert(same(ncclInternalError, NcclResult::internal_error));
static_assert(same(ncclInvalidArgument, NcclResult::invalid_argument));
static_assert(same(ncclInvalidUsage, NcclResult::invalid_usage));
static_assert(same(ncclRemoteError, NcclResult::remote_error));
static_assert(same(ncclInProgress, NcclResult::in_progress));

static_assert(same(ncclInt8, NcclDataType::int8));
static_assert(same(ncclUint8, NcclDataType::uint8));
static_assert(same(ncclInt32, NcclDataType::int32));
static_assert(same(ncclInt64, NcclDataType::int64));
static_assert(same(ncclFloat16, NcclDataType::float16));
static_assert(same(ncclFloat32, NcclDataType::float32));
static_assert(same(ncclFloat64, NcclDataType::float64));
static_assert(same(ncclBfloat16, NcclDataType::bfloat16));

static_assert(same(ncclSum, NcclRedOp::sum));
static_assert(same(ncclMax, NcclRedOp::max));
static_assert(same(ncclMin, NcclRedOp::min));

static_assert(offsetof(ncclConfig_t, size) == offsetof(NcclConfig, size));
static_assert(offsetof(ncclConfig_t, magic) == offsetof(NcclConfig, magic));
static_assert(offsetof(ncclConfig_t, version) == offsetof(NcclConfig, version));
static_assert(offsetof(ncclConfig_t, blocking) == offsetof(NcclConfig, blocking));
static_assert(sizeof(NcclConfig) <= sizeof(ncclConfig_t));
static_assert(
    sizeof(NcclConfig) == offsetof(NcclConfig, unset) + sizeof(NcclConfig::unset));

constexpr ncclConfig_t kTheirs = NCCL_CONFIG_INITIALIZER;
static_assert(kTheirs.magic == NcclConfig{}.magic);
static_assert(NCCL_CONFIG_UNDEF_INT == NcclConfig{}.unset);

}  // namespace

}  // namespace tandem
