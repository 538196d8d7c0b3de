#include "tandem/data/images/image_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/rank_env.h"
#include "tests/core/expect.h"
#include "tests/data/image_files.h"
#include "tests/parity/python.h"
#include "tests/scratch.h"

namespace tandem::image_folder_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

const Deadline::Milliseconds kTimeout = std::chrono::minutes(1);

// Restores an environment variable at its end.
class SavedVariable {
 public:
  explicit SavedVariable(const char* name) : name_(name), value_(get_env(name)) {}
  ~SavedVariable() {
    value_ ? setenv(name_, value_->c_str(), 1) : unsetenv(name_);
  }
  SavedVariable(const SavedVariable&) = delete;
  SavedVariable& operator=(const SavedVariable&) = delete;

 private:
  const char* const name_;
  const std::optional<std::string> value_;
};

// A folder for images, and a cache directory.
class ReadImageFolder : public testing::Test {
 protected:
  ReadImageFolder() {
    setenv("XDG_CACHE_HOME", (scratch_ / "cache").c_str(), 1);
    make_directories(folder_);
  }

  std::string make_class(const std::string& name) const {
    make_directories(folder_ + "/" + name);
    return folder_ + "/" + name + "/";
  }

  // Writes images of two classes, with 3 and 2 images of 6 x 8 pixels.
  void write_images() const {
    for (int i = 0; i < 5; ++i) {
      const auto path = make_class(i < 3 ? "cat" : "dog") + std::to_string(i) + ".png";
      write_png(path, draw_picture(6, 8, 3, i));
    }
  }

  ImageFolder read(const ImageSize& size = {}, int channels = 0) const {
    return read_image_folder(folder_, {size, channels}, Deadline(kTimeout));
  }

  std::string error_of_reading(const ImageSize& size = {}) const {
    return error_of<DataError>([&] { read(size); });
  }

  bool decodes(const ImageSize& size = {}) const;

  // Returns the path of the only file of the cache.
  std::string cache_file() const {
    const auto names = list_directory(scratch_ / "cache/tandem/images");
    EXPECT_EQ(names.size(), 1u);
    return scratch_ / ("cache/tandem/images/" + names.at(0));
  }

  const Scratch scratch_;
  const std::string folder_ = scratch_ / "data";
  const SavedVariable cache_home_{"XDG_CACHE_HOME"};
  const SavedVariable home_{"HOME"};
};

TEST_F(ReadImageFolder, ReadsPixelsLabelsAndNames) {
  write_images();
  const auto [listing, images] = read();
  const auto file = [](const char* path, int64_t label) {
    return AllOf(Field(&ImageFile::path, path), Field(&ImageFile::label, label));
  };
  EXPECT_THAT(listing.class_names, ElementsAre("cat", "dog"));
  EXPECT_THAT(
      listing.files,
      ElementsAre(
          file("cat/0.png", 0), file("cat/1.png", 0), file("cat/2.png", 0),
          file("dog/3.png", 1), file("dog/4.png", 1)));
  EXPECT_EQ(images.shape.channels, 3);
  EXPECT_EQ(images.shape.size, (ImageSize{6, 8}));
  ASSERT_EQ(images.pixels.size(), 5u * 3 * 6 * 8);
  for (int i = 0; i < 5; ++i) {
    const auto picture = draw_picture(6, 8, 3, i);
    for (size_t at = 0; at < 48; ++at) {
      const auto channel = static_cast<size_t>(i % 3);
      EXPECT_EQ(
          images.pixels[static_cast<size_t>(i) * 144 + channel * 48 + at],
          picture.pixels[3 * at + channel]);
    }
  }
}

TEST_F(ReadImageFolder, IsGrayOnlyIfAllImagesAreGray) {
  for (const char* name : {"0.png", "1.JPG", "2.jpeg"}) {
    const auto path = make_class("cat") + name;
    (std::string(name) == "0.png" ? write_png(path, draw_picture(6, 8, 1))
                                  : write_jpeg(path, draw_picture(6, 8, 1)));
  }
  EXPECT_EQ(read().images.shape.channels, 1);
  EXPECT_EQ(read({}, 3).images.shape.channels, 3);
  write_png(make_class("cat") + "3.png", draw_picture(6, 8, 3));
  EXPECT_EQ(read().images.shape.channels, 3);
  EXPECT_EQ(read().images.pixels.size(), 4u * 3 * 6 * 8);
  EXPECT_EQ(read({}, 1).images.shape.channels, 1);
}

