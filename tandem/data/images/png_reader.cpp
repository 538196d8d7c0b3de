#include <png.h>

#include <csetjmp>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/images/image_reader.h"

namespace tandem {

namespace {

// Largest ratio of unpacked to packed size of deflate, rounded up.
constexpr int64_t kMostInflated = 1040;
// Limit of libpng for the memory of a chunk such as a color profile or a text.
constexpr png_alloc_size_t kMostChunkBytes = png_alloc_size_t{8} << 20;

// An error in libpng returns to the last call of setjmp(), in a function of this class
// that then throws. These functions have no variables with destructors.
class PngReader : public ImageReader {
 public:
  PngReader(std::string_view bytes, const std::string& path)
      : path_(path), bytes_(bytes), rest_(bytes) {
    png_ = png_create_read_struct(
        PNG_LIBPNG_VER_STRING, this,
        [](png_structp png, png_const_charp message) {
          auto& self = *static_cast<PngReader*>(png_get_error_ptr(png));
          self.reason_ = message;
          std::longjmp(self.jump_, 1);
        },
        [](png_structp /*png*/, png_const_charp /*message*/) {});
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    try {
      read_header();
    } catch (...) {
      png_destroy_read_struct(&png_, &info_, nullptr);
      throw;
    }
  }

  ~PngReader() override {
    png_destroy_read_struct(&png_, &info_, nullptr);
  }

  ImageSize start(const ImageSize& /*needed*/) override {
    if (setjmp(jump_) != 0) {
      fail();
    }
    num_passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    row_bytes_ = png_get_rowbytes(png_, info_);
    TANDEM_CHECK(
        row_bytes_ == static_cast<size_t>(size_.width * channels_),
        "libpng did not convert to 8 bits");
    const bool buffered = num_passes_ > 1;
    rows_.resize(
        row_bytes_ * (buffered ? static_cast<size_t>(size_.height) : 1) + kRowPadding);
    if (buffered) {
      read_passes();
    }
    return size_;
  }

  const uint8_t* next_row() override {
    if (num_passes_ > 1) {
      return rows_.data() + row_bytes_ * next_++;
    }
    if (setjmp(jump_) != 0) {
      fail();
    }
    png_read_row(png_, rows_.data(), nullptr);
    return rows_.data();
  }

  void finish() override {
    if (setjmp(jump_) != 0) {
      fail();
    }
    png_read_end(png_, nullptr);
  }

 private:
  [[noreturn]] void fail() {
    fail_image(
        path_, "cannot be decoded (" + reason_ +
                   "), expected a complete PNG image; copy it again or remove it");
  }

  void read(png_bytep to, size_t size) {
    if (size > rest_.size()) {
      png_error(png_, "unexpected end of the file");
    }
    rest_.copy(reinterpret_cast<char*>(to), size);
    rest_.remove_prefix(size);
  }

  void read_header() {
    if (info_ == nullptr) {
      throw std::bad_alloc();
    }
    if (setjmp(jump_) != 0) {
      fail();
    }
    png_set_read_fn(png_, this, [](png_structp png, png_bytep to, size_t size) {
      static_cast<PngReader*>(png_get_io_ptr(png))->read(to, size);
    });
    // check_pixels() has the limit for the whole image.
    png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_chunk_malloc_max(png_, kMostChunkBytes);
    png_read_info(png_, info_);
    size_ = {png_get_image_height(png_, info_), png_get_image_width(png_, info_)};
    check_pixels(size_, path_);
    if (png_get_bit_depth(png_, info_) == 16) {
      fail_image(
          path_, "is a 16-bit PNG image, expected 8 bits per channel; convert it");
    }
    const int type = png_get_color_type(png_, info_);
    channels_ = (type & PNG_COLOR_MASK_COLOR) != 0 ? 3 : 1;
    // A file of this size cannot contain more rows.
    if (size_.height * static_cast<int64_t>(png_get_rowbytes(png_, info_)) >
        kMostInflated * static_cast<int64_t>(bytes_.size())) {
      png_error(png_, "its size does not fit its header");
    }
    if (type == PNG_COLOR_TYPE_PALETTE) {
      png_set_palette_to_rgb(png_);
    } else if (channels_ == 1) {
      png_set_expand_gray_1_2_4_to_8(png_);
    }
    png_set_strip_alpha(png_);
  }

  void read_passes() {
    for (int pass = 0; pass < num_passes_; ++pass) {
      for (int64_t row = 0; row < size_.height; ++row) {
        png_read_row(
            png_, rows_.data() + row_bytes_ * static_cast<size_t>(row), nullptr);
      }
    }
  }

  const std::string path_;
  const std::string_view bytes_;
  std::string_view rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_{};
  std::string reason_;
  int num_passes_ = 1;
  size_t row_bytes_ = 0;
  // One row; all rows of an interlaced image.
  std::vector<uint8_t> rows_;
  size_t next_ = 0;
};

}  // namespace

std::unique_ptr<ImageReader> open_png(std::string_view bytes, const std::string& path) {
  return std::make_unique<PngReader>(bytes, path);
}

}  // namespace tandem
