#include "tandem/checkpoint/checkpoint_metadata.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "tandem/base/text.h"

namespace tandem {

namespace {

std::string text(const FileMetadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}

int64_t number(
    const FileMetadata& metadata, const std::string& key, const std::string& path) {
  const auto value = parse_number<int64_t>(text(metadata, key));
  if (!value || *value < 0) {
    fail_checkpoint(path, "has no " + key);
  }
  return *value;
}

double real(
    const FileMetadata& metadata, const std::string& key, const std::string& path) {
  const auto value = parse_number<double>(text(metadata, key));
  if (!value) {
    fail_checkpoint(path, "has no " + key);
  }
  return *value;
}

BestTest best_in(const FileMetadata& metadata, const std::string& path) {
  if (text(metadata, "best_step").empty()) {
    return {};
  }
  return {
      real(metadata, "best_loss", path), number(metadata, "best_step", path),
      number(metadata, "evaluations_since_best", path)};
}

PlateauState plateau_in(const FileMetadata& metadata, const std::string& path) {
  if (text(metadata, "plateau_best").empty()) {
    return {};
  }
  return {
      real(metadata, "plateau_best", path),
      number(metadata, "plateau_bad_evaluations", path),
      number(metadata, "plateau_cooldown", path),
      number(metadata, "plateau_reductions", path)};
}

RunTime time_in(const FileMetadata& metadata) {
  const auto value = [&](const char* key) {
    const double found = parse_number<double>(text(metadata, key)).value_or(0);
    return std::isfinite(found) ? std::max(0.0, found) : 0;
  };
  return {
      value("train_seconds"), value("train_samples"), value("program_seconds"),
      value("earlier_program_seconds"), text(metadata, "program_start")};
}

}  // namespace

FileMetadata metadata_of(const CheckpointContent& content) {
  FileMetadata metadata = {
      {"epoch", std::to_string(content.position.epoch)},
      {"step_in_epoch", std::to_string(content.position.step_in_epoch)},
      {"step", std::to_string(content.position.step)},
      {"samples_in_epoch", std::to_string(content.position.samples_in_epoch)},
      {"config", content.config},
      {"data", content.data},
      {"threads", content.machine.threads},
      {"instruction_sets", content.machine.instruction_sets},
      {"train_seconds", float_text(content.time.train_seconds)},
      {"train_samples", float_text(content.time.samples)},
      {"program_seconds", float_text(content.time.program_seconds)},
      {"earlier_program_seconds", float_text(content.time.earlier_program_seconds)},
      {"program_start", content.time.program_start}};
  if (content.best.step >= 0) {
    metadata["best_loss"] = float_text(content.best.loss);
    metadata["best_step"] = std::to_string(content.best.step);
    metadata["evaluations_since_best"] = std::to_string(content.best.evaluations_since);
  }
  if (std::isfinite(content.plateau.best)) {
    metadata["plateau_best"] = float_text(content.plateau.best);
    metadata["plateau_bad_evaluations"] =
        std::to_string(content.plateau.bad_evaluations);
    metadata["plateau_cooldown"] = std::to_string(content.plateau.cooldown);
    metadata["plateau_reductions"] = std::to_string(content.plateau.reductions);
  }
  return metadata;
}

CheckpointContent content_of(
    FileMetadata model, const FileMetadata& training, const std::string& path) {
  CheckpointContent content;
  content.position = {
      number(training, "epoch", path), number(training, "step_in_epoch", path),
      number(training, "step", path), number(training, "samples_in_epoch", path)};
  content.best = best_in(training, path);
  content.plateau = plateau_in(training, path);
  content.time = time_in(training);
  content.config = text(training, "config");
  content.data = text(training, "data");
  content.machine = {text(training, "threads"), text(training, "instruction_sets")};
  content.rank_hashes = rank_hashes(training);
  content.description = std::move(model);
  return content;
}

}  // namespace tandem
