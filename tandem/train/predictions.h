#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tandem/model/model.h"
#include "tandem/train/evaluation.h"

namespace tandem {

/// Writes the predictions of a checkpoint's model to a CSV file, one row per sample in
/// the order of the data set. If targets are classes, the columns are:
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
/// If targets are numbers, there is a column target_NAME for each target, unless the
/// samples have no targets, and a column for each output. The output column is NAME, or
/// p_NAME with the sigmoid of the output if the loss is bce.
///
/// `checkpoint`, `options` and `model` are those of evaluate_checkpoint(). In addition,
/// `options.data` can have only inputs (load_inputs()), and `options.dataset` can have
/// no labels. The file is replaced atomically (base/files.h). Returns the number of
/// samples.
///
/// Throws the errors of evaluate_checkpoint(), DataError if the file cannot be written
/// or a number to write is not finite, and ConfigError if the network predicts a class
/// for each position of a sample. Also throws ConfigError if `options` select another
/// part than `test` of data that have only inputs. After an error, there is no new
/// file.
int64_t write_predictions(
    const std::string& path, const std::string& checkpoint,
    CheckpointEvaluation options = {}, std::unique_ptr<Model> model = nullptr);

}  // namespace tandem
