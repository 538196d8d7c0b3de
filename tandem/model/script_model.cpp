#include "tandem/model/script_model.h"

#include <caffe2/serialize/versions.h>
#include <fmt/core.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/version.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/formats/torch_zip.h"

namespace tandem {

namespace {

TorchZip open_archive(const std::string& path) {
  return TorchZip(
      {path}, "[model]",
      "copy the file again, or write it with "
      "torch.jit.save(torch.jit.script(model), path)");
}

bool has_code(const TorchZip& archive) {
  return archive.has_start("code/");
}

// LibTorch leaks the archive's directory if it rejects the version.
void check_version(const std::string& path, const TorchZip& archive) {
  for (const char* name : {"version", ".data/version"}) {
    if (archive.find(name) == nullptr) {
      continue;
    }
    const auto version = std::strtoull(archive.content_of(name).c_str(), nullptr, 10);
    if (version > caffe2::serialize::kMaxSupportedFileFormatVersion) {
      throw DataError(fmt::format(
          "[model] '{}' has version {} of the format, expected at most {}; save the "
          "module again, with torch {} or an older one",
          path, version, caffe2::serialize::kMaxSupportedFileFormatVersion,
          TORCH_VERSION));
    }
  }
}

// Checks the archive's directory, since LibTorch allocates the sizes in it.
void check_archive(const std::string& path) {
  const TorchZip archive = open_archive(path);
  if (!has_code(archive)) {
    throw DataError(
        "[model] '" + path +
        "' contains weights but no code of a network; write it with "
        "torch.jit.save(torch.jit.script(model), path)");
  }
  check_version(path, archive);
}

torch::jit::Module load(const std::string& path) {
  check_archive(path);
  std::string reason;
  try {
    return torch::jit::load(path, c10::Device(at::kCPU));
  } catch (const c10::Error& error) {
    reason = error.what_without_backtrace();
  } catch (const std::exception& error) {
    reason = error.what();
  }
  // An unknown operator is on the first line that is not empty.
  reason.erase(0, reason.find_first_not_of('\n'));
  throw DataError(fmt::format(
      "[model] '{}' cannot be read by LibTorch {} ({}); save the module again, with "
      "this version of torch or an older one",
      path, TORCH_VERSION, reason.substr(0, reason.find('\n'))));
}

[[noreturn]] void refuse_script(const std::string& path, const std::string& what) {
  throw ConfigError("[model] '" + path + "' " + what);
}

bool is_tensor(const c10::Argument& argument) {
  return argument.type()->kind() == c10::TypeKind::TensorType;
}

void check_forward(const torch::jit::Module& module, const std::string& path) {
  const auto forward = module.find_method("forward");
  if (!forward) {
    refuse_script(
        path,
        "has no method forward(), expected a network; save a module with forward()");
  }
  const auto& schema = forward->function().getSchema();
  // The first argument is the module.
  const auto& arguments = schema.arguments();
  const auto required = std::count_if(
      arguments.begin() + 1, arguments.end(),
      [](const auto& argument) { return !argument.default_value().has_value(); });
  if (arguments.size() < 2 || required > 1 || !is_tensor(arguments[1])) {
    refuse_script(
        path,
        fmt::format(
            "has a forward() with {} inputs, expected one tensor; wrap it in a module "
            "with a single input",
            arguments.size() - 1));
  }
  if (schema.returns().size() != 1 || !is_tensor(schema.returns()[0])) {
    refuse_script(
        path, "has a forward() that returns " + schema.returns().at(0).type()->str() +
                  ", expected one tensor; wrap it in a module with a single output");
  }
}

// Keeps the first name of a tensor with several names.
template <typename Named>
std::vector<NamedTensor> named(const Named& list) {
  std::vector<NamedTensor> all;
  for (const auto& entry : list) {
    const bool known = std::any_of(all.begin(), all.end(), [&](const auto& other) {
      return other.tensor.is_same(entry.value);
    });
    if (!known && entry.value.defined()) {
      all.push_back({entry.name, entry.value});
    }
  }
  return all;
}

}  // namespace

bool is_script_file(const std::string& path) {
  if (std::filesystem::path(path).extension() != ".pt") {
    return false;
  }
  try {
    return has_code(open_archive(path));
  } catch (const ConfigError&) {
    // load_script_model() reports compressed or too large entries.
    return true;
  } catch (const Error&) {
    // The reader of the other format reports the error.
    return false;
  }
}

std::unique_ptr<Model> load_script_model(const std::string& path) {
  auto module = load(path);
  check_forward(module, path);
  auto parameters = named(module.named_parameters());
  if (parameters.empty()) {
    refuse_script(
        path,
        "has no parameters, expected a network to train; save the module without "
        "torch.jit.freeze()");
  }
  return make_function_model(
      [module](const at::Tensor& x) mutable {
        // An optimized graph has one backward, which returns all gradients at once. So
        // it would hold them twice, and ranks would exchange none while it runs.
        const torch::jit::GraphOptimizerEnabledGuard unoptimized(false);
        return module.forward({x}).toTensor();
      },
      std::move(parameters), named(module.named_buffers()),
      [module](bool training) mutable { module.train(training); });
}

}  // namespace tandem
