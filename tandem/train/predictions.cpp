#include "tandem/train/predictions.h"
#include "tandem/data/idx_folder.h"

#include <ATen/ops/argmax.h>
#include <ATen/ops/softmax.h>

#include <charconv>
#include <filesystem>
#include <utility>
#include <vector>

#include "tandem/base/files.h"

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

template <typename Number>
void append_number(std::string& text, Number number) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
  text.append(digits, end);
}

// Formats batches as rows.
class PredictionRows {
 public:
  explicit PredictionRows(bool labelled) : labelled_(labelled) {}

  // Returns the rows of a batch, after the header if it is the first batch.
  const std::string& of(const EvaluatedBatch& evaluated) {
    const auto output = evaluated.output.reshape({evaluated.batch.count(), -1}).cpu();
    const auto probabilities = output.softmax(1).contiguous();
    const auto predictions = output.argmax(1);
    rows_.clear();
    if (names_.empty()) {
      begin(evaluated.data.class_names, output.size(1));
    }
    const auto* samples = evaluated.batch.samples.data_ptr<int64_t>();
    const auto* prediction = predictions.data_ptr<int64_t>();
    const auto* row = probabilities.data_ptr<float>();
    for (int64_t i = 0; i < output.size(0); ++i, row += output.size(1)) {
      append_number(rows_, samples[i]);
      if (labelled_) {
        add_name(evaluated.data.targets.integer(evaluated.data.place_of(samples[i])));
      }
      add_name(prediction[i]);
      for (int64_t j = 0; j < output.size(1); ++j) {
        rows_ += ',';
        append_number(rows_, row[j]);
      }
      rows_ += '\n';
    }
    return rows_;
  }

 private:
  // Writes the header. Outputs without a class have their number as name.
  void begin(std::vector<std::string> names, int64_t num_outputs) {
    rows_ = labelled_ ? "index,label,prediction" : "index,prediction";
    for (int64_t i = 0; i < num_outputs; ++i) {
      if (i >= static_cast<int64_t>(names.size())) {
        names.push_back(std::to_string(i));
      }
      const auto& name = names[static_cast<size_t>(i)];
      rows_ += "," + field_of("p_" + name);
    }
    rows_ += '\n';
    for (const auto& name : names) {
      names_.push_back(field_of(name));
    }
  }

  void add_name(int64_t index) {
    rows_ += ',';
    rows_ += names_[static_cast<size_t>(index)];
  }

  bool labelled_;
  // Fields of the classes and of outputs without a class.
  std::vector<std::string> names_;
  std::string rows_;
};

// Loads images without labels, if the options name a file of images. Returns whether
// the samples have labels. If they have none, gives them the label 0, because an
// evaluation computes a loss.
bool settle_labels(CheckpointEvaluation& options) {
  std::error_code ignored;
  if (!options.dataset && std::filesystem::is_regular_file(options.data, ignored)) {
    options.dataset = load_images(options.data);
  }
  if (!options.dataset || !options.dataset->targets.bytes.empty()) {
    return true;
  }
  options.dataset->targets.bytes =
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
      const std::string& text = rows.of(evaluated);
      write_all(fd, text.data(), text.size(), path);
      count += evaluated.batch.count();
    };
    static_cast<void>(evaluate_checkpoint(checkpoint, options, std::move(model)));
  });
  return count;
}

}  // namespace tandem