TEST_F(ReadImageFolder, HasTheOrderOfTorchvision) {
  for (const char* name :
       {"b/x.png", "b/a-b/1.png", "b/a/c/2.png", "b/a/10.png", "b/a/9.png", "b/Z.png",
        "A/deep/er/0.png", "a b/0.png"}) {
    const auto path = folder_ + "/" + name;
    make_directories(parent_of(path));
    write_png(path, draw_picture(2, 2, 1));
  }
  // The loops of torchvision.datasets.folder.make_dataset().
  const auto result = checked(run_python(
      {"-c",
       "import os, sys\n"
       "os.chdir(sys.argv[1])\n"
       "for name in sorted(entry.name for entry in os.scandir()):\n"
       "    for root, _, files in sorted(os.walk(name, followlinks=True)):\n"
       "        for file in sorted(files):\n"
       "            print(os.path.join(root, file))\n",
       folder_}));
  std::string files;
  for (const auto& file : list_images(folder_).files) {
    files += file.path + "\n";
  }
  EXPECT_EQ(files, result.output);
}

TEST_F(ReadImageFolder, CountsIgnoredFilesInOneWarning) {
  write_images();
  std::ofstream(make_class("cat") + "notes.txt") << "text";
  std::ofstream(make_class("dog") + "a.gif") << "text";
  std::ofstream(make_class("dog") + ".hidden") << "text";
  make_class(".cache");
  write_png(folder_ + "/outside.png", draw_picture(6, 8, 3));
  testing::internal::CaptureStderr();
  EXPECT_EQ(list_images(folder_).files.size(), 5u);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("3 files in '"), HasSubstr("are ignored, such as '")));
}

TEST_F(ReadImageFolder, RejectsFoldersWithoutImages) {
  EXPECT_THAT(
      error_of_reading(), HasSubstr("contains no folders, expected one folder"));
  write_images();
  std::ofstream(make_class("bird") + "notes.txt") << "text";
  EXPECT_THAT(
      error_of_reading(),
      HasSubstr("class folder '" + folder_ + "/bird' contains no images, expected"));
  EXPECT_THROW(
      read_image_folder(scratch_ / "nothing", {{}, 0}, Deadline(kTimeout)), DataError);
}

TEST_F(ReadImageFolder, RejectsClassNamesThatAreNotUtf8) {
  write_images();
  std::filesystem::rename(folder_ + "/dog", folder_ + "/K\xf6ln");
  EXPECT_THAT(
      error_of_reading(),
      HasSubstr(
          "class folder 'K\\xf6ln' in '" + folder_ +
          "' has the byte f6 at position 2 of its name, expected UTF-8"));
}

TEST_F(ReadImageFolder, RejectsLinksThatLeadNowhereOrToAParent) {
  write_images();
  const auto link = make_class("dog") + "link.png";
  ASSERT_EQ(symlink("missing", link.c_str()), 0);
  EXPECT_THAT(error_of_reading(), HasSubstr("cannot read '" + link + "'"));
  unlink(link.c_str());
  ASSERT_EQ(symlink("..", (folder_ + "/dog/up").c_str()), 0);
  EXPECT_THAT(error_of_reading(), HasSubstr("a link to a folder that contains it"));
}

TEST_F(ReadImageFolder, NeedsASizeIfSizesDiffer) {
  write_images();
  write_png(folder_ + "/dog/5.png", draw_picture(8, 6, 3));
  EXPECT_THAT(
      error_of_reading(), AllOf(
                              HasSubstr("'" + folder_ + "/dog/5.png' has 8 x 6 pixels"),
                              HasSubstr("'" + folder_ + "/cat/0.png' has 6 x 8"),
                              HasSubstr("set --image-size")));
  const auto images = read({4, 5}).images;
  EXPECT_EQ(images.shape.size, (ImageSize{4, 5}));
  EXPECT_EQ(images.pixels.size(), 6u * 3 * 4 * 5);
}

