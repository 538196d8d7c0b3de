// Measures oneDNN's primitives for the convolutions and matrix products of `net`. Their
// sum is a lower bound of a step that consists of these primitives.
//
//   bench_primitives [--batch 64] [--precision fp32|bf16] [--repeats 30]
//
// OMP_NUM_THREADS sets the number of threads. Prints one JSON object: milliseconds of
// each primitive by algorithm, and the sum of the fastest. Values are normally
// distributed; denormals are flushed. Each primitive chooses its layouts, so the times
// contain no reorder.

#include <fmt/core.h>
#include <xmmintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dnnl.hpp>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "tandem/exec/compiled/onednn_primitives.h"

namespace {

using tandem::onednn::describe;
using tandem::onednn::describe_backward;
using Dims = dnnl::memory::dims;
using Type = dnnl::memory::data_type;
using Tag = dnnl::memory::format_tag;
using Clock = std::chrono::steady_clock;

constexpr unsigned kFlushDenormals = 0x8040;
constexpr int kWarmup = 3;

struct Options {
  int64_t batch = 64;
  Type type = Type::f32;
  int repeats = 30;
};

// A primitive that is ready to run, and its measured times.
struct Case {
  std::string layer;
  std::string direction;
  std::string algorithm;
  std::function<void()> run;
  std::vector<double> ms;
};

class Cases {
 public:
  explicit Cases(const Options& options) : options_(options) {}

  void add_convolution(
      const std::string& layer, const Dims& in, const Dims& weights, const Dims& out,
      bool wants_input_grad) {
    const std::map<std::string, dnnl::algorithm> algorithms = {
        {"direct", dnnl::algorithm::convolution_direct},
        {"winograd", dnnl::algorithm::convolution_winograd}};
    for (const auto& [name, algorithm] : algorithms) {
      const auto src = any(in);
      const auto weight = any(weights);
      const auto bias = any({weights[0]}, Type::f32);
      const auto dst = any(out);
      const Dims ones = {1, 1};
      const Dims zeros = {0, 0};
      try {
        const auto forward = describe<dnnl::convolution_forward>(
            engine_, {}, dnnl::prop_kind::forward_training, algorithm, src, weight,
            bias, dst, ones, zeros, zeros);
        add_forward<dnnl::convolution_forward>(
            {layer, "forward", name, {}, {}}, forward);
        add_if_there({layer, "backward weights", name, {}, {}}, [&](Case one) {
          add_backward_weights<dnnl::convolution_backward_weights>(
              std::move(one), describe_backward<dnnl::convolution_backward_weights>(
                                  engine_, {}, forward, algorithm, src, weight, bias,
                                  dst, ones, zeros, zeros));
        });
        if (wants_input_grad) {
          add_if_there({layer, "backward data", name, {}, {}}, [&](Case one) {
            add_backward_data<dnnl::convolution_backward_data>(
                std::move(one), describe_backward<dnnl::convolution_backward_data>(
                                    engine_, {}, forward, algorithm, src, weight, dst,
                                    ones, zeros, zeros));
          });
        }
      } catch (const dnnl::error&) {
        // This instruction set or data type has no such algorithm.
      }
    }
  }

  void add_linear(const std::string& layer, int64_t in, int64_t out) {
    const auto src = any({options_.batch, in});
    const auto weight = any({out, in});
    const auto bias = any({out}, Type::f32);
    const auto dst = any({options_.batch, out});
    const std::string name = "inner product";
    const auto forward = describe<dnnl::inner_product_forward>(
        engine_, {}, dnnl::prop_kind::forward_training, src, weight, bias, dst);
    add_forward<dnnl::inner_product_forward>({layer, "forward", name, {}, {}}, forward);
    add_backward_weights<dnnl::inner_product_backward_weights>(
        {layer, "backward weights", name, {}, {}},
        describe_backward<dnnl::inner_product_backward_weights>(
            engine_, {}, forward, src, weight, bias, dst));
    add_backward_data<dnnl::inner_product_backward_data>(
        {layer, "backward data", name, {}, {}},
        describe_backward<dnnl::inner_product_backward_data>(
            engine_, {}, forward, src, weight, dst));
    if (options_.type == Type::f32) {
      const int64_t batch = options_.batch;
      add_gemm({layer, "forward", "gemm", {}, {}}, 'N', 'T', batch, out, in);
      add_gemm({layer, "backward weights", "gemm", {}, {}}, 'T', 'N', out, in, batch);
      add_gemm({layer, "backward data", "gemm", {}, {}}, 'N', 'N', batch, in, out);
    }
  }

