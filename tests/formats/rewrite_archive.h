#pragma once

#include <caffe2/serialize/inline_container.h>

#include <string>

namespace tandem {

/// Writes a zip archive of LibTorch to another file. `change` gets the name and the
/// content of each entry and may change the content. `version` is the least version of
/// the new archive's format.
template <typename Change>
void rewrite_archive(
    const std::string& from, const std::string& to, const Change& change,
    uint64_t version = 0) {
  caffe2::serialize::PyTorchStreamReader reader(from);
  caffe2::serialize::PyTorchStreamWriter writer(to);
  writer.setMinVersion(version);
  for (const auto& name : reader.getAllRecords()) {
    // The writer adds these entries itself.
    if (name == "version" || name.rfind(".data/", 0) == 0) {
      continue;
    }
    const auto [data, size] = reader.getRecord(name);
    std::string content(static_cast<const char*>(data.get()), size);
    change(name, content);
    writer.writeRecord(name, content.data(), content.size());
  }
  writer.writeEndOfFile();
}

}  // namespace tandem
