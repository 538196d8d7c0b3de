#include "tandem/data/images/decode.h"

#include <algorithm>
#include <vector>

namespace tandem {

namespace {

// Returns half of the pixels that a crop removes, rounded as Python's round().
int64_t crop_begin(int64_t removed) {
  const int64_t half = removed / 2;
  return half + (removed % 2) * (half % 2);
}

// Returns the number of bytes of a buffer for a row.
size_t buffer_bytes(int64_t row_bytes) {
  constexpr size_t kStep = RowFunctions::kRowStep;
  return (static_cast<size_t>(row_bytes) + RowFunctions::kRowPadding + kStep - 1) /
         kStep * kStep;
}

// Weights of ITU-R BT.601 as 16-bit fixed-point numbers, as in Pillow's Convert.c.
void to_gray(const uint8_t* rgb, int64_t width, uint8_t* gray) {
  for (int64_t i = 0; i < width; ++i) {
    const uint8_t* pixel = rgb + 3 * i;
    gray[i] = static_cast<uint8_t>(
        (pixel[0] * 19595u + pixel[1] * 38470u + pixel[2] * 7471u + 0x8000u) >> 16);
  }
}

}  // namespace

ResizePlan plan_resize(const ImageSize& image, const ImageSize& target) {
  ResizePlan plan;
  plan.size = target;
  // The side that needs the larger factor gets the target's length.
  if (target.height * image.width >= target.width * image.height) {
    plan.resized = {target.height, target.height * image.width / image.height};
  } else {
    plan.resized = {target.width * image.height / image.width, target.width};
  }
  plan.top = crop_begin(plan.resized.height - target.height);
  plan.left = crop_begin(plan.resized.width - target.width);
  return plan;
}

RowResizer::RowResizer(
    const ImageSize& image, const ResizePlan& plan, int64_t channels, uint8_t* planes,
    const RowFunctions& functions)
    : size_(plan.size),
      channels_(channels),
      planes_(planes),
      functions_(functions),
      across_(image.width, plan.resized.width, plan.left, plan.size.width),
      down_(image.height, plan.resized.height, plan.top, plan.size.height),
      row_bytes_(buffer_bytes(plan.size.width * channels)),
      buffer_(static_cast<size_t>(down_.longest) * row_bytes_),
      result_(row_bytes_) {}

uint8_t* RowResizer::buffered(int64_t row) {
  return buffer_.data() + static_cast<size_t>(row % down_.longest) * row_bytes_;
}

void RowResizer::add_row(const uint8_t* row) {
  const int64_t number = next_in_++;
  const auto& windows = down_.windows;
  if (next_out_ == size_.height ||
      number < windows[static_cast<size_t>(next_out_)].first) {
    return;
  }
  (channels_ == 1 ? resize_gray : functions_.across)(row, across_, buffered(number));
  for (; next_out_ < size_.height; ++next_out_) {
    const auto& window = windows[static_cast<size_t>(next_out_)];
    if (window.first + window.count > number + 1) {
      return;
    }
    write_row(next_out_);
  }
}

void RowResizer::write_row(int64_t row) {
  const auto& window = down_.windows[static_cast<size_t>(row)];
  rows_.clear();
  for (int64_t i = 0; i < window.count; ++i) {
    rows_.push_back(buffered(window.first + i));
  }
  if (rows_.size() % 2 != 0) {
    // Repeats a row to make their number even. The weight of the repeated row is zero.
    rows_.push_back(rows_.back());
  }
  functions_.down(rows_, down_, window, row_bytes_, result_.data());
  const int64_t plane = size_.height * size_.width;
  uint8_t* const to = planes_ + row * size_.width;
  if (channels_ == 1) {
    std::copy_n(result_.data(), size_.width, to);
  } else {
    split_rgb(result_.data(), size_.width, to, to + plane, to + 2 * plane);
  }
}

void decode_image(
    std::string_view bytes, const std::string& path, const ImageShape& shape,
    uint8_t* planes) {
  const auto reader = open_image(bytes, path);
  // The plan uses the original size, because scaled decoding rounds.
  const ResizePlan plan = plan_resize(reader->size(), shape.size);
  const ImageSize decoded = reader->start(plan.resized);
  const bool drops_color = reader->channels() == 3 && shape.channels == 1;
  const int64_t channels = drops_color ? 1 : reader->channels();
  RowResizer resizer(decoded, plan, channels, planes);
  std::vector<uint8_t> gray(
      static_cast<size_t>(drops_color ? decoded.width + ImageReader::kRowPadding : 0));
  for (int64_t i = 0; i < decoded.height; ++i) {
    const uint8_t* row = reader->next_row();
    if (drops_color) {
      to_gray(row, decoded.width, gray.data());
      row = gray.data();
    }
    resizer.add_row(row);
  }
  reader->finish();
  const int64_t plane = shape.size.height * shape.size.width;
  for (int64_t i = channels; i < shape.channels; ++i) {
    std::copy_n(planes, plane, planes + i * plane);
  }
}

}  // namespace tandem
