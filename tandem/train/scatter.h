#pragma once

#include <cstdint>
#include <functional>

#include "tandem/comm/communicator.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// Distributes data that only rank 0 reads. Splits the training samples at random into
/// equal shares, as torch.utils.data.random_split does, and sends one share to each
/// rank. Samples that do not divide evenly are left out. Every rank gets all samples of
/// the other parts. The samples of a sequence then start at fixed elements.
///
/// Only rank 0 calls `load`. If `load` throws, rank 0 rethrows its error and the other
/// ranks throw CommError. The split depends only on `seed` and the number of ranks. A
/// single rank gets the data unchanged. Collective. Throws DataError if there are fewer
/// samples than ranks.
DatasetSplits scatter_dataset(
    const std::function<DatasetSplits()>& load, uint64_t seed, Communicator& comm);

}  // namespace tandem