  // Runs all cases in turn, so that other load of the machine affects all equally.
  void measure() {
    for (int i = -kWarmup; i < options_.repeats; ++i) {
      for (auto& one : cases_) {
        const auto start = Clock::now();
        one.run();
        const std::chrono::duration<double, std::milli> took = Clock::now() - start;
        if (i >= 0) {
          one.ms.push_back(took.count());
        }
      }
    }
  }

  std::string to_json() const {
    std::string list;
    std::map<std::string, double> fastest;
    for (const auto& one : cases_) {
      auto sorted = one.ms;
      std::sort(sorted.begin(), sorted.end());
      const double median = sorted[sorted.size() / 2];
      const std::string what = one.layer + " " + one.direction;
      const auto found = fastest.find(what);
      fastest[what] = found == fastest.end() ? median : std::min(found->second, median);
      list += fmt::format(
          "{}{{\"layer\": \"{}\", \"direction\": \"{}\", \"algorithm\": \"{}\", "
          "\"ms\": {:.4f}}}",
          list.empty() ? "" : ", ", one.layer, one.direction, one.algorithm, median);
    }
    double sum = 0;
    for (const auto& [what, ms] : fastest) {
      sum += ms;
    }
    const auto* version = dnnl_version();
    return fmt::format(
        "{{\"ms\": {:.4f}, \"precision\": \"{}\", \"batch\": {}, \"onednn\": "
        "\"{}.{}.{}\", \"primitives\": [{}]}}",
        sum, options_.type == Type::f32 ? "fp32" : "bf16", options_.batch,
        version->major, version->minor, version->patch, list);
  }

 private:
  dnnl::memory::desc any(const Dims& dims) const {
    return any(dims, options_.type);
  }
  static dnnl::memory::desc any(const Dims& dims, Type type) {
    return {dims, type, dims.size() == 1 ? Tag::a : Tag::any};
  }

  void add_if_there(Case one, const std::function<void(Case)>& add) const {
    try {
      add(std::move(one));
    } catch (const dnnl::error&) {
      // This instruction set or data type has no such algorithm.
    }
  }

  // Returns memory of a layout, filled with normally distributed values.
  dnnl::memory filled(const dnnl::memory::desc& desc) {
    dnnl::memory memory(desc, engine_);
    const auto bytes = desc.get_size();
    auto* data = static_cast<char*>(memory.get_data_handle());
    const bool wide = tandem::onednn::type_of(desc) == Type::f32;
    for (size_t i = 0; i < bytes / (wide ? 4 : 2); ++i) {
      const auto value = static_cast<float>(normal_(generator_));
      char raw[4];
      std::memcpy(raw, &value, 4);
      // The upper half of a float32 is a bfloat16.
      std::memcpy(data + i * (wide ? 4 : 2), raw + (wide ? 0 : 2), wide ? 4 : 2);
    }
    return memory;
  }

  template <typename Primitive>
  void add_case(
      Case one, const typename Primitive::primitive_desc& description,
      std::unordered_map<int, dnnl::memory> arguments) {
    const Primitive primitive(description);
    one.run = [this, primitive, arguments = std::move(arguments)] {
      primitive.execute(stream_, arguments);
      stream_.wait();
    };
    cases_.push_back(std::move(one));
  }

