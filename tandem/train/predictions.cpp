#include "tandem/train/predictions.h"

#include <ATen/ops/any.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/logical_not.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/text.h"
#include "tandem/core/parallel.h"
#include "tandem/data/csv_text.h"

namespace tandem {

namespace {

// Returns a text as a field of RFC 4180, which terminals can show.
std::string field_of(const std::string& name) {
  const std::string text = with_escapes(name);
  return text.find_first_of(",\"\r\n") == std::string::npos ? text : quoted_cell(text);
}

// Largest number of characters that std::to_chars() writes for a number.
constexpr size_t kMostDigits = 24;

template <typename Number>
char* put_number(char* end, Number number) {
  return std::to_chars(end, end + kMostDigits, number).ptr;
}

char* put_name(char* end, const std::string& name) {
  *end = ',';
  return std::copy(name.begin(), name.end(), end + 1);
}

// Writes batches as rows. The columns are the number of a sample, its file if it is an
// image file, its target if there are targets, and the prediction: a class and the
// probability of each class, or values.
class PredictionRows {
 public:
  // Writes the rows of a batch to a file, after the header if it is the first batch.
  // Threads of this rank format the rows, because this takes as long as the evaluation
  // of a small network.
  void write(const EvaluatedBatch& evaluated, int fd, const std::string& path) {
    const Columns columns = columns_of(evaluated);
    check_finite(columns);
    const int64_t count = columns.outputs.size(0);
    if (names_.empty()) {
      begin(evaluated, columns.outputs.size(1), fd, path);
    }
    const int64_t num_parts = (count + kRowsInPart - 1) / kRowsInPart;
    parts_.resize(static_cast<size_t>(num_parts));
    parallel_for(0, num_parts, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        format(
            columns, i * kRowsInPart, std::min(count, (i + 1) * kRowsInPart),
            parts_[static_cast<size_t>(i)]);
      }
    });
    for (const auto& part : parts_) {
      write_all(fd, part.text.data(), part.size, path);
    }
  }

 private:
  static constexpr int64_t kRowsInPart = 128;

  // Values of a batch, in main memory.
  struct Columns {
    const Dataset& data;
    // int64.
    at::Tensor samples;
    // Classes, int64, if targets are classes.
    at::Tensor targets;
    // Samples x outputs, float32.
    at::Tensor outputs;
    // Probabilities or values of the outputs, as written.
    at::Tensor shown;
  };

  // Rows as text: the first `size` characters.
  struct Part {
    std::string text;
    size_t size = 0;
  };

  static Columns columns_of(const EvaluatedBatch& evaluated) {
    const Dataset& data = evaluated.data;
    if (data.has_classes() && !data.targets.shape.empty()) {
      throw ConfigError(
          "[predict] the network predicts a class for each position of a sample, "
          "expected one prediction per sample; use tandem eval, or load_model() in "
          "C++");
    }
    const auto outputs = evaluated.scale.restore(evaluated.output)
                             .reshape({evaluated.batch.count(), -1})
                             .cpu()
                             .contiguous();
    const auto shown = data.has_classes()                ? outputs.softmax(1)
                       : evaluated.loss == LossKind::bce ? outputs.sigmoid()
                                                         : outputs;
    return {
        data, evaluated.batch.samples,
        evaluated.batch.targets.cpu().reshape({evaluated.batch.count(), -1}), outputs,
        shown};
  }

  static void check_finite(const Columns& columns) {
    const at::Tensor bad = columns.shown.isfinite().logical_not_().any(1);
    if (bad.any().item<bool>()) {
      throw DataError(fmt::format(
          "[predict] the output for sample {} is not finite, expected finite numbers; "
          "name a checkpoint of an earlier step",
          columns.samples[bad.to(at::kInt).argmax()].item<int64_t>()));
    }
  }

