// Files that NumPy writes, and a file that NumPy reads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zipconf.h>

#include <sstream>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/data/npy.h"
#include "tests/core/expect.h"
#include "tests/core/most_memory.h"
#include "tests/data/some_samples.h"
#include "tests/parity/python.h"
#include "tests/scratch.h"

namespace tandem::npy_parity_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Key;
using testing::Not;
using testing::StartsWith;

// Checks the files ours-*.npy. Then writes arrays as NAME.npy, and their elements after
// NumPy's conversion as NAME.raw. Prints a line for each file.
constexpr const char* kGood = R"(
import sys
import numpy as np
folder = sys.argv[1] + '/'

for dtype in ['uint8', 'float32', 'int64']:
    ours = np.load(folder + 'ours-' + dtype + '.npy', mmap_mode='r')
    assert ours.dtype == dtype and ours.shape == (2, 3) and ours.flags.c_contiguous
    assert ours.tolist() == [[1, 2, 3], [4, 5, 6]], ours
assert np.load(folder + 'ours-row.npy').tolist() == [7, 8]

targets = {'u': 'int64', 'i': 'int64', 'f': 'float32', 'b': 'uint8'}
mapped = ['|u1', '|b1', '<f4', '<i8']
arrays = {}

def save(name, x, version=None):
    with open(folder + name + '.npy', 'wb') as file:
        np.lib.format.write_array(file, x, version)
    target = 'uint8' if x.dtype == 'uint8' else targets[x.dtype.kind]
    with np.errstate(over='ignore'):
        x.astype(target).tofile(folder + name + '.raw')
    print(name, target, int(x.dtype.str in mapped), *x.shape)
    arrays[name] = x

halves = np.arange(65536, dtype='uint16').view('float16')
save('f2', halves[~np.isnan(halves)])
doubles = [0.1, -0.0, 1 + 2**-24, 1 + 3 * 2**-24, 1e-45, 1e-320, 3.5e38, -1e300, np.inf, 7]
save('f8', np.array(doubles).reshape(5, 2))
save('f4', np.array([0.1, 1e-45, np.nan, -np.inf], 'float32'))
save('b1', np.array([[True, False], [False, True]]))
for dtype in ['u1', 'u2', 'u4', 'i1', 'i2', 'i4', 'i8']:
    bounds = np.iinfo(dtype)
    save(dtype, np.array([[bounds.min, 3, bounds.max]], dtype))
for major in [1, 2, 3]:
    save('version' + str(major), np.arange(60).reshape(3, 4, 5), (major, 0))
save('single', np.array(2.5, 'float32'))
save('images', np.arange(2 * 3 * 4 * 5, dtype='uint8').reshape(2, 3, 4, 5))
save('column', np.asfortranarray(np.arange(5)))
save('chunks', np.arange(20000, dtype='int16'))
save('zeros', np.zeros(4 << 20, 'uint8'))
save('gr\u00f6\u00dfe', np.arange(3))

np.savez(folder + 'stored.npz', **{n: x for n, x in arrays.items() if n != 'zeros'})
np.savez_compressed(folder + 'packed.npz', **arrays)
np.savez(folder + 'unnamed.npz', np.arange(3), np.arange(4))
)";

// Writes files that are errors.
constexpr const char* kBad = R"(
import struct, sys, warnings, zipfile
import numpy as np
warnings.simplefilter('ignore')
folder = sys.argv[1] + '/'
x = np.arange(6, dtype='float32').reshape(2, 3)

np.save(folder + 'objects.npy', np.array([1, 'a'], object))
np.save(folder + 'structured.npy', np.zeros(3, [('a', 'f4'), ('b', 'i4')]))
np.save(folder + 'fortran.npy', np.asfortranarray(x))
np.save(folder + 'big.npy', x.astype('>f4'))
np.save(folder + 'complex.npy', x.astype('complex64'))
np.save(folder + 'text.npy', np.array(['a', 'bc']))
np.save(folder + 'raw.npy', np.array([b'a', b'bc']))
np.save(folder + 'uint64.npy', x.astype('uint64'))
np.save(folder + 'long.npy', x.astype('longdouble'))
np.save(folder + 'dates.npy', np.array(['2026-01-01'], 'datetime64[D]'))
np.save(folder + 'empty.npy', x[:0])
np.savez(folder + 'objects.npz', x=x, y=np.array([1, 'a'], object))
np.savez(folder + 'no_arrays.npz')

