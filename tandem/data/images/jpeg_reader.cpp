#include <csetjmp>
#include <cstdio>
#include <vector>

// Needs the types of cstdio.
#include <jpeglib.h>
// Needs the macros of jpeglib.h.
#include <jerror.h>

#include "tandem/base/error.h"
#include "tandem/data/images/image_reader.h"

namespace tandem {

namespace {

// Returns whether libjpeg's warning means that pixels are missing or wrong. Other
// warnings, such as unknown bytes between two segments, are ignored.
bool is_damage(int warning) {
  switch (warning) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
      return true;
    default:
      return false;
  }
}

// libjpeg-turbo writes past the CPU's caches into an aligned row. Reading the row would
// then take as long as decoding it.
constexpr size_t kOffset = 1;

// An error in libjpeg returns to the last call of setjmp(), in a function of this class
// that then throws. These functions have no variables with destructors.
class JpegReader : public ImageReader {
 public:
  JpegReader(std::string_view bytes, const std::string& path) : path_(path) {
    jpeg_.err = jpeg_std_error(&errors_);
    jpeg_.client_data = this;
    errors_.error_exit = [](j_common_ptr jpeg) { of(jpeg).jump(); };
    errors_.emit_message = [](j_common_ptr jpeg, int level) {
      if (level < 0 && is_damage(jpeg->err->msg_code)) {
        of(jpeg).jump();
      }
    };
    try {
      read_header(bytes);
    } catch (...) {
      jpeg_destroy_decompress(&jpeg_);
      throw;
    }
  }

  ~JpegReader() override {
    jpeg_destroy_decompress(&jpeg_);
  }

  ImageSize start(const ImageSize& needed) override {
    if (setjmp(jump_) != 0) {
      fail();
    }
    jpeg_.scale_num = 1;
    jpeg_.scale_denom = denominator(needed);
    jpeg_.out_color_space = channels_ == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(&jpeg_);
    buffer_.resize(
        kOffset + size_t{jpeg_.output_width} * static_cast<size_t>(channels_) +
        kRowPadding);
    return {jpeg_.output_height, jpeg_.output_width};
  }

  const uint8_t* next_row() override {
    if (setjmp(jump_) != 0) {
      fail();
    }
    JSAMPROW row = buffer_.data() + kOffset;
    jpeg_read_scanlines(&jpeg_, &row, 1);
    return buffer_.data() + kOffset;
  }

  void finish() override {
    if (setjmp(jump_) != 0) {
      fail();
    }
    jpeg_finish_decompress(&jpeg_);
  }

 private:
  static JpegReader& of(j_common_ptr jpeg) {
    return *static_cast<JpegReader*>(jpeg->client_data);
  }

  unsigned denominator(const ImageSize& needed) const {
    for (const unsigned denominator : {8u, 4u, 2u}) {
      if (size_.height / denominator >= needed.height &&
          size_.width / denominator >= needed.width) {
        return denominator;
      }
    }
    return 1;
  }

  [[noreturn]] void jump() {
    std::longjmp(jump_, 1);
  }

  [[noreturn]] void fail() {
    char reason[JMSG_LENGTH_MAX];
    errors_.format_message(reinterpret_cast<j_common_ptr>(&jpeg_), reason);
    fail_image(
        path_, std::string("cannot be decoded (") + reason +
                   "), expected a complete JPEG image; copy it again or remove it");
  }

  void read_header(std::string_view bytes) {
    if (setjmp(jump_) != 0) {
      fail();
    }
    jpeg_create_decompress(&jpeg_);
    jpeg_mem_src(
        &jpeg_, reinterpret_cast<const uint8_t*>(bytes.data()),
        static_cast<unsigned long>(bytes.size()));
    jpeg_read_header(&jpeg_, TRUE);
    size_ = {jpeg_.image_height, jpeg_.image_width};
    channels_ = jpeg_.num_components;
    check_pixels(size_, path_);
    if (channels_ != 1 && channels_ != 3) {
      fail_image(
          path_, (channels_ == 4 ? "is a CMYK JPEG image"
                                 : "is a JPEG image of " + std::to_string(channels_) +
                                       " channels") +
                     std::string(", expected grayscale or RGB; convert it to RGB"));
    }
  }

  const std::string path_;
  jpeg_decompress_struct jpeg_{};
  jpeg_error_mgr errors_{};
  std::jmp_buf jump_{};
  // One row, after kOffset bytes.
  std::vector<uint8_t> buffer_;
};

}  // namespace

std::unique_ptr<ImageReader> open_jpeg(
    std::string_view bytes, const std::string& path) {
  return std::make_unique<JpegReader>(bytes, path);
}

}  // namespace tandem
