#include "tandem/data/write_digits.h"

#include <fmt/core.h>
#include <png.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/data/csv.h"
#include "tandem/data/digits/digits.h"
#include "tandem/data/idx.h"
#include "tandem/data/npy.h"

namespace tandem {

namespace {

constexpr int64_t kDigitPixels = kDigitSide * kDigitSide;

// A part of the data: its names in the formats, and its samples.
struct Part {
  const char* name;
  const char* idx_name;
  DigitImages digits;

  int64_t count() const {
    return static_cast<int64_t>(digits.labels.size());
  }
};

void write_as_idx(const std::string& folder, const Part& part) {
  const std::string path = folder + part.idx_name;
  write_idx(
      path + "-images-idx3-ubyte",
      {{part.count(), kDigitSide, kDigitSide}, part.digits.pixels});
  write_idx(path + "-labels-idx1-ubyte", {{part.count()}, part.digits.labels});
}

void write_as_npy(const std::string& folder, const Part& part) {
  const std::string path = folder + part.name;
  write_npy(
      path + "_x.npy", ElementType::uint8, {part.count(), kDigitSide, kDigitSide},
      part.digits.pixels.data());
  write_npy(
      path + "_y.npy", ElementType::uint8, {part.count()}, part.digits.labels.data());
}

void write_as_csv(const std::string& folder, const Part& part) {
  CsvTable table;
  table.columns.push_back({"label", {}});
  for (int64_t i = 0; i < kDigitPixels; ++i) {
    table.columns.push_back({fmt::format("p{}", i), {}});
  }
  table.num_rows = part.count();
  const uint8_t* pixels = part.digits.pixels.data();
  for (const uint8_t label : part.digits.labels) {
    table.values.push_back(label);
    table.values.insert(table.values.end(), pixels, pixels + kDigitPixels);
    pixels += kDigitPixels;
  }
  write_csv(folder + part.name + ".csv", table);
}

void write_png(const std::string& path, const uint8_t* pixels) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = image.height = kDigitSide;
  image.format = PNG_FORMAT_GRAY;
  if (png_image_write_to_file(&image, path.c_str(), 0, pixels, 0, nullptr) == 0) {
    throw DataError(fmt::format(
        "[data] cannot write '{}': {}; choose another folder", path, image.message));
  }
}

void write_as_png(const std::string& folder, const Part& part) {
  for (int digit = 0; digit < 10; ++digit) {
    make_directories(fmt::format("{}{}/{}", folder, part.name, digit));
  }
  for (int64_t i = 0; i < part.count(); ++i) {
    const int label = part.digits.labels[static_cast<size_t>(i)];
    write_png(
        fmt::format("{}{}/{}/{:05}.png", folder, part.name, label, i),
        part.digits.pixels.data() + i * kDigitPixels);
  }
}

void write_part(const std::string& folder, const Part& part, DigitsFormat format) {
  switch (format) {
    case DigitsFormat::idx:
      return write_as_idx(folder, part);
    case DigitsFormat::png:
      return write_as_png(folder, part);
    case DigitsFormat::npy:
      return write_as_npy(folder, part);
    case DigitsFormat::csv:
      return write_as_csv(folder, part);
  }
}

// Moves all files and folders of a folder to another.
void move_entries(const std::string& from, const std::string& to) {
  for (const auto& name : list_directory(from)) {
    std::error_code error;
    std::filesystem::rename(from + name, to + "/" + name, error);
    if (error) {
      throw DataError(
          "[data] cannot write '" + to + "/" + name + "': " + error.message() +
          "; choose another folder");
    }
  }
}

}  // namespace

void write_digits(
    const std::string& folder, int64_t num_train, int64_t num_test,
    DigitsFormat format) {
  const Part parts[] = {
      {"train", "train", draw_digits(num_train, kTrainDigitsSeed)},
      {"test", "t10k", draw_digits(num_test, kTestDigitsSeed)}};
  const bool is_new = !file_exists(folder);
  make_directories(folder);
  // Writes all files to a temporary folder first, so that no file appears if writing
  // fails.
  const std::string temporary = folder + "/part-" + std::to_string(getpid()) + "/";
  try {
    make_directories(temporary);
    for (const auto& part : parts) {
      write_part(temporary, part, format);
    }
    move_entries(temporary, folder);
  } catch (...) {
    remove_all(is_new ? folder : temporary);
    throw;
  }
  remove_all(temporary);
}

}  // namespace tandem
