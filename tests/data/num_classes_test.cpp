// Numbers of classes that load_dataset() finds.

#include <gtest/gtest.h>

#include <numeric>

#include "tandem/base/files.h"
#include "tandem/data/load_dataset.h"
#include "tandem/data/npy.h"
#include "tests/scratch.h"

namespace tandem::num_classes_test {

TEST(NumClasses, OfATextAre256) {
  const Scratch scratch;
  replace_file(scratch / "a.txt", std::string(2000, 'a'));
  const auto splits = load_dataset(scratch / "a.txt");
  EXPECT_EQ(splits.train.num_classes, 256);
  EXPECT_EQ(splits.test.num_classes, 256);
}

// Each class occurs once, so most classes of the test part are not in the training part.
TEST(NumClasses, IncludeThoseOfSamplesThatAreHeldOut) {
  constexpr int64_t kClasses = 300;
  const Scratch scratch;
  std::vector<int64_t> classes(kClasses);
  std::iota(classes.begin(), classes.end(), 0);
  const auto bytes = reinterpret_cast<const uint8_t*>(classes.data());
  write_npy(scratch / "x.npy", ElementType::float32, {kClasses, 2}, bytes);
  write_npy(scratch / "y.npy", ElementType::int64, {kClasses}, bytes);
  DataRequest request(scratch.path());
  request.options.test_fraction = 0.5;
  const auto splits = load_dataset(request);
  EXPECT_EQ(splits.test.size, kClasses / 2);
  EXPECT_EQ(splits.train.num_classes, kClasses);
  EXPECT_EQ(splits.test.num_classes, kClasses);
}

}  // namespace tandem::num_classes_test
