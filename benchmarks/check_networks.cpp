// Compares the executors on networks of torch.export: check_networks NET.pt2 ...
//
// For each network, prints the number of recorded calls, whether a program of plain
// calls has the bits of the eager executor, and the mean error of the gradients of a
// program with kernels, against float64, divided by that of eager. The exit code is 1
// if bits differ or an error is more than twice that of eager.

#include <ATen/ops/arange.h>
#include <fmt/core.h>

#include <filesystem>
#include <string>

#include "tandem/base/error.h"
#include "tandem/exec/compiled/program/image_planner.h"
#include "tandem/exec/program/program_executor.h"
#include "tandem/graph/pt2.h"
#include "tandem/model/graph_model.h"

namespace tandem {

namespace {

using Make =
    std::unique_ptr<StageExecutor> (*)(Model&, ModelArenas&, const StageOptions&);

std::unique_ptr<StageExecutor> make_plain(
    Model& model, ModelArenas& arenas, const StageOptions& options) {
  return make_program_executor(model, arenas, options, &plan_plain_calls);
}

std::unique_ptr<StageExecutor> make_with_kernels(
    Model& model, ModelArenas& arenas, const StageOptions& options) {
  return make_program_executor(model, arenas, options, &plan_image_kernels);
}

// Returns the samples [first, first + count).
Batch batch_for(const Graph& graph, int64_t first, int64_t count) {
  const Value& input = graph.value(graph.input);
  const auto sizes = sizes_at(input.shape, count);
  const auto numbers =
      at::arange(c10::multiply_integers(sizes), at::kLong).add(first * 1009);
  Batch batch;
  batch.inputs = at::isFloatingType(input.dtype)
                     ? numbers.mul(7919)
                           .remainder(1000)
                           .to(at::kDouble)
                           .div(300)
                           .sub(1.6)
                           .to(input.dtype)
                           .view(sizes)
                     : numbers.mul(7919).remainder(5).view(sizes);
  auto targets = sizes_at(graph.value(graph.output).shape, count);
  targets.erase(targets.begin() + class_dim(static_cast<int64_t>(targets.size())));
  batch.targets =
      at::arange(c10::multiply_integers(targets)).remainder(5).view(targets);
  batch.first_position = first;
  batch.global_count = count;
  return batch;
}

// The state and gradients of a network after training steps of two sizes.
class Run {
 public:
  Run(const std::string& path, at::ScalarType dtype, Make make) {
    Graph graph = read_pt2(path);
    convert(graph, dtype);
    model_ = make_graph_model(std::move(graph));
    arenas_ = std::make_unique<ModelArenas>(model_->parameters(), model_->buffers());
    const auto executor = make(*model_, *arenas_, {});
    NoSink sink;
    for (int64_t step = 0; step < 3; ++step) {
      StepContext context;
      context.step = step;
      context.seed = 5;
      context.loss_weight = 0.25;
      const int64_t count = step == 1 ? 3 : 4;
      (void)executor->forward(0, batch_for(*model_->graph(), step, count), context);
      executor->backward(0, {}, context, sink);
    }
    const std::string table = executor->program_table();
    lines_ = std::count(table.begin(), table.end(), '\n') - 1;
  }

  bool equals(const Run& other) const {
    for (size_t i = 0; i < arenas_->tensors().size(); ++i) {
      if (!gradient(i).equal(other.gradient(i))) {
        return false;
      }
    }
    const auto state = arenas_->state();
    const auto others = other.arenas_->state();
    for (size_t i = 0; i < state.size(); ++i) {
      if (!state[i].tensor.equal(others[i].tensor)) {
        return false;
      }
    }
    return true;
  }

  // Returns the relative error of a gradient, averaged over all parameters whose
  // gradient is not 0.
  double error(const Run& exact) const {
    double sum = 0;
    double count = 0;
    for (size_t i = 0; i < arenas_->tensors().size(); ++i) {
      const double norm = exact.gradient(i).norm().item<double>();
      if (norm > 1e-12) {
        sum +=
            gradient(i).to(at::kDouble).sub(exact.gradient(i)).norm().item<double>() /
            norm;
        ++count;
      }
    }
    return sum / count;
  }

  int64_t lines() const {
    return lines_;
  }

 private:
  at::Tensor gradient(size_t i) const {
    return arenas_->tensors()[i].grad();
  }

  std::unique_ptr<Model> model_;
  std::unique_ptr<ModelArenas> arenas_;
  int64_t lines_ = 0;
};

// Prints the row of a network. Returns whether it is as expected.
bool check(const std::string& path) {
  const std::string name = std::filesystem::path(path).stem();
  try {
    const Run exact(path, at::kDouble, &make_eager_executor);
    const Run eager(path, at::kFloat, &make_eager_executor);
    const Run plain(path, at::kFloat, &make_plain);
    const Run kernels(path, at::kFloat, &make_with_kernels);
    const bool equal = plain.equals(eager);
    const double error = eager.error(exact);
    const double ratio = kernels.error(exact) / error;
    fmt::print(
        "{:<28} {:>5} calls  {:<11}  error of eager {:.1e}, with kernels x {:.2f}\n",
        name, plain.lines(), equal ? "equal bits" : "BITS DIFFER", error, ratio);
    return equal && ratio <= 2 && plain.lines() > 0;
  } catch (const std::exception& error) {
    fmt::print("{:<28} {}\n", name, first_line(error));
    return false;
  }
}

}  // namespace

}  // namespace tandem

int main(int argc, char** argv) {
  int failed = 0;
  for (int i = 1; i < argc; ++i) {
    failed += tandem::check(argv[i]) ? 0 : 1;
  }
  fmt::print("{} networks, {} not as expected\n", argc - 1, failed);
  return failed == 0 ? 0 : 1;
}
