// What recipes say of their documents' own runs.

#include "tandem/config/tutorial_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tests/places.h"

namespace tandem::document_test {

TEST(Document, AFigureIsOfTheRecipesOwnRanksOrOfThoseOfItsPlaceInAList) {
  const auto folder = make_private_directory();
  replace_file(
      folder + "/x.toml",
      "[document]\nprocesses = [2, 4]\nminutes = [3, 1.5]\ntest_accuracy = 99\n");
  const auto figures = read_document(folder + "/x.toml");
  remove_all(folder);
  EXPECT_EQ(figures.seconds.at(2, 3), 180);
  EXPECT_EQ(figures.seconds.at(4, 3), 90);
  EXPECT_EQ(figures.seconds.at(3, 3), std::nullopt);
  EXPECT_EQ(figures.test_accuracy.at(3, 3), 99);
  EXPECT_EQ(figures.test_accuracy.at(2, 3), std::nullopt);
  EXPECT_EQ(figures.train_accuracy.at(3, 3), std::nullopt);
}

TEST(Document, EveryRecipesTablesCanBeRead) {
  const std::string folder = source_dir() + "/recipes";
  for (const auto& name : list_directory(folder)) {
    if (name.find(".toml") == std::string::npos) {
      continue;
    }
    const auto path = folder + "/" + name;
    EXPECT_NO_THROW(read_document(path)) << name;
    EXPECT_NO_THROW(read_scaling_recipe(path)) << name;
  }
  EXPECT_EQ(read_document(folder + "/000-single.toml").seconds.own, 52.3);
  EXPECT_EQ(read_document(folder + "/003-single.toml").seconds.own, 143.5);
  EXPECT_EQ(read_document(folder + "/003-single.toml").test_accuracy.own, 99.22);
  EXPECT_EQ(read_document(folder + "/003-ddp.toml").test_accuracy.own, 99.24);
  EXPECT_THAT(
      read_document(folder + "/002-ddp.toml").last_losses,
      testing::ElementsAre(
          0.23176565766334534, 0.3601338863372803, 0.33446624875068665,
          0.23122680187225342));
}

TEST(Document, ARecipeForGpusNamesTheOneToTakeWithoutAndNoBaseDoesForIt) {
  const std::string folder = source_dir() + "/recipes";
  EXPECT_EQ(read_without_gpu(folder + "/004-nccl-amp.toml"), folder + "/004-amp.toml");
  EXPECT_EQ(read_without_gpu(folder + "/004-amp.toml"), "");
  const auto own = make_private_directory();
  replace_file(own + "/x.toml", "base = \"" + folder + "/004-nccl-amp.toml\"\n");
  EXPECT_EQ(read_without_gpu(own + "/x.toml"), "");
  replace_file(own + "/x.toml", "without_gpu = 3\n");
  EXPECT_THROW(read_without_gpu(own + "/x.toml"), ConfigError);
  remove_all(own);
}

TEST(Document, FiguresOfDocument001AreThoseOfTheirNumberOfRanks) {
  const auto figures_of = [](const std::string& name) {
    return read_document(source_dir() + "/recipes/" + name + ".toml");
  };
  const auto averaging = figures_of("001-mpi-averaging");
  const auto hogwild = figures_of("001-hogwild");
  // Decimals, all of them: one is 11.84.
  const std::vector<double> minutes = {12.12, 9.22, 11.84, 11.25, 13.25};
  for (int ranks = 1; ranks <= 5; ++ranks) {
    EXPECT_NEAR(
        averaging.seconds.at(ranks, 2).value(),
        60 * minutes[static_cast<size_t>(ranks) - 1], 1e-9);
    // Its text shows Hogwild's time, and accuracies, of one rank only.
    EXPECT_EQ(hogwild.seconds.at(ranks, 2).has_value(), ranks == 1);
    EXPECT_EQ(averaging.train_accuracy.at(ranks, 2).has_value(), ranks == 1);
    EXPECT_EQ(hogwild.train_accuracy.at(ranks, 2).has_value(), ranks == 1);
  }
  EXPECT_NEAR(hogwild.seconds.at(1, 2).value(), 376.6, 0.05);
}

}  // namespace tandem::document_test
