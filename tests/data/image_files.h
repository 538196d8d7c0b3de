#pragma once

#include <png.h>
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <jpeglib.h>

#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem {

/// Pixels of an image for tests: height x width x channels bytes.
struct Picture {
  int height = 0;
  int width = 0;
  int channels = 3;
  std::vector<uint8_t> pixels;
};

/// Draws waves of several lengths, so that every region and channel differs.
inline Picture draw_picture(int height, int width, int channels, int seed = 0) {
  Picture picture{height, width, channels, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        const int slow = (x * (2 + c) + y * (3 - c) + 31 * seed) % 400;
        const int fast = (x * 7 + y * 5 + x * y / 9 + c * 11) % 40;
        const int value = (slow < 200 ? slow : 400 - slow) + fast;
        picture.pixels.push_back(static_cast<uint8_t>(value));
      }
    }
  }
  return picture;
}

/// Variants of PNG files. `channels` of the picture must fit `color_type`.
struct PngOptions {
  int color_type = PNG_COLOR_TYPE_RGB;
  int bit_depth = 8;
  bool interlaced = false;
  // Colors of a palette, and number of transparent colors.
  std::vector<png_color> palette;
  int num_transparent = 0;
};

/// Writes a picture as a PNG file. `picture.pixels` has rows of equal length, whose
/// pixels are packed as `options` require.
inline void write_png(
    const std::string& path, const Picture& picture, const PngOptions& options) {
  FILE* file = std::fopen(path.c_str(), "wb");
  TANDEM_CHECK(file != nullptr, path);
  png_structp png =
      png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_init_io(png, file);
  png_set_IHDR(
      png, info, static_cast<png_uint_32>(picture.width),
      static_cast<png_uint_32>(picture.height), options.bit_depth, options.color_type,
      options.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
      PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (!options.palette.empty()) {
    png_set_PLTE(
        png, info, options.palette.data(), static_cast<int>(options.palette.size()));
    const std::vector<png_byte> alpha(256, 7);
    png_set_tRNS(png, info, alpha.data(), options.num_transparent, nullptr);
  }
  png_write_info(png, info);
  const size_t row_bytes = picture.pixels.size() / static_cast<size_t>(picture.height);
  std::vector<png_bytep> rows;
  for (int y = 0; y < picture.height; ++y) {
    rows.push_back(const_cast<png_bytep>(
        picture.pixels.data() + static_cast<size_t>(y) * row_bytes));
  }
  png_write_image(png, rows.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  std::fclose(file);
}

/// Writes a grayscale or RGB picture of 8 bits per channel as a PNG file.
inline void write_png(const std::string& path, const Picture& picture) {
  PngOptions options;
  options.color_type = picture.channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB;
  write_png(path, picture, options);
}

/// Writes a picture as a JPEG file: grayscale (1 channel), RGB (3) or CMYK (4).
inline void write_jpeg(
    const std::string& path, const Picture& picture, bool progressive = false,
    int quality = 90) {
  FILE* file = std::fopen(path.c_str(), "wb");
  TANDEM_CHECK(file != nullptr, path);
  jpeg_compress_struct jpeg{};
  jpeg_error_mgr errors{};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  jpeg_stdio_dest(&jpeg, file);
  jpeg.image_height = static_cast<JDIMENSION>(picture.height);
  jpeg.image_width = static_cast<JDIMENSION>(picture.width);
  jpeg.input_components = picture.channels;
  jpeg.in_color_space = picture.channels == 1   ? JCS_GRAYSCALE
                        : picture.channels == 3 ? JCS_RGB
                                                : JCS_CMYK;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, quality, TRUE);
  if (progressive) {
    jpeg_simple_progression(&jpeg);
  }
  jpeg_start_compress(&jpeg, TRUE);
  const auto row_bytes = static_cast<size_t>(picture.width * picture.channels);
  while (jpeg.next_scanline < jpeg.image_height) {
    auto* row =
        const_cast<JSAMPROW>(picture.pixels.data() + jpeg.next_scanline * row_bytes);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::fclose(file);
}

/// Returns a big-endian number.
inline std::string big_endian(uint32_t number, int bytes) {
  std::string text;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
    text += static_cast<char>(number >> shift);
  }
  return text;
}

/// Writes a small PNG file to `path`, and returns its bytes after a change of the size
/// in the header.
inline std::string png_with_size(
    const std::string& path, uint32_t height, uint32_t width) {
  write_png(path, draw_picture(2, 2, 1));
  auto png = read_file(path);
  png.replace(16, 8, big_endian(width, 4) + big_endian(height, 4));
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>(png.data()) + 12, 17);
  return png.replace(29, 4, big_endian(static_cast<uint32_t>(crc), 4));
}

}  // namespace tandem