  template <typename Primitive>
  void add_forward(Case one, const typename Primitive::primitive_desc& p) {
    add_case<Primitive>(
        std::move(one), p,
        {{DNNL_ARG_SRC, filled(p.src_desc())},
         {DNNL_ARG_WEIGHTS, filled(p.weights_desc())},
         {DNNL_ARG_BIAS, filled(p.bias_desc())},
         {DNNL_ARG_DST, filled(p.dst_desc())}});
  }

  template <typename Primitive>
  void add_backward_weights(Case one, const typename Primitive::primitive_desc& p) {
    add_case<Primitive>(
        std::move(one), p,
        {{DNNL_ARG_SRC, filled(p.src_desc())},
         {DNNL_ARG_DIFF_DST, filled(p.diff_dst_desc())},
         {DNNL_ARG_DIFF_WEIGHTS, filled(p.diff_weights_desc())},
         {DNNL_ARG_DIFF_BIAS, filled(p.diff_bias_desc())}});
  }

  template <typename Primitive>
  void add_backward_data(Case one, const typename Primitive::primitive_desc& p) {
    add_case<Primitive>(
        std::move(one), p,
        {{DNNL_ARG_DIFF_DST, filled(p.diff_dst_desc())},
         {DNNL_ARG_WEIGHTS, filled(p.weights_desc())},
         {DNNL_ARG_DIFF_SRC, filled(p.diff_src_desc())}});
  }

  // Product of an m x k and a k x n matrix, row-major.
  void add_gemm(Case one, char a, char b, int64_t m, int64_t n, int64_t k) {
    const auto left = filled({{m, k}, Type::f32, Tag::ab});
    const auto right = filled({{k, n}, Type::f32, Tag::ab});
    const auto result = filled({{m, n}, Type::f32, Tag::ab});
    one.run = [=] {
      dnnl_sgemm(
          a, b, m, n, k, 1, static_cast<const float*>(left.get_data_handle()),
          a == 'N' ? k : m, static_cast<const float*>(right.get_data_handle()),
          b == 'N' ? n : k, 0, static_cast<float*>(result.get_data_handle()), n);
    };
    cases_.push_back(std::move(one));
  }

  Options options_;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  mutable dnnl::stream stream_{engine_};
  std::mt19937 generator_{1};
  std::normal_distribution<double> normal_{0, 0.05};
  std::vector<Case> cases_;
};

bool read_options(int argc, char** argv, Options& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::string value = argv[i + 1];
    if (flag == "--batch") {
      options.batch = std::atoll(value.c_str());
    } else if (flag == "--repeats") {
      options.repeats = std::atoi(value.c_str());
    } else if (flag == "--precision" && (value == "fp32" || value == "bf16")) {
      options.type = value == "fp32" ? Type::f32 : Type::bf16;
    } else {
      return false;
    }
  }
  return argc % 2 == 1 && options.batch > 0 && options.repeats > 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!read_options(argc, argv, options)) {
    fmt::print(
        stderr,
        "usage: bench_primitives [--batch N] [--precision fp32|bf16] [--repeats N]\n");
    return 2;
  }
  _mm_setcsr(_mm_getcsr() | kFlushDenormals);
  const int64_t n = options.batch;
  try {
    Cases cases(options);
    cases.add_convolution(
        "conv1", {n, 1, 28, 28}, {32, 1, 3, 3}, {n, 32, 26, 26}, false);
    cases.add_convolution(
        "conv2", {n, 32, 26, 26}, {64, 32, 3, 3}, {n, 64, 24, 24}, true);
    cases.add_linear("fc1", 9216, 128);
    cases.add_linear("fc2", 128, 10);
    cases.measure();
    fmt::print("{}\n", cases.to_json());
  } catch (const dnnl::error& error) {
    fmt::print(
        stderr, "bench_primitives: oneDNN has no such primitive here: {}\n",
        error.what());
    return 1;
  }
  return 0;
}
