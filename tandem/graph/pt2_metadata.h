#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tandem {

/// Returns the path of the module that made a node, such as "layer1.0.conv1", or "" if
/// the module is the whole model or unknown. `metadata` is the metadata of the node in
/// a file of torch.export.save.
std::string module_of(const nlohmann::json& metadata);

/// Returns the line of Python that made a node, such as "net.py:12: x = self.fc1(x)":
/// the innermost call outside of PyTorch. Returns "" if the line is unknown.
std::string source_of(const nlohmann::json& metadata);

}  // namespace tandem
