#include "tandem/train/predictions.h"

#include <ATen/ops/softmax.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/core/parallel.h"

namespace tandem {

namespace {

// Returns a text as a field of RFC 4180.
std::string field_of(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) {
    return text;
  }
  std::string field = "\"";
  for (const char c : text) {
    field += c == '"' ? "\"\"" : std::string(1, c);
  }
  return field + "\"";
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

// Writes batches as rows.
class PredictionRows {
 public:
  explicit PredictionRows(bool labelled) : labelled_(labelled) {}

  // Writes the rows of a batch to a file, after the header if it is the first batch.
  // Threads of this rank format the rows, because this takes as long as the evaluation
  // of a small network.
  void write(const EvaluatedBatch& evaluated, int fd, const std::string& path) {
    const int64_t count = evaluated.batch.count();
    const auto outputs = evaluated.output.reshape({count, -1}).cpu().contiguous();
    const Columns columns = {
        evaluated.batch.samples, evaluated.batch.targets.cpu(), outputs,
        outputs.softmax(1)};
    if (names_.empty()) {
      begin(evaluated.data.class_names, outputs.size(1), fd, path);
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
    // int64.
    at::Tensor samples;
    at::Tensor labels;
    // Samples x outputs, float32.
    at::Tensor outputs;
    at::Tensor probabilities;
  };

  // Rows as text: the first `size` characters.
  struct Part {
    std::string text;
    size_t size = 0;
  };

  // Writes the header. Outputs without a class have their number as name.
  void begin(
      std::vector<std::string> names, int64_t num_outputs, int fd,
      const std::string& path) {
    std::string header = labelled_ ? "index,label,prediction" : "index,prediction";
    for (int64_t i = 0; i < num_outputs; ++i) {
      if (i >= static_cast<int64_t>(names.size())) {
        names.push_back(std::to_string(i));
      }
      header += "," + field_of("p_" + names[static_cast<size_t>(i)]);
    }
    header += '\n';
    write_all(fd, header.data(), header.size(), path);
    for (const auto& name : names) {
      names_.push_back(field_of(name));
      longest_name_ = std::max(longest_name_, names_.back().size());
    }
  }

  // Formats the rows of the samples [first, last) of a batch.
  void format(const Columns& columns, int64_t first, int64_t last, Part& part) const {
    const int64_t num_outputs = columns.probabilities.size(1);
    // A number, two names, the probabilities, and the end of the line.
    const size_t row_size = kMostDigits + 2 * (longest_name_ + 1) +
                            static_cast<size_t>(num_outputs) * (kMostDigits + 1) + 1;
    part.text.resize(
        std::max(part.text.size(), static_cast<size_t>(last - first) * row_size));
    char* end = part.text.data();
    const auto* sample = columns.samples.data_ptr<int64_t>();
    const auto* label = columns.labels.data_ptr<int64_t>();
    const auto* output = columns.outputs.data_ptr<float>() + first * num_outputs;
    const auto* row = columns.probabilities.data_ptr<float>() + first * num_outputs;
    for (int64_t i = first; i < last; ++i, output += num_outputs, row += num_outputs) {
      end = put_number(end, sample[i]);
      if (labelled_) {
        end = put_name(end, names_[static_cast<size_t>(label[i])]);
      }
      const auto prediction = std::max_element(output, output + num_outputs) - output;
      end = put_name(end, names_[static_cast<size_t>(prediction)]);
      for (int64_t j = 0; j < num_outputs; ++j) {
        *end++ = ',';
        end = put_number(end, row[j]);
      }
      *end++ = '\n';
    }
    part.size = static_cast<size_t>(end - part.text.data());
  }

  bool labelled_;
  // Fields of the classes and of outputs without a class.
  std::vector<std::string> names_;
  size_t longest_name_ = 0;
  std::vector<Part> parts_;
};

// Loads images without labels, if the options name a file of images. Returns whether
// the samples have labels. If they have none, gives them the label 0, because an
// evaluation computes a loss.
bool settle_labels(CheckpointEvaluation& options) {
  std::error_code ignored;
  if (!options.dataset && std::filesystem::is_regular_file(options.data, ignored)) {
    if (options.training_part) {
      throw ConfigError(
          "[predict] --split is train, but '" + options.data +
          "' is a file of images, which has no parts; leave out --split");
    }
    options.dataset = load_images(options.data);
  }
  if (!options.dataset || !options.dataset->labels.empty()) {
    return true;
  }
  options.dataset->labels =
      std::vector<uint8_t>(static_cast<size_t>(options.dataset->size));
  return false;
}

}  // namespace

int64_t write_predictions(
    const std::string& path, const std::string& checkpoint,
    CheckpointEvaluation options, std::unique_ptr<Model> model) {
  PredictionRows rows(settle_labels(options));
  int64_t count = 0;
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