  // Writes the header. Outputs without a name have their number as name.
  void begin(
      const EvaluatedBatch& evaluated, int64_t num_outputs, int fd,
      const std::string& path) {
    labelled_ = evaluated.has_targets;
    has_classes_ = evaluated.data.has_classes();
    auto names = evaluated.data.class_names;
    for (auto i = static_cast<int64_t>(names.size()); i < num_outputs; ++i) {
      names.push_back(std::to_string(i));
    }
    std::string header = evaluated.data.files ? "index,file" : "index";
    if (has_classes_) {
      header += labelled_ ? ",label,prediction" : ",prediction";
    } else if (labelled_) {
      for (const auto& name : names) {
        header += "," + field_of("target_" + name);
      }
    }
    const bool is_probability = has_classes_ || evaluated.loss == LossKind::bce;
    for (int64_t i = 0; i < num_outputs; ++i) {
      const auto& name = names[static_cast<size_t>(i)];
      header += "," + field_of(is_probability ? "p_" + name : name);
    }
    header += '\n';
    write_all(fd, header.data(), header.size(), path);
    for (const auto& name : names) {
      names_.push_back(field_of(name));
      longest_name_ = std::max(longest_name_, names_.back().size());
    }
    if (evaluated.data.files) {
      for (const auto& file : *evaluated.data.files) {
        longest_file_ = std::max(longest_file_, field_of(file).size());
      }
    }
  }

  static char* put_numbers(char* end, const float* numbers, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      *end++ = ',';
      end = put_number(end, numbers[i]);
    }
    return end;
  }

  // Writes the path of a sample's file, if it has one.
  static char* put_file(char* end, const Dataset& data, int64_t sample) {
    return data.files
               ? put_name(
                     end, field_of((
                              *data.files)[static_cast<size_t>(data.place_of(sample))]))
               : end;
  }

  // Writes the target of the sample in row `i` of the batch, and the predicted class.
  char* put_classes(char* end, const Columns& columns, int64_t i) const {
    if (labelled_) {
      const int64_t label = columns.targets.data_ptr<int64_t>()[i];
      end = put_name(end, names_[static_cast<size_t>(label)]);
    }
    const int64_t num_outputs = columns.outputs.size(1);
    const auto* output = columns.outputs.data_ptr<float>() + i * num_outputs;
    const auto prediction = std::max_element(output, output + num_outputs) - output;
    return put_name(end, names_[static_cast<size_t>(prediction)]);
  }

  // Formats the rows of the samples [first, last) of a batch.
  void format(const Columns& columns, int64_t first, int64_t last, Part& part) const {
    const int64_t num_outputs = columns.shown.size(1);
    // The number of the sample, its file, two names or as many targets as outputs, the
    // outputs, and the end of the line.
    const size_t row_size = kMostDigits + longest_file_ + 1 + 2 * (longest_name_ + 1) +
                            2 * static_cast<size_t>(num_outputs) * (kMostDigits + 1) +
                            1;
    part.text.resize(
        std::max(part.text.size(), static_cast<size_t>(last - first) * row_size));
    char* end = part.text.data();
    const auto* sample = columns.samples.data_ptr<int64_t>();
    for (int64_t i = first; i < last; ++i) {
      end = put_number(end, sample[i]);
      end = put_file(end, columns.data, sample[i]);
      if (has_classes_) {
        end = put_classes(end, columns, i);
      } else if (labelled_) {
        // Targets of the batch may be normalized.
        const Samples& targets = columns.data.targets;
        end = put_numbers(
            end,
            reinterpret_cast<const float*>(
                targets.at(columns.data.place_of(sample[i]))),
            targets.numel());
      }
      end = put_numbers(
          end, columns.shown.data_ptr<float>() + i * num_outputs, num_outputs);
      *end++ = '\n';
    }
    part.size = static_cast<size_t>(end - part.text.data());
  }

  bool labelled_ = true;
  bool has_classes_ = true;
  // Fields of the classes or values, and of outputs without a name.
  std::vector<std::string> names_;
  size_t longest_name_ = 0;
  size_t longest_file_ = 0;
  std::vector<Part> parts_;
};

}  // namespace

int64_t write_predictions(
    const std::string& path, const std::string& checkpoint,
    CheckpointEvaluation options, std::unique_ptr<Model> model) {
  PredictionRows rows;
  int64_t count = 0;
  options.needs_targets = false;
  replace_file(path, [&](int fd) {
    options.after_batch = [&](const EvaluatedBatch& evaluated) {
      rows.write(evaluated, fd, path);
      count += evaluated.batch.count();
    };
    static_cast<void>(evaluate_checkpoint(checkpoint, options, std::move(model)));
  });
  return count;
}

}  // namespace tandem
