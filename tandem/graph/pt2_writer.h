#pragma once

#include <string>

#include "tandem/graph/graph.h"

namespace tandem {

/// Writes a graph with its parameters, buffers and constants to a file that Python's
/// torch.export.load reads, in PyTorch 2.9 and later (pt2_program.h).
/// torch.export.load(path).module() runs it with any number of samples; its
/// state_dict() has the graph's names. read_pt2() reads an equal graph.
///
/// The graph must pass verify(). Replaces `path` atomically (files.h). Throws
/// ConfigError, before it writes anything, if the graph has an argument that
/// torch.export cannot express. Throws DataError if the file cannot be written.
///
/// Source of the layout: torch/export/pt2_archive/_package.py of PyTorch 2.15.
void write_pt2(const std::string& path, const Graph& graph);

}  // namespace tandem
