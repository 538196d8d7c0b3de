#include "tandem/data/images/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tests/core/memory_limit.h"
#include "tests/data/image_files.h"
#include "tests/parity/python.h"
#include "tests/scratch.h"

namespace tandem::decode_test {

using testing::HasSubstr;

using Bytes8 = std::vector<uint8_t>;

Bytes8 decoded(const std::string& path, const ImageShape& shape) {
  Bytes8 planes(static_cast<size_t>(shape.bytes()));
  decode_image(read_file(path), path, shape, planes.data());
  return planes;
}

// Returns the error of an image, which must contain its path.
std::string error_of(const std::string& path, const std::string& bytes) {
  try {
    Bytes8 planes(8 * 8 * 3);
    decode_image(bytes, path, {{8, 8}, 3}, planes.data());
  } catch (const DataError& error) {
    const std::string text = error.what();
    EXPECT_THAT(text, HasSubstr("[data] '" + path + "' "));
    return text;
  }
  return "";
}

// Returns the planes of a picture: channels x height x width.
Bytes8 planes_of(const Picture& picture) {
  Bytes8 planes;
  const auto channels = static_cast<size_t>(picture.channels);
  for (size_t channel = 0; channel < channels; ++channel) {
    for (size_t at = channel; at < picture.pixels.size(); at += channels) {
      planes.push_back(picture.pixels[at]);
    }
  }
  return planes;
}

TEST(DecodeImage, ReturnsThePixelsOfPngFiles) {
  const Scratch scratch;
  for (const int channels : {1, 3}) {
    const auto picture = draw_picture(31, 45, channels);
    for (const bool interlaced : {false, true}) {
      PngOptions options;
      options.color_type = channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB;
      options.interlaced = interlaced;
      write_png(scratch / "a.png", picture, options);
      EXPECT_EQ(decoded(scratch / "a.png", {{31, 45}, channels}), planes_of(picture));
    }
  }
}

TEST(DecodeImage, DropsAlpha) {
  const Scratch scratch;
  const auto with_alpha = draw_picture(9, 14, 4);
  PngOptions options;
  options.color_type = PNG_COLOR_TYPE_RGB_ALPHA;
  write_png(scratch / "a.png", with_alpha, options);
  auto planes = planes_of(with_alpha);
  planes.resize(3 * 9 * 14);
  EXPECT_EQ(decoded(scratch / "a.png", {{9, 14}, 3}), planes);

  const auto gray = draw_picture(9, 14, 2);
  options.color_type = PNG_COLOR_TYPE_GRAY_ALPHA;
  write_png(scratch / "b.png", gray, options);
  planes = planes_of(gray);
  planes.resize(9 * 14);
  EXPECT_EQ(decoded(scratch / "b.png", {{9, 14}, 1}), planes);
}

TEST(DecodeImage, ReplacesAPaletteByItsColors) {
  const Scratch scratch;
  PngOptions options;
  options.color_type = PNG_COLOR_TYPE_PALETTE;
  options.palette = {{1, 2, 3}, {40, 50, 60}, {255, 0, 128}};
  options.num_transparent = 2;
  write_png(scratch / "a.png", {1, 4, 1, {2, 0, 1, 0}}, options);
  EXPECT_EQ(
      decoded(scratch / "a.png", {{1, 4}, 3}),
      (Bytes8{255, 1, 40, 1, 0, 2, 50, 2, 128, 3, 60, 3}));
}

TEST(DecodeImage, ScalesGrayValuesOfFewerBits) {
  const Scratch scratch;
  PngOptions options;
  options.color_type = PNG_COLOR_TYPE_GRAY;
  options.bit_depth = 2;
  // Four pixels of two bits per byte.
  write_png(scratch / "a.png", {1, 4, 1, {0b00'01'10'11}}, options);
  EXPECT_EQ(decoded(scratch / "a.png", {{1, 4}, 1}), (Bytes8{0, 85, 170, 255}));
}

TEST(DecodeImage, CopiesGrayToThreeChannels) {
  const Scratch scratch;
  const auto picture = draw_picture(5, 6, 1);
  write_png(scratch / "a.png", picture);
  auto planes = picture.pixels;
  for (int i = 0; i < 2; ++i) {
    planes.insert(planes.end(), picture.pixels.begin(), picture.pixels.end());
  }
  EXPECT_EQ(decoded(scratch / "a.png", {{5, 6}, 3}), planes);
}

TEST(DecodeImage, RejectsTornFilesAtEveryLength) {
  const Scratch scratch;
  const auto picture = draw_picture(20, 30, 3);
  write_png(scratch / "a.png", picture);
  write_jpeg(scratch / "a.jpg", picture);
  write_jpeg(scratch / "b.jpg", picture, true);
  for (const std::string name : {"a.png", "a.jpg", "b.jpg"}) {
    const auto whole = read_file(scratch / name);
    EXPECT_EQ(error_of(name, whole), "");
    for (size_t length = 9; length < whole.size(); ++length) {
      EXPECT_THAT(
          error_of(name, whole.substr(0, length)),
          HasSubstr("copy it again or remove it"))
          << name << " of " << length << " bytes";
    }
  }
}

TEST(DecodeImage, IgnoresBytesAfterTheImage) {
  const Scratch scratch;
  write_jpeg(scratch / "a.jpg", draw_picture(20, 30, 3));
  EXPECT_EQ(error_of("a.jpg", read_file(scratch / "a.jpg") + "more"), "");
}

TEST(DecodeImage, RejectsFilesThatItDoesNotSupport) {
  const Scratch scratch;
  write_jpeg(scratch / "cmyk.jpg", draw_picture(20, 30, 4));
  EXPECT_THAT(
      error_of("cmyk.jpg", read_file(scratch / "cmyk.jpg")),
      HasSubstr("is a CMYK JPEG image, expected grayscale or RGB; convert it"));
  PngOptions options;
  options.bit_depth = 16;
  write_png(scratch / "16.png", draw_picture(20, 30, 6), options);
  EXPECT_THAT(
      error_of("16.png", read_file(scratch / "16.png")),
      HasSubstr("is a 16-bit PNG image, expected 8 bits per channel; convert it"));
  EXPECT_THAT(error_of("text.png", "some text"), HasSubstr("expected a PNG or JPEG"));
  EXPECT_THAT(error_of("empty.png", ""), HasSubstr("is empty"));
}

// Returns a JPEG file whose header declares another size.
std::string jpeg_with_size(const std::string& path, uint32_t height, uint32_t width) {
  write_jpeg(path, draw_picture(2, 2, 3));
  auto jpeg = read_file(path);
  const size_t frame = jpeg.find("\xff\xc0");
  TANDEM_CHECK(frame != std::string::npos, "no header");
  return jpeg.replace(frame + 5, 4, big_endian(height, 2) + big_endian(width, 2));
}

TEST(DecodeImage, RejectsAHeaderWithTooManyPixels) {
  const Scratch scratch;
  EXPECT_THAT(
      error_of("a.png", png_with_size(scratch / "a.png", 40'000, 40'000)),
      HasSubstr("has 40000 x 40000 pixels, expected at most 100 million pixels"));
  EXPECT_THAT(
      error_of("a.jpg", jpeg_with_size(scratch / "a.jpg", 40'000, 30'000)),
      HasSubstr("has 40000 x 30000 pixels"));
}

TEST(DecodeImage, AllocatesLittleForASizeInAHeader) {
  const Scratch scratch;
  const auto png = png_with_size(scratch / "a.png", 9'000, 9'000);
  const auto jpeg = jpeg_with_size(scratch / "a.jpg", 9'000, 9'000);
  const MemoryLimit limit(size_t{64} << 20);
  EXPECT_THAT(error_of("a.png", png), HasSubstr("cannot be decoded"));
  EXPECT_THAT(error_of("a.jpg", jpeg), HasSubstr("cannot be decoded"));
}

TEST(PlanResize, CoversTheTargetAndCropsTheCenter) {
  const auto plan = plan_resize({375, 500}, {224, 224});
  EXPECT_EQ(plan.resized, (ImageSize{224, 298}));
  EXPECT_EQ(plan.top, 0);
  EXPECT_EQ(plan.left, 37);
  // 14.5 rows are rounded to the even number, as Python's round() does.
  const auto tall = plan_resize({253, 224}, {224, 224});
  EXPECT_EQ(tall.resized, (ImageSize{253, 224}));
  EXPECT_EQ(tall.top, 14);
  const auto wide = plan_resize({10, 40}, {5, 30});
  EXPECT_EQ(wide.resized, (ImageSize{7, 30}));
  EXPECT_EQ(wide.top, 1);
}

// Resizes rows of pixels with the functions of an instruction set.
Bytes8 resized(
    const Picture& picture, ImageSize target, const RowFunctions& functions) {
  const auto row_bytes = static_cast<size_t>(picture.width * picture.channels);
  Bytes8 pixels = picture.pixels;
  pixels.resize(pixels.size() + static_cast<size_t>(ImageReader::kRowPadding), 255);
  Bytes8 planes(
      static_cast<size_t>(target.height * target.width * picture.channels) + 1, 77);
  const ImageSize size{picture.height, picture.width};
  RowResizer resizer(
      size, plan_resize(size, target), picture.channels, planes.data(), functions);
  for (size_t row = 0; row < static_cast<size_t>(picture.height); ++row) {
    resizer.add_row(pixels.data() + row * row_bytes);
  }
  EXPECT_EQ(planes.back(), 77) << "wrote past the result";
  return planes;
}

TEST(RowResizer, EveryInstructionSetGivesTheSameBits) {
  const auto functions = row_functions();
  // From shrinking by 9 to enlarging by 5; rows with and without an incomplete vector.
  for (const int64_t side : {5, 15, 16, 17, 33, 47, 224}) {
    for (const int width : {45, 46, 61, 64}) {
      const auto picture = draw_picture(49, width, 3);
      const auto expected = resized(picture, {side, side}, functions.back());
      for (const auto& each : functions) {
        EXPECT_EQ(resized(picture, {side, side}, each), expected)
            << width << " to " << side;
      }
    }
  }
}

bool has_pillow() {
  return run_python({"-c", "import PIL.Image"}).status.ok();
}

struct PillowCase {
  const char* name;
  int height;
  int width;
  int channels;
  bool jpeg;
  bool progressive;
};

// With scaled decoding: the first five are at least twice, four or eight times as large
// as the target.
const PillowCase kPillowCases[] = {{"half.jpg", 151, 203, 3, true, false},
                                   {"quarter.jpg", 301, 253, 3, true, true},
                                   {"eighth.jpg", 577, 1003, 3, true, false},
                                   {"gray-half.jpg", 131, 207, 1, true, false},
                                   {"half.png", 151, 203, 3, false, false},
                                   {"same.jpg", 61, 93, 3, true, false},
                                   {"same-size.png", 48, 64, 3, false, false},
                                   {"small.jpg", 17, 11, 3, true, false},
                                   {"thin.png", 200, 3, 3, false, false},
                                   {"gray.png", 99, 98, 1, false, false},
                                   {"point.png", 1, 1, 1, false, false}};

TEST(DecodeImage, EqualsPillow) {
  if (!has_pillow()) {
    GTEST_SKIP() << python() << " has no module 'PIL'; scripts/setup";
  }
  const Scratch scratch;
  std::vector<std::string> files;
  for (const auto& each : kPillowCases) {
    files.push_back(scratch / each.name);
    const auto picture = draw_picture(each.height, each.width, each.channels);
    if (each.jpeg) {
      write_jpeg(files.back(), picture, each.progressive, 80);
    } else {
      write_png(files.back(), picture);
    }
  }
  for (const int channels : {1, 3}) {
    const ImageShape shape{{48, 64}, channels};
    std::vector<std::string> command = {
        source_dir() + "/tests/data/pillow_peer.py", scratch / "out", "48", "64",
        channels == 1 ? "L" : "RGB"};
    command.insert(command.end(), files.begin(), files.end());
    checked(run_python(command));
    const auto theirs = read_file(scratch / "out");
    ASSERT_EQ(theirs.size(), files.size() * static_cast<size_t>(shape.bytes()));
    for (size_t i = 0; i < files.size(); ++i) {
      const auto bytes = static_cast<size_t>(shape.bytes());
      const auto their_image = theirs.substr(i * bytes, bytes);
      EXPECT_EQ(
          decoded(files[i], shape), Bytes8(their_image.begin(), their_image.end()))
          << files[i] << " with " << channels << " channels";
    }
  }
}

}  // namespace tandem::decode_test
