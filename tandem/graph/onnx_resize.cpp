// Images of other sizes in ONNX.

#include <ATen/ops/cat.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include "tandem/graph/onnx_operators.h"

namespace tandem {

namespace {

std::vector<OnnxAttribute> resize_attributes(const OnnxCall& call) {
  const std::string mode = call.row.type;
  if (mode == "nearest") {
    return {
        {"mode", mode},
        {"coordinate_transformation_mode", std::string("asymmetric")},
        {"nearest_mode", std::string("floor")}};
  }
  if (mode == "nearest-exact") {
    return {
        {"mode", std::string("nearest")},
        {"coordinate_transformation_mode", std::string("half_pixel")},
        {"nearest_mode", std::string("round_prefer_ceil")}};
  }
  const bool aligned = call.flag_or("align_corners", false);
  return {
      {"mode", mode},
      {"coordinate_transformation_mode",
       std::string(aligned ? "align_corners" : "half_pixel")},
      {"cubic_coeff_a", -0.75}};
}

// Returns the scales of the dimensions after samples and channels; empty if the call
// has sizes.
std::vector<double> resize_scales(const OnnxCall& call) {
  const auto list = call.find("scale_factors");
  if (!list) {
    return {};
  }
  return call.node.arguments[*list].constant.toDoubleVector();
}

}  // namespace

// upsample_*(x, output_size, align_corners, scale_factors); the nearest modes have no
// align_corners. Images of one dimension become images of one row, because ONNX Runtime
// has no linear mode for them.
OnnxNames onnx_resize(const OnnxCall& call) {
  if (call.node.overload != "vec") {
    throw OnnxObstacle{"with overload '" + call.node.overload + "'"};
  }
  auto x = call.tensor(0);
  auto shape = call.output().shape;
  const bool has_rows = shape.size() > 3;
  if (!has_rows) {
    x = call.add("Unsqueeze", {x, call.to.integers({2})});
    shape.insert(shape.begin() + 2, Size{1, 0});
  }
  const auto factors = resize_scales(call);
  OnnxNames inputs = {x, ""};
  if (factors.empty()) {
    inputs.insert(inputs.end(), {"", call.to.sizes(shape)});
  } else {
    std::vector<float> scales(has_rows ? 2 : 3, 1);
    scales.insert(scales.end(), factors.begin(), factors.end());
    inputs.push_back(call.to.constant(at::tensor(scales, at::kFloat)));
  }
  const auto result = call.add("Resize", inputs, resize_attributes(call));
  return {has_rows ? result : call.add("Squeeze", {result, call.to.integers({2})})};
}

// grid_sampler(x, grid, interpolation_mode, padding_mode, align_corners)
OnnxNames onnx_grid_sample(const OnnxCall& call) {
  if (call.rank(0) != 4) {
    throw OnnxObstacle{"on volumes, which ONNX has from opset 20 on"};
  }
  static const std::vector<std::string> modes = {"bilinear", "nearest", "bicubic"};
  static const std::vector<std::string> paddings = {"zeros", "border", "reflection"};
  return {call.add(
      "GridSample", {call.tensor(0), call.tensor(1)},
      {{"mode", modes.at(static_cast<size_t>(call.integer(2)))},
       {"padding_mode", paddings.at(static_cast<size_t>(call.integer(3)))},
       {"align_corners", int64_t{call.flag(4)}}})};
}

// affine_grid_generator(theta, size, align_corners), for images: the places (x, y, 1)
// of all pixels times theta's transpose
OnnxNames onnx_affine_grid(const OnnxCall& call) {
  const auto size = call.sizes(1);
  if (size.size() != 4 || size[2].per_sample != 0 || size[3].per_sample != 0) {
    throw OnnxObstacle{"for volumes, or sizes that depend on the batch"};
  }
  const auto places = [&](int64_t count) {
    const auto edge = call.flag(2) ? 1.0 : 1 - 1.0 / static_cast<double>(count);
    return at::linspace(count > 1 ? -edge : 0, count > 1 ? edge : 0, count);
  };
  const int64_t rows = size[2].fixed;
  const int64_t columns = size[3].fixed;
  const auto grid = at::stack(
      {places(columns).expand({rows, columns}),
       places(rows).unsqueeze(1).expand({rows, columns}), at::ones({rows, columns})},
      -1);
  const auto transposed = call.add(
      "Transpose", {call.tensor(0)}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
  const auto base = call.to.constant(
      grid.view({rows * columns, 3}).to(call.output().dtype).contiguous());
  return {call.to.reshape(call.add("MatMul", {base, transposed}), call.output().shape)};
}

// pixel_shuffle(x, factor) and pixel_unshuffle(x, factor), for [N, C, H, W]
OnnxNames onnx_pixel_shuffle(const OnnxCall& call) {
  if (call.rank(0) != 4) {
    throw OnnxObstacle{"without a dimension for samples"};
  }
  const int64_t factor = call.integer(1);
  const bool shuffles = call.row.type == std::string("shuffle");
  // The shape that contains the blocks of pixels.
  const auto& few = shuffles ? call.output().shape : call.shape(0);
  const auto& small = shuffles ? call.shape(0) : call.output().shape;
  const Size side = {factor, 0};
  const std::vector<Size> split =
      shuffles ? std::vector<Size>{few[0], few[1], side, side, small[2], small[3]}
               : std::vector<Size>{few[0], few[1], small[2], side, small[3], side};
  const auto order = shuffles ? std::vector<int64_t>{0, 1, 4, 2, 5, 3}
                              : std::vector<int64_t>{0, 1, 3, 5, 2, 4};
  const auto blocks = call.add(
      "Transpose", {call.to.reshape(call.tensor(0), split)}, {{"perm", order}});
  return {call.to.reshape(blocks, call.output().shape)};
}

// channel_shuffle(x, groups)
OnnxNames onnx_channel_shuffle(const OnnxCall& call) {
  const int64_t groups = call.integer(1);
  const int64_t channels = call.fixed_size(0, 1);
  const auto split = call.add(
      "Reshape",
      {call.tensor(0), call.to.integers({0, groups, channels / groups, -1})});
  const auto swapped =
      call.add("Transpose", {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  return {call.to.reshape(swapped, call.output().shape)};
}

}  // namespace tandem
