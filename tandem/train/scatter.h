#pragma once

#include <cstdint>
#include <functional>

#include "tandem/comm/communicator.h"
#include "tandem/data/dataset.h"

namespace tandem {

/// Data that only rank 0 reads. The training samples are split at random, as
/// torch.utils.data.random_split does, into equal shares, and every rank gets one (a
/// Dataset that says which); samples that do not divide are left out. The test samples
/// go to all.
///
/// `load` is called at rank 0 only; what it throws, rank 0 throws, and the others a
/// CommError. The split is a function of `seed` and the number of ranks. A group of one
/// has the data as it is. Collective. Throws DataError when there are fewer samples
/// than ranks.
DatasetSplits scatter_dataset(
    const std::function<DatasetSplits()>& load, uint64_t seed, Communicator& comm);

}  // namespace tandem
