// Damaged and unsuitable files of each format. tests/data has the tables of each
// reader.

#include <cmath>

#include "bad_input.h"
#include "tandem/data/npy.h"
#include "tests/data/image_files.h"
#include "tests/graph/fixture_files.h"

namespace tandem::formats_test {

namespace fs = std::filesystem;
using testing::HasSubstr;

// The line that reports the decoding of images is not an error.
const Variables kOnlyErrors = {{"TANDEM_LOG", "warn"}};

// --- folders of images ---

// Two classes of five images each.
void with_images(const Stage& stage) {
  for (const std::string folder : {"images/a", "images/b"}) {
    fs::create_directories(stage / folder);
    for (int i = 0; i < 5; ++i) {
      write_png(
          stage / (folder + "/" + std::to_string(i) + ".png"),
          draw_picture(8, 8, 1, i));
    }
  }
}

// A case of an image that ends a run on three ranks.
BadInputCase images(
    const std::string& name, const std::vector<std::string>& says,
    const Prepare& change) {
  return {
      name,
      train({"--data", "@/images", "--nproc", "3", "--out", "@/out"}),
      1,
      says,
      [=](const Stage& stage) {
        with_images(stage);
        change(stage);
      },
      kOnlyErrors};
}

INSTANTIATE_TEST_SUITE_P(
    Images, BadInput,
    testing::Values(
        images(
            "EmptyClassFolder", {"@/images/c", "no images", "remove it"},
            [](const Stage& stage) { fs::create_directory(stage / "images/c"); }),
        images(
            "FolderAboveTheClassFolders",
            {"@/images' has only the folder 'all'", "set --data to @/images/all"},
            [](const Stage& stage) {
              fs::rename(stage / "images", stage / "all");
              fs::create_directory(stage / "images");
              fs::rename(stage / "all", stage / "images/all");
            }),
        images(
            "TestWithoutTrain", {"folder test and val, but no folder train"},
            [](const Stage& stage) {
              fs::rename(stage / "images/a", stage / "images/test");
              fs::rename(stage / "images/b", stage / "images/val");
            }),
        images(
            "TextNamedPng", {"@/images/b/9.png", "expected a PNG or JPEG image"},
            [](const Stage& stage) { stage.write("images/b/9.png", "some text"); }),
        images(
            "TornJpeg", {"@/images/b/9.jpg", "Premature end", "copy it again"},
            [](const Stage& stage) {
              write_jpeg(stage / "images/b/9.jpg", draw_picture(8, 8, 1));
              stage.cut("images/b/9.jpg", stage.read("images/b/9.jpg").size() - 20);
            }),
        images(
            "FortyThousandPixels",
            {"@/images/b/9.png", "40000 x 40000", "at most 100 million pixels"},
            [](const Stage& stage) {
              const std::string path = stage / "images/b/9.png";
              replace_file(path, png_with_size(path, 40'000, 40'000));
            }),
        images(
            "Cmyk", {"@/images/b/9.jpg", "CMYK", "convert it"},
            [](const Stage& stage) {
              write_jpeg(stage / "images/b/9.jpg", draw_picture(8, 8, 4));
            }),
        images(
            "SixteenBits", {"@/images/b/9.png", "16-bit", "convert it"},
            [](const Stage& stage) {
              PngOptions options;
              options.bit_depth = 16;
              write_png(stage / "images/b/9.png", draw_picture(8, 8, 6), options);
            }),
        images(
            "MixedSizes", {"@/images/b/9.png", "9 x 8", "8 x 8", "--image-size"},
            [](const Stage& stage) {
              write_png(stage / "images/b/9.png", draw_picture(9, 8, 1));
            }),
        // The run trains without a cache.
        on_disk(
            "size=4k",
            bad_input(
                "CacheOnAFullDisk", train({"--data", "@/images", "--nproc", "3"}), 0,
                {"@/disk/tandem/images/", "No space left"}, &with_images,
                {{"TANDEM_LOG", "warn"}, {"XDG_CACHE_HOME", "@/disk"}}))),
    name_of_case);

// Runs on images with a cache. Returns the messages.
std::string messages_with_cache(const Stage& stage) {
  const auto result =
      run_ok({"data", "info", stage / "images"}, {{"XDG_CACHE_HOME", stage / "cache"}});
  EXPECT_THAT(result.output, HasSubstr("train: 9 samples of 1x8x8, uint8; 2 classes"));
  return result.errors;
}

TEST(ImageCache, OfAnotherVersionIsReplaced) {
  const Stage stage;
  with_images(stage);
  EXPECT_THAT(messages_with_cache(stage), HasSubstr("decoding 10 images"));
  const std::string folder = "cache/tandem/images/";
  std::string file;
  for (const auto& name : list_directory(stage / folder)) {
    file = name.find('.') == std::string::npos ? folder + name : file;
  }
  const auto cache = stage.read(file);
  stage.exchange(file, "tandem images 2", "tandem images 0");
  EXPECT_THAT(messages_with_cache(stage), HasSubstr("decoding 10 images"));
  EXPECT_EQ(stage.read(file) == cache, true);
  EXPECT_THAT(messages_with_cache(stage), testing::Not(HasSubstr("decoding")));
}

// --- NumPy arrays ---

// Returns the bytes of an array of zeros.
std::string npy(const std::string& type, bool fortran, size_t rows, size_t bytes) {
  std::string header = "{'descr': '" + type +
                       "', 'fortran_order': " + (fortran ? "True" : "False") +
                       ", 'shape': (" + std::to_string(rows) + ", 4), }";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n" +
         std::string(rows * 4 * bytes, '\0');
}

// Writes 40 inputs of four zeros, and 40 targets of three classes.
void with_arrays(const Stage& stage) {
  fs::create_directory(stage / "arrays");
  stage.write("arrays/x.npy", npy("<f4", false, 40, 4));
  std::vector<uint8_t> classes;
  for (uint8_t i = 0; i < 40; ++i) {
    classes.push_back(i % 3);
  }
  write_npy(stage / "arrays/y.npy", ElementType::uint8, {40}, classes.data());
}

BadInputCase arrays(
    const std::string& name, const Arguments& flags, int code,
    const std::vector<std::string>& says, const Prepare& change) {
  return {
      name,
      train(with({"--data", "@/arrays"}, flags)),
      code,
      says,
      [=](const Stage& stage) {
        with_arrays(stage);
        change(stage);
      },
      kOnlyErrors};
}

// Writes numbers of which one is not finite.
void write_nan(const std::string& path, const std::vector<int64_t>& shape) {
  std::vector<float> numbers(40 * 4);
  numbers[14] = NAN;
  write_npy(
      path, ElementType::float32, shape,
      reinterpret_cast<const uint8_t*>(numbers.data()));
}

INSTANTIATE_TEST_SUITE_P(
    Arrays, BadInput,
    testing::Values(
        arrays(
            "Objects", {"--nproc", "3", "--out", "@/out"}, 1,
            {"@/arrays/x.npy", "Python objects", "astype"},
            [](const Stage& stage) {
              stage.write("arrays/x.npy", npy("|O", false, 40, 8));
            }),
        arrays(
            "FortranOrder", {"--out", "@/out"}, 1,
            {"@/arrays/x.npy", "Fortran order", "ascontiguousarray"},
            [](const Stage& stage) {
              stage.write("arrays/x.npy", npy("<f4", true, 40, 4));
            }),
        arrays(
            "TargetsOfBce", {"--loss", "bce", "--nproc", "3", "--out", "@/out"}, 1,
            {"target of sample 2", "@/arrays", "is 2", "0 to 1 for loss bce"},
            [](const Stage&) {}),
        arrays(
            "ImageSize", {"--image-size", "28", "--nproc", "3", "--out", "@/out"}, 2,
            {"image_size is '28'", "@/arrays", "NumPy arrays",
             "leave out --image-size"},
            [](const Stage&) {}),
        arrays(
            "DifferentLengths", {"--nproc", "3", "--out", "@/out"}, 1,
            {"@/arrays", "39 inputs, but 40 targets"},
            [](const Stage& stage) {
              stage.write("arrays/x.npy", npy("<f4", false, 39, 4));
            }),
        arrays(
            "InputThatIsNotFinite", {"--nproc", "3"}, 1,
            {"sample ", "@/arrays", "not finite", "replace the number"},
            [](const Stage& stage) {
              write_nan(stage / "arrays/x.npy", {40, 4});
            }),
        arrays(
            "TargetThatIsNotFinite", {"--nproc", "3", "--out", "@/out"}, 1,
            {"sample ", "@/arrays", "target that is not finite", "replace the number"},
            [](const Stage& stage) {
              write_nan(stage / "arrays/y.npy", {40, 4});
            }),
        arrays(
            "LabelsBeyondTheOutputs",
            {"--model", "@/net.pt2", "--out", "@/out", "--shape", "1,28,28"}, 2,
            {"the number of outputs is 10", "expected 12", "the last layer"},
            [](const Stage& stage) {
              stage.write("net.pt2", fixture("net-2.6.0.pt2"));
              const std::vector<uint8_t> pixels(40 * 784);
              std::vector<uint8_t> classes;
              for (uint8_t i = 0; i < 40; ++i) {
                classes.push_back(i % 12);
              }
              write_npy(
                  stage / "arrays/x.npy", ElementType::uint8, {40, 784}, pixels.data());
              write_npy(
                  stage / "arrays/y.npy", ElementType::uint8, {40}, classes.data());
            }),
        arrays(
            "EmptyValidationPart",
            {"--nproc", "3", "--validation", "0.01", "--out", "@/out"}, 2,
            {"validation is 0.01", "0 of the 36 samples", "change --validation"},
            [](const Stage&) {}),
        arrays(
            "EmptyTestPart", {"--test-fraction", "0.01", "--out", "@/out"}, 2,
            {"test_fraction is 0.01", "0 of the 40 samples", "change --test-fraction"},
            [](const Stage&) {}),
        arrays(
            "BestCheckpointWithoutEvaluations",
            {"--keep-best", "--epochs", "3", "--eval-every", "3", "--out", "@/out"}, 2,
            {"keep_best", "eval_every is 3", "lower --eval-every"},
            [](const Stage&) {})),
    name_of_case);

// --- tables ---

// Returns a table of two numbers, a color and a class.
std::string rows(const std::string& more = {}) {
  std::string text = "a,b,color,class\n";
  for (int i = 0; i < 40; ++i) {
    text += std::to_string(i) + "," + std::to_string(i % 7) +
            (i % 2 == 0 ? ",red," : ",blue,") + std::to_string(i % 3) + "\n";
  }
  return text + more;
}

BadInputCase table(
    const std::string& name, const std::string& target, int code,
    const std::vector<std::string>& says, const std::string& more) {
  return {
      name,
      train(
          {"--data", "@/table.csv", "--target", target, "--nproc", "3", "--out",
           "@/out"}),
      code,
      says,
      [=](const Stage& stage) { stage.write("table.csv", rows(more)); },
      kOnlyErrors};
}

INSTANTIATE_TEST_SUITE_P(
    Tables, BadInput,
    testing::Values(
        table(
            "Ragged", "class", 1, {"line 42", "@/table.csv", "3 cells, expected 4"},
            "1,2,red\n"),
        table(
            "MissingColumn", "clas", 2,
            {"target is 'clas'", "a, b, color, class", "did you mean 'class'"}, ""),
        table(
            "TextInANumericColumn", "class", 1,
            {"'a'", "line 42", "@/table.csv", "'x'", "expected a number"},
            "x,2,red,1\n"),
        table(
            "Nan", "class", 1, {"'b'", "line 42", "'nan'", "a finite number"},
            "1,nan,red,1\n"),
        bad_input(
            "BlockSizeOfATable",
            train(
                {"--data", "@/table.csv", "--target", "class", "--block-size", "9",
                 "--nproc", "3", "--out", "@/out"}),
            2,
            {"block_size is '9'", "@/table.csv", "a table", "no such setting",
             "leave out --block-size"},
            [](const Stage& stage) { stage.write("table.csv", rows()); }, kOnlyErrors),
        bad_input(
            "TargetOfANamedDataSet",
            train({"--data", "digits", "--target", "class", "--out", "@/out"}), 2,
            {"target is 'class'", "data is digits", "leave out --target"},
            [](const Stage&) {}, kOnlyErrors),
        bad_input(
            "UnknownCategoryInTheTestPart",
            train({"--data", "@/tables", "--target", "class", "--out", "@/out"}), 1,
            {"@/tables/test.csv", "'color'", "line 2", "'green'", "'blue', 'red'"},
            [](const Stage& stage) {
              fs::create_directory(stage / "tables");
              stage.write("tables/train.csv", rows());
              stage.write("tables/test.csv", "a,b,color,class\n1,2,green,1\n");
            },
            kOnlyErrors),
        bad_input(
            "TableForANetworkOfImages",
            {"predict", "--checkpoint", "@/checkpoint", "--data", "@/table.csv",
             "--out", "@/predictions.csv"},
            2,
            {"'@/table.csv' is a table", "trained on images of 1x28x28",
             "change --data"},
            checkpoint_and([](const Stage& stage) {
              stage.write("table.csv", rows());
            })),
        bad_input(
            "TextShorterThanASample",
            train({"--data", "@/short.txt", "--out", "@/out"}), 1,
            {"@/short.txt", "9 bytes", "--block-size"},
            [](const Stage& stage) { stage.write("short.txt", "some text"); },
            kOnlyErrors)),
    name_of_case);

}  // namespace tandem::formats_test