TEST_F(ReadImageFolder, ReportsTheFirstWrongFile) {
  write_images();
  const auto torn = folder_ + "/cat/2.png";
  const auto whole = read_file(torn);
  std::ofstream(folder_ + "/dog/3.png") << "text";
  std::ofstream(torn) << whole.substr(0, whole.size() - 20);
  EXPECT_THAT(
      error_of_reading(),
      AllOf(HasSubstr("'" + torn + "'"), HasSubstr("complete PNG")));
  std::ofstream(torn) << whole;
  EXPECT_THAT(error_of_reading(), HasSubstr("'" + folder_ + "/dog/3.png' has other"));
  // No part of a cache remains.
  EXPECT_TRUE(list_directory(scratch_ / "cache/tandem/images").empty());
}

// Replaces a file's content but not its length and time.
void replace_secretly(const std::string& path, char value) {
  struct stat status {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  std::ofstream(path) << std::string(static_cast<size_t>(status.st_size), value);
  const timespec times[2] = {status.st_atim, status.st_mtim};
  ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

// Returns whether reading the images decodes them.
bool ReadImageFolder::decodes(const ImageSize& size) const {
  testing::internal::CaptureStderr();
  read(size);
  const auto text = testing::internal::GetCapturedStderr();
  return text.find("decoding 5 images") != std::string::npos;
}

TEST_F(ReadImageFolder, DecodesOnceIntoTheCache) {
  write_images();
  const auto first = read({4, 4}).images;
  EXPECT_FALSE(decodes({4, 4}));
  EXPECT_EQ(read({4, 4}).images.pixels, first.pixels);
  EXPECT_TRUE(decodes({5, 5})) << "another setting needs another cache";
  EXPECT_FALSE(decodes({5, 5}));
  ASSERT_EQ(utimensat(AT_FDCWD, (folder_ + "/cat/0.png").c_str(), nullptr, 0), 0);
  EXPECT_TRUE(decodes({4, 4})) << "a changed time means a changed file";
}

// As after rsync -t, cp -p, tar, or in another layer of a container.
TEST_F(ReadImageFolder, NoticesChangedFilesOfTheSameSizeAndTime) {
  write_images();
  read();
  const auto path = folder_ + "/dog/4.png";
  const auto whole = read_file(path);
  replace_secretly(path, 'x');
  EXPECT_THAT(error_of_reading(), HasSubstr("dog/4.png"));
  std::ofstream(path) << whole;
  EXPECT_TRUE(decodes());
  // Equal copies, so that only the inodes differ.
  std::filesystem::copy(folder_ + "/dog", folder_ + "/.other");
  std::filesystem::rename(folder_ + "/dog", folder_ + "/.old");
  std::filesystem::rename(folder_ + "/.other", folder_ + "/dog");
  EXPECT_TRUE(decodes());
  EXPECT_FALSE(decodes());
  // A rename changes no file of the folders.
  write_png(make_class(".new") + "0.png", draw_picture(6, 8, 3, 9));
  for (const int i : {1, 2}) {
    write_png(make_class(".new") + std::to_string(i) + ".png", draw_picture(6, 8, 3));
  }
  std::filesystem::rename(folder_ + "/cat", folder_ + "/.cat");
  std::filesystem::rename(folder_ + "/.new", folder_ + "/cat");
  EXPECT_TRUE(decodes());
  std::filesystem::rename(folder_ + "/cat", folder_ + "/.new");
  std::filesystem::rename(folder_ + "/.cat", folder_ + "/cat");
  EXPECT_TRUE(decodes());
}

TEST_F(ReadImageFolder, ReplacesTheCacheOfAChangedFolder) {
  write_images();
  read();
  const auto path = cache_file();
  write_png(folder_ + "/dog/5.png", draw_picture(6, 8, 3, 7));
  EXPECT_EQ(read().images.pixels.size(), 6u * 3 * 6 * 8);
  EXPECT_EQ(cache_file(), path);
}

// Writes a new file, because tests map the old file.
void replace(const std::string& path, const std::string& content) {
  unlink(path.c_str());
  std::ofstream(path) << content;
}

TEST_F(ReadImageFolder, ReplacesADamagedCache) {
  write_images();
  const auto pixels = read().images.pixels;
  const auto whole = read_file(cache_file());
  // A byte of the version, of the checksum, of the sizes and of the key.
  for (const size_t at : {size_t{3}, size_t{20}, size_t{81}, size_t{130}}) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] + 1);
    replace(cache_file(), damaged);
    EXPECT_EQ(read().images.pixels, pixels) << at;
    EXPECT_EQ(read_file(cache_file()), whole) << at;
  }
  for (const size_t size : {size_t{0}, size_t{100}, size_t{4096}, whole.size() - 1}) {
    replace(cache_file(), whole.substr(0, size));
    EXPECT_EQ(read().images.pixels, pixels) << size;
    EXPECT_EQ(read_file(cache_file()), whole) << size;
  }
}

