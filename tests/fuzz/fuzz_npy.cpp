// NumPy files: an accepted array has the elements of its shape, aligned, and is not
// larger than the input allows. A .npz archive of the input gives the same array.

#include <zip.h>

#include <cstring>

#include "tandem/data/npy.h"
#include "tandem/data/npy_format.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace tandem;

// Returns a .npz archive in which the array x has this content.
Bytes zipped(const Bytes& content, int method) {
  zip_source_t* archive = zip_source_buffer_create(nullptr, 0, 0, nullptr);
  zip_source_keep(archive);
  zip_t* zip = zip_open_from_source(archive, ZIP_TRUNCATE, nullptr);
  zip_file_add(
      zip, "x.npy", zip_source_buffer(zip, content.data(), content.size(), 0), 0);
  zip_set_file_compression(zip, 0, method, 1);
  fuzz::expect(zip_close(zip) == 0, "libzip writes the archive");
  zip_stat_t status;
  zip_source_stat(archive, &status);
  std::vector<uint8_t> bytes(status.size);
  zip_source_open(archive);
  zip_source_read(archive, bytes.data(), bytes.size());
  zip_source_close(archive);
  zip_source_free(archive);
  return bytes;
}

void check(const NpyArray& array) {
  size_t bytes = size_of(array.type);
  for (const int64_t dim : array.shape) {
    fuzz::expect(dim > 0, "a dimension is positive");
    bytes *= static_cast<size_t>(dim);
  }
  fuzz::expect(array.bytes.size() == bytes, "the elements are those of the shape");
  const auto address = reinterpret_cast<uintptr_t>(array.bytes.data());
  fuzz::expect(address % size_of(array.type) == 0, "the elements are aligned");
}

bool are_equal(const NpyArray& a, const NpyArray& b) {
  return a.type == b.type && a.shape == b.shape && a.bytes == b.bytes;
}

void check_npy(const Bytes& input, const NpyArray& array) {
  check(array);
  if (array.is_mapped) {
    fuzz::expect(
        array.bytes.begin() >= input.begin() && array.bytes.end() == input.end(),
        "mapped elements are the end of the file");
  }
  const std::string header = npy_header(array.type, array.shape);
  std::vector<uint8_t> again(header.begin(), header.end());
  again.insert(again.end(), array.bytes.begin(), array.bytes.end());
  fuzz::expect(are_equal(parse_npy(again, "again"), array), "it can be written");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes input(std::vector<uint8_t>(data, data + size));
  if (size > 1 && std::memcmp(data, "PK", 2) == 0) {
    fuzz::accepts([&] {
      for (const auto& [name, array] : parse_npz(input, "input")) {
        fuzz::expect(!array.is_mapped, "an archive is not mapped");
        check(array);
      }
    });
    return 0;
  }
  NpyArray array;
  const bool is_good = fuzz::accepts([&] { array = parse_npy(input, "input"); });
  if (is_good) {
    check_npy(input, array);
  }
  if (size > 0) {
    NpyArray packed;
    const int method = size % 2 == 0 ? ZIP_CM_STORE : ZIP_CM_DEFLATE;
    const bool is_packed_good = fuzz::accepts(
        [&] { packed = parse_npz(zipped(input, method), "input").at("x"); });
    fuzz::expect(is_packed_good == is_good, "an archive of the file is accepted too");
    fuzz::expect(!is_good || are_equal(packed, array), "and has the same array");
  }
  return 0;
}
