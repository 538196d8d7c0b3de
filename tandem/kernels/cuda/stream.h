#pragma once

struct CUstream_st;

namespace tandem::cuda {

/// CUDA's cudaStream_t, under the name that needs none of its headers. Kernels are put
/// in the stream and run later; what they are given has to live until they have run.
/// null: the default stream.
using Stream = CUstream_st*;

}  // namespace tandem::cuda