def archive(name, members, **options):
    with zipfile.ZipFile(folder + name, 'w', **options) as file:
        for member, content in members:
            file.writestr(member, content)
    with open(folder + name, 'rb') as file:
        return bytearray(file.read())

def write(name, content):
    with open(folder + name, 'wb') as file:
        file.write(content)

np.save(folder + 'x.npy', x)
npy = open(folder + 'x.npy', 'rb').read()
archive('notes.npz', [('x.npy', npy), ('notes.txt', b'hello')])
archive('pickle.npz', [('x.npy', npy), ('y.npy', b'\x80\x04K\x01.')])
archive('twice.npz', [('x.npy', npy), ('x.npy', npy)])
archive('bzip2.npz', [('x.npy', npy)], compression=zipfile.ZIP_BZIP2)
archive('longer.npz', [('x.npy', npy + b'more')])
stored = archive('stored.npz', [('x.npy', npy)])
directory = stored.rindex(b'PK\1\2')
write('truncated.npz', stored[:-30])
encrypted = stored[:]
for header, flags in [(0, 6), (directory, 8)]:
    encrypted[header + flags] |= 1
write('encrypted.npz', encrypted)
flipped = stored[:]
flipped[stored.index(npy) + len(npy) - 2] ^= 4
write('flipped.npz', flipped)

# Declares 1 GB in the directory and in the header of x, and contains 100 kB.
declared = 10**9
header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d,), }" % declared
content = npy[:8] + struct.pack('<H', 118) + header.ljust(117) + b'\n' + bytes(100_000)
bomb = archive('bomb.npz', [('x.npy', content)], compression=zipfile.ZIP_DEFLATED)
for start, at in [(0, 22), (bomb.rindex(b'PK\1\2'), 24)]:
    bomb[start + at:start + at + 4] = struct.pack('<I', declared + 128)
write('bomb.npz', bomb)

# A directory with 100,000 entries of 50 bytes.
entry = b'PK\1\2' + bytes(24) + struct.pack('<H', 4) + bytes(16)
entries = b''.join(entry + struct.pack('<I', i | 0x41414141) for i in range(100_000))
record = struct.pack('<QHHIIQQQQ', 44, 45, 45, 0, 0, 100_000, 100_000, len(entries), 0)
write('directory.npz', entries + b'PK\6\6' + record
      + b'PK\6\7' + struct.pack('<IQI', 0, len(entries), 1)
      + b'PK\5\6' + struct.pack('<HHHHIIH', 0, 0, 0xffff, 0xffff, 2**32 - 1, 2**32 - 1, 0))
)";

struct Written {
  std::string name;
  std::string type;
  bool is_mapped = false;
  std::vector<int64_t> shape;
};

std::vector<Written> parse(const std::string& output) {
  std::vector<Written> files;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    Written file;
    words >> file.name >> file.type >> file.is_mapped;
    for (int64_t dim = 0; words >> dim;) {
      file.shape.push_back(dim);
    }
    files.push_back(file);
  }
  return files;
}

std::string text_of(const Bytes& bytes) {
  return {bytes.begin(), bytes.end()};
}

void expect_array(
    const NpyArray& array, const Written& written, const std::string& raw) {
  EXPECT_EQ(name_of(array.type), written.type);
  EXPECT_EQ(array.shape, written.shape);
  // Without gtest's message, which would print all bytes.
  EXPECT_TRUE(text_of(array.bytes) == raw);
  const auto address = reinterpret_cast<uintptr_t>(array.bytes.data());
  EXPECT_EQ(address % size_of(array.type), 0u);
}

