#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tandem/base/files.h"
#include "tandem/graph/pt2.h"
#include "tests/graph/fixture_files.h"

namespace tandem {

/// Versions of PyTorch that exported the files in tests/graph/fixtures.
inline const std::vector<std::string> kTorchVersions = {
    "2.6.0", "2.7.1", "2.8.0", "2.11.0", "2.15.0"};

/// Names of the networks in tests/graph/fixtures, except `net`.
inline const std::vector<std::string> kNetworks = {
    "residual", "resnet18", "transformer", "branches", "depthwise", "tied"};

/// Reads a network in tests/graph/fixtures, such as "net-2.6.0.pt2".
inline Graph read_fixture(const std::string& name) {
  const Scratch scratch;
  return read_pt2(unpack_fixture(scratch, name));
}

/// Returns the outputs and losses that a version of PyTorch computed for a network
/// (fixtures/losses.json).
inline nlohmann::json recorded(const std::string& network, const std::string& version) {
  static const auto all =
      nlohmann::json::parse(read_file(fixtures_dir() + "losses.json"));
  return all.at(network).at(version);
}

/// Returns the images that samples() in tests/graph/networks.py returns, in float64.
inline at::Tensor fixture_images(std::vector<int64_t> shape, int64_t step) {
  constexpr int64_t kSamples = 6;
  int64_t count = kSamples;
  for (const int64_t size : shape) {
    count *= size;
  }
  shape.insert(shape.begin(), kSamples);
  return (at::arange(count, at::kLong).mul(7919).add(step * 104729).remainder(1000))
      .to(at::kDouble)
      .div(1000)
      .sub(0.5)
      .view(shape);
}

}  // namespace tandem
