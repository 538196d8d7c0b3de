// Measures the reader of image folders. benchmarks/peers/images.py runs it.
//
//   bench_image_folder decode SIDE FILE...   images per second of CPU time, on one core
//   bench_image_folder read SIDE FOLDER      seconds of read_image_folder()

#include <fmt/core.h>

#include <chrono>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <string>
#include <vector>

#include "tandem/base/files.h"
#include "tandem/data/images/decode.h"
#include "tandem/data/images/image_folder.h"

namespace {

using namespace tandem;

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

void decode(const ImageShape& shape, const std::vector<std::string>& files) {
  std::vector<uint8_t> planes(static_cast<size_t>(shape.bytes()));
  const double begin = cpu_seconds();
  for (const auto& file : files) {
    decode_image(read_file(file), file, shape, planes.data());
  }
  fmt::print("{:.1f}\n", static_cast<double>(files.size()) / (cpu_seconds() - begin));
}

void read(const ImageSize& size, const std::string& folder) {
  const auto begin = std::chrono::steady_clock::now();
  const auto images =
      read_image_folder(folder, {size, 3}, Deadline(std::chrono::minutes(5)));
  const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  fmt::print("{} images in {:.3f} s\n", images.listing.files.size(), time.count());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 3) {
    fmt::print(stderr, "usage: bench_image_folder decode|read SIDE FILE...\n");
    return 2;
  }
  try {
    const int64_t side = std::atoll(arguments[1].c_str());
    if (arguments[0] == "decode") {
      decode({{side, side}, 3}, {arguments.begin() + 2, arguments.end()});
    } else {
      read({side, side}, arguments[2]);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
  return 0;
}