TEST(NpyParity, NumPysFilesAndOurs) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const Scratch scratch;
  const auto write = [&](const char* name, const Samples& samples) {
    write_npy(scratch / name, samples);
  };
  write("ours-uint8.npy", samples_of<uint8_t>({3}, {1, 2, 3, 4, 5, 6}));
  write("ours-float32.npy", samples_of<float>({3}, {1, 2, 3, 4, 5, 6}));
  write("ours-int64.npy", samples_of<int64_t>({3}, {1, 2, 3, 4, 5, 6}));
  write("ours-row.npy", samples_of<int64_t>({}, {7, 8}));

  const auto python = checked(run_python({"-c", kGood, scratch.path()}));
  const auto files = parse(python.output);
  ASSERT_EQ(files.size(), 20u);
  const auto stored = read_npz(scratch / "stored.npz");
  const auto packed = read_npz(scratch / "packed.npz");
  EXPECT_EQ(stored.size(), files.size() - 1);
  EXPECT_EQ(packed.size(), files.size());
  for (const auto& written : files) {
    SCOPED_TRACE(written.name);
    const std::string raw = read_file(scratch / (written.name + ".raw"));
    const NpyArray array = read_npy(scratch / (written.name + ".npy"));
    expect_array(array, written, raw);
    EXPECT_EQ(array.is_mapped, written.is_mapped);
    expect_array(packed.at(written.name), written, raw);
    EXPECT_FALSE(packed.at(written.name).is_mapped);
    if (written.name != "zeros") {
      expect_array(stored.at(written.name), written, raw);
    }
  }
  EXPECT_THAT(
      read_npz(scratch / "unnamed.npz"), ElementsAre(Key("arr_0"), Key("arr_1")));
}

// Message of libzip for a file without its end.
constexpr const char* kTruncated =
    LIBZIP_VERSION_MAJOR > 1 || LIBZIP_VERSION_MINOR >= 11
        ? "Possibly truncated or corrupted zip archive"
        : "Not a zip archive";

TEST(NpyParity, FilesThatAreErrors) {
  TANDEM_NEEDS_PYTHON_TORCH();
  const Scratch scratch;
  checked(run_python({"-c", kBad, scratch.path()}));
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"objects.npy", "dtype '|O' (Python objects), expected bool, uint8"},
      {"structured.npy", "structured dtype"},
      {"fortran.npy",
       "Fortran order, expected C order; save it with numpy.save(path, "},
      {"big.npy", "dtype '>f4', which is big-endian, expected '<f4'"},
      {"complex.npy", "dtype '<c8'"},
      {"text.npy", "dtype '<U2'"},
      {"raw.npy", "dtype '|S2'"},
      {"uint64.npy", "dtype '<u8'"},
      {"long.npy", "dtype '<f16'"},
      {"dates.npy", "dtype '<M8[D]'"},
      {"empty.npy", "has no elements: its shape is (0, 3)"},
      {"objects.npz", "array 'y' has dtype '|O'"},
      {"no_arrays.npz", "has no arrays"},
      {"notes.npz", "contains 'notes.txt', expected only .npy files"},
      {"pickle.npz", "array 'y' "},
      {"twice.npz", "has two arrays 'x'"},
      {"bzip2.npz", "compression method 12, expected 0 (stored) or 8 (deflated)"},
      {"longer.npz", "array 'x' has 156 bytes, expected 152"},
      {"truncated.npz",
       std::string("is not a .npz file or is damaged (") + kTruncated + ")"},
      {"x.npy", "is not a .npz file or is damaged"},
      {"encrypted.npz", "is encrypted"},
      {"flipped.npz", "array 'x' is damaged (CRC error)"},
      {"bomb.npz", "array 'x' "},
      {"directory.npz", "directory of more than"}};
  const int64_t before = most_memory_kb();
  for (const auto& [name, said] : cases) {
    SCOPED_TRACE(name);
    const std::string path = scratch / name;
    EXPECT_THAT(
        error_of<DataError>([&, npz = name.back() == 'z' || name == "x.npy"] {
          npz ? void(read_npz(path)) : void(read_npy(path));
        }),
        AllOf(
            StartsWith("[data] '" + path + "'"), HasSubstr(said), HasSubstr("; "),
            Not(HasSubstr("\n"))));
  }
  // 4 times the size of the largest file, and 64 MB.
  EXPECT_LT(most_memory_kb() - before, 4 * 5'000 + 64'000);
}

}  // namespace tandem::npy_parity_test