TEST_F(ReadImageFolder, ReplacesACacheWithDamagedPixels) {
  write_images();
  const auto pixels = read().images.pixels;
  const auto whole = read_file(cache_file());
  for (const size_t at : {whole.size() - pixels.size(), whole.size() - 1}) {
    auto damaged = whole;
    damaged[at] = static_cast<char>(~damaged[at]);
    replace(cache_file(), damaged);
    testing::internal::CaptureStderr();
    EXPECT_EQ(read().images.pixels, pixels) << at;
    EXPECT_THAT(
        testing::internal::GetCapturedStderr(),
        HasSubstr(
            "decoding 5 images of " + folder_ + " into " + cache_file() +
            " (again, because the file is damaged)"));
    EXPECT_EQ(read_file(cache_file()), whole) << at;
  }
}

TEST_F(ReadImageFolder, RemovesThePartThatAKilledProcessLeft) {
  write_images();
  read();
  const auto path = cache_file();
  unlink(path.c_str());
  std::ofstream(path + ".tmp-1") << "part";
  read();
  EXPECT_EQ(cache_file(), path);
}

TEST_F(ReadImageFolder, KeepsPixelsInMemoryWithoutACache) {
  write_images();
  const auto pixels = read().images.pixels;
  testing::internal::CaptureStderr();
  setenv("XDG_CACHE_HOME", "/proc/nothing", 1);
  EXPECT_EQ(read().images.pixels, pixels);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("cannot be cached"), HasSubstr("/proc/nothing")));

  testing::internal::CaptureStderr();
  setenv("XDG_CACHE_HOME", "", 1);
  setenv("HOME", "", 1);
  EXPECT_EQ(read().images.pixels, pixels);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(), HasSubstr("HOME are not set, expected"));
}

TEST_F(ReadImageFolder, KeepsPixelsInMemoryIfTheCacheCannotGrow) {
  write_images();
  const auto pixels = read({40, 40}).images.pixels;
  unlink(cache_file().c_str());
  // As on a full disk, the file cannot get its length.
  signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit limit{4'000, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  testing::internal::CaptureStderr();
  const auto again = read({40, 40}).images;
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("cannot be cached"), HasSubstr("File too large")));
  EXPECT_EQ(again.pixels, pixels);
  EXPECT_TRUE(list_directory(scratch_ / "cache/tandem/images").empty());
}

TEST_F(ReadImageFolder, SeveralProcessesDecodeOnce) {
  write_images();
  const auto log = scratch_ / "log";
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(fork());
    if (children.back() == 0) {
      const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(fd, STDERR_FILENO);
      _exit(read().listing.files.size() == 5 ? 0 : 1);
    }
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const auto text = read_file(log);
  EXPECT_THAT(text, HasSubstr("decoding 5 images of " + folder_ + " into "));
  EXPECT_EQ(text.find("decoding"), text.rfind("decoding")) << text;
}

}  // namespace tandem::image_folder_test
