#pragma once

#include <string>

#include "tandem/graph/graph.h"

namespace tandem {

/// Line of Python that exports a model so that tandem can train it.
extern const char* const kExportLine;

/// Reads a network from a file of Python's torch.export.save (torch 2.6 or later).
///
/// Values have the names of the file, parameters and buffers those of state_dict().
/// Tied weights are one value and an alias. The tensors are on the CPU, in the file's
/// dtypes; parameters require gradients as in Python. Sizes and assertions are not
/// nodes. No code in the file is executed. The graph passes verify().
///
/// Until the file is known to be valid, the reader uses at most 4 times its size and 64
/// MB.
///
/// Throws DataError if the file is missing or damaged. Throws ConfigError for a network
/// that tandem cannot train: operators that LibTorch lacks, control flow, a fixed batch
/// size, several inputs or outputs, random operators, or an export in evaluation mode.
[[nodiscard]] Graph read_pt2(const std::string& path);

}  // namespace tandem
