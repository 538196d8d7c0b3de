// Classifies a grayscale image (PGM) with the network of a run.
//
//   ./predict RUN IMAGE.pgm

#include <ATen/ops/empty.h>
#include <tandem/tandem.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <vector>

int main(int argc, char** argv) try {
  const std::vector<std::string> arguments(argv, argv + argc);
  const auto network = tandem::load_model(arguments.at(1));
  auto sizes = network.sample_shape();
  sizes.insert(sizes.begin(), 1);
  const auto image = at::empty(sizes, at::kByte);
  std::ifstream file(arguments.at(2), std::ios::binary);
  file.exceptions(std::ios::failbit);
  file.seekg(-image.numel(), std::ios::end);  // a PGM file ends with its pixels
  file.read(static_cast<char*>(image.data_ptr()), image.numel());
  const auto [probability, best] = network(network.preprocess(image)).softmax(1).max(1);
  std::printf(
      "%s, probability %.8f\n", network.class_names().at(best.item<int64_t>()).c_str(),
      probability.item<double>());
} catch (const std::exception& error) {
  std::fprintf(stderr, "predict: %s\n", error.what());
  return 1;
}
