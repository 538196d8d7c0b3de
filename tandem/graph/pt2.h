#pragma once

#include <string>

#include "tandem/graph/graph.h"

namespace tandem {

/// Python expression that exports a model so that tandem can train it.
extern const char* const kExportLine;

/// Treatment of the values of parameters and buffers in a file.
enum class StateValues { read, unread };

/// Reads a network from a file of Python's torch.export.save (torch 2.6 or later).
///
/// Values have the names in the file; parameters and buffers have the names in
/// state_dict(). Tied weights are one value and an alias. The tensors are on the CPU,
/// in the file's dtypes; parameters require gradients as in Python. Computations of
/// sizes and assertions do not become nodes. No code in the file is executed. The graph
/// passes verify().
///
/// Until all checks of the file have passed, the reader uses at most 4 times the size
/// of the file plus 64 MB of memory.
///
/// With StateValues::unread, the tensors of the state dict have any values, and use no
/// memory until they are written: for a rank that gets the values from another rank.
/// Files of torch 2.8 and earlier are read nevertheless.
///
/// Throws DataError if the file is missing or damaged. Throws ConfigError for a network
/// that tandem cannot train. Examples are operators that LibTorch lacks, control flow,
/// a fixed batch size, several inputs or outputs, random operators, and an export in
/// evaluation mode.
[[nodiscard]] Graph read_pt2(
    const std::string& path, StateValues values = StateValues::read);

}  // namespace tandem
