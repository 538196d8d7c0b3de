#include "tandem/data/images/decode.h"

#include <algorithm>
#include <vector>

#include "tandem/data/images/resize.h"

namespace tandem {

namespace {

// Weights of ITU-R BT.601 as 16-bit fixed-point numbers, as in Pillow's Convert.c.
void to_gray(const uint8_t* rgb, int64_t width, uint8_t* gray) {
  for (int64_t i = 0; i < width; ++i) {
    const uint8_t* pixel = rgb + 3 * i;
    gray[i] = static_cast<uint8_t>(
        (pixel[0] * 19595u + pixel[1] * 38470u + pixel[2] * 7471u + 0x8000u) >> 16);
  }
}

}  // namespace

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
