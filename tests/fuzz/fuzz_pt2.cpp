// Files of torch.export: a graph that the reader accepts is consistent.

#include "tandem/graph/pt2.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/zip_bytes.h"

namespace {

using tandem::Graph;
using tandem::Value;
using tandem::ValueKind;
using tandem::fuzz::expect;

// Returns the zip archive of an input: a name, a line feed and the content for each
// entry. Changes of the content then leave a valid archive. An input that begins with
// "PK" is an archive already.
std::string archive_of(const std::string& input) {
  static const std::string kSeparator = "\n=====\n";
  if (input.rfind("PK", 0) == 0) {
    return input;
  }
  tandem::fuzz::ZipBytes archive;
  for (size_t begin = 0; begin < input.size();) {
    const size_t end = std::min(input.find(kSeparator, begin), input.size());
    const std::string entry = input.substr(begin, end - begin);
    const size_t line = std::min(entry.find('\n'), entry.size());
    archive.add(
        "model/" + entry.substr(0, line),
        entry.substr(std::min(line + 1, entry.size())));
    begin = end + kSeparator.size();
  }
  return archive.finish();
}

void expect_consistent(const Value& value) {
  if (value.kind == ValueKind::input || value.kind == ValueKind::output) {
    expect(
        !value.tensor.defined(), "only parameters, buffers and constants are stored");
    return;
  }
  expect(value.tensor.scalar_type() == value.dtype, "a tensor has the value's dtype");
  expect(
      value.tensor.dim() == static_cast<int64_t>(value.shape.size()),
      "a tensor has the value's shape");
  for (size_t i = 0; i < value.shape.size(); ++i) {
    expect(
        value.shape[i] == tandem::Size{value.tensor.size(static_cast<int64_t>(i)), 0},
        "a tensor has the value's shape");
  }
  expect(
      value.kind == ValueKind::constant || !value.state_name.empty(),
      "a parameter or buffer has a name");
}

void expect_consistent(const Graph& graph) {
  tandem::verify(graph);
  for (const auto& value : graph.values) {
    expect_consistent(value);
  }
  const auto& shape = graph.value(graph.input).shape;
  expect(!shape.empty() && shape[0] == tandem::Size{0, 1}, "samples come first");
  for (const auto& alias : graph.aliases) {
    expect(!graph.value(alias.value).state_name.empty(), "an alias has a first name");
  }
  expect(!tandem::describe(graph).empty(), "the graph has a text");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tandem;
  static const fuzz::MemoryFile file;
  file.write(archive_of(std::string(reinterpret_cast<const char*>(data), size)));
  Graph graph;
  if (fuzz::accepts([&] { graph = read_pt2(file.path()); })) {
    expect_consistent(graph);
  }
  return 0;
}
