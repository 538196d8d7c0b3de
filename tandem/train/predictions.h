#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tandem/model/model.h"
#include "tandem/train/evaluation.h"

namespace tandem {

/// Writes the predictions of a checkpoint's model to a CSV file, one row per sample in
/// the order of the data set. The columns are:
///
///   index        number of the sample, from 0
///   file         path of an image file; no column for other samples
///   label        class of the sample; no column if the samples have no labels
///   prediction   class with the largest output
///   p_0, p_1...  probability of each class, the softmax of the outputs
///
/// If the checkpoint has the names of the classes, they replace the numbers of the
/// classes, also in the names of columns; they are quoted as in RFC 4180. A probability
/// is written as the shortest text that is parsed as the same float32. For a model that
/// ends in a log-softmax, the softmax of the outputs is their exponential.
///
/// `checkpoint`, `options` and `model` are those of evaluate_checkpoint(). In addition,
/// `options.data` can have only inputs (load_inputs()), and `options.dataset` can have
/// no labels. The file is replaced atomically (base/files.h). Returns the number of
/// samples.
///
/// Throws the errors of evaluate_checkpoint(), DataError if the file cannot be written,
/// and ConfigError if `options` select the training part of an IDX file. After an
/// error, there is no new file.
int64_t write_predictions(
    const std::string& path, const std::string& checkpoint,
    CheckpointEvaluation options = {}, std::unique_ptr<Model> model = nullptr);

}  // namespace tandem
