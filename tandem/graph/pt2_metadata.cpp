#include "tandem/graph/pt2_metadata.h"

#include "tandem/graph/pt2_json.h"

namespace tandem {

namespace {

using nlohmann::json;

std::string entry_of(const json& metadata, const char* name) {
  const auto found = metadata.find(name);
  return found == metadata.end() ? "" : string_of(*found);
}

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  const size_t end = text.find_last_not_of(" \t\r");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::string line_at(const std::string& text, size_t begin) {
  return trimmed(text.substr(begin, text.find('\n', begin) - begin));
}

// Returns whether a path belongs to PyTorch's code. Also returns true for code that
// PyTorch generates, such as "<eval_with_key>.47".
bool is_in_pytorch(const std::string& path) {
  return path.rfind("torch/", 0) == 0 || path.find("/torch/") != std::string::npos ||
         path.rfind('<', 0) == 0;
}

}  // namespace

// Form: "KEY,PATH,CLASS;KEY,PATH,CLASS", the innermost module last. A path ends with
// "@1" in a second call of a module.
std::string module_of(const json& metadata) {
  const std::string stack = entry_of(metadata, "nn_module_stack");
  const std::string last = stack.substr(stack.rfind(';') + 1);
  const size_t begin = last.find(',') + 1;
  const size_t end = last.find(',', begin);
  if (begin == 0 || end == std::string::npos) {
    return "";
  }
  const std::string path = last.substr(begin, end - begin);
  // Nodes that PyTorch inserts itself.
  return path.rfind("_empty_nn_module_stack", 0) == 0 ? ""
                                                      : path.substr(0, path.find('@'));
}

// Form of a frame: 'File "PATH", line NUMBER, in FUNCTION', then a line of code.
std::string source_of(const json& metadata) {
  static const std::string kFile = "File \"";
  static const std::string kLine = "\", line ";
  const std::string trace = entry_of(metadata, "stack_trace");
  std::string found;
  for (size_t next = trace.find(kFile); next != std::string::npos;
       next = trace.find(kFile, next)) {
    next += kFile.size();
    const size_t end = trace.find(kLine, next);
    if (end == std::string::npos) {
      break;
    }
    const std::string path = trace.substr(next, end - next);
    next = end + kLine.size();
    if (is_in_pytorch(path)) {
      continue;
    }
    const std::string line =
        trace.substr(next, trace.find_first_not_of("0123456789", next) - next);
    found = path.substr(path.rfind('/') + 1) + ":" + line;
    const size_t code = trace.find('\n', next);
    if (code != std::string::npos) {
      const std::string text = line_at(trace, code + 1);
      found += text.empty() || text.rfind(kFile, 0) == 0 ? "" : ": " + text;
    }
  }
  return found;
}

}  // namespace tandem
