// The keys of recipes that are not settings: figures of tutorials, the recipe to use
// without a GPU, and lists of recipes.

#include "tandem/config/tutorial_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tests/places.h"

namespace tandem::tutorial_figures_test {

const std::string kRecipes = source_dir() + "/recipes/";

class OwnRecipe : public testing::Test {
 protected:
  ~OwnRecipe() override {
    remove_all(folder_);
  }

  std::string write(const std::string& text) const {
    replace_file(folder_ + "/x.toml", text);
    return folder_ + "/x.toml";
  }

 private:
  const std::string folder_ = make_private_directory();
};

using TutorialFigures = OwnRecipe;
using WithoutGpu = OwnRecipe;

TEST_F(TutorialFigures, BelongToTheRecipesRanksOrToThoseListed) {
  const auto figures = read_tutorial_figures(
      write("[tutorial]\nnumber = \"003\"\nprocesses = [2, 4]\nminutes = [3, 1.5]\n"
            "test_accuracy = 99\n"));
  EXPECT_EQ(figures.seconds.at(2, 3), 180);
  EXPECT_EQ(figures.seconds.at(4, 3), 90);
  EXPECT_EQ(figures.seconds.at(3, 3), std::nullopt);
  EXPECT_EQ(figures.test_accuracy.at(3, 3), 99);
  EXPECT_EQ(figures.test_accuracy.at(2, 3), std::nullopt);
  EXPECT_EQ(figures.train_accuracy.at(3, 3), std::nullopt);
}

TEST_F(TutorialFigures, AreReadFromTheOldTableToo) {
  EXPECT_EQ(
      read_tutorial_figures(write("[document]\nseconds = 52.3\n")).seconds.own, 52.3);
  // A number without a table has no figures.
  EXPECT_EQ(
      read_tutorial_figures(write("tutorial = \"003\"\n")).seconds.own, std::nullopt);
}

TEST_F(TutorialFigures, OfOtherTypesAreErrors) {
  for (const char* text :
       {"tutorial = 3\n", "[tutorial]\nnumber = 3\n", "document = \"003\"\n"}) {
    EXPECT_THROW(read_tutorial_figures(write(text)), ConfigError) << text;
  }
}

TEST_F(TutorialFigures, OfAllRecipesCanBeRead) {
  for (const auto& name : list_directory(kRecipes)) {
    if (name.find(".toml") == std::string::npos) {
      continue;
    }
    EXPECT_NO_THROW(read_tutorial_figures(kRecipes + name)) << name;
    EXPECT_NO_THROW(read_scaling_recipe(kRecipes + name)) << name;
  }
  EXPECT_EQ(read_tutorial_figures(kRecipes + "single-process.toml").seconds.own, 52.3);
  const auto single = read_tutorial_figures(kRecipes + "single-net.toml");
  EXPECT_EQ(single.seconds.own, 143.5);
  EXPECT_EQ(single.test_accuracy.own, 99.22);
  EXPECT_EQ(read_tutorial_figures(kRecipes + "ddp.toml").test_accuracy.own, 99.24);
  EXPECT_THAT(
      read_tutorial_figures(kRecipes + "ddp-linear.toml").last_losses,
      testing::ElementsAre(
          0.23176565766334534, 0.3601338863372803, 0.33446624875068665,
          0.23122680187225342));
}

TEST_F(WithoutGpu, IsAKeyOfTheRecipeItselfAndNotOfItsBase) {
  EXPECT_EQ(read_without_gpu(kRecipes + "amp-nccl.toml"), kRecipes + "amp-fp16.toml");
  EXPECT_EQ(read_without_gpu(kRecipes + "amp-fp16.toml"), "");
  EXPECT_EQ(read_without_gpu(write("base = \"" + kRecipes + "amp-nccl.toml\"\n")), "");
  EXPECT_THROW(read_without_gpu(write("without_gpu = 3\n")), ConfigError);
}

TEST_F(TutorialFigures, OfTutorial001BelongToTheirNumberOfRanks) {
  const auto averaging = read_tutorial_figures(kRecipes + "local-sgd-mpi.toml");
  const auto hogwild = read_tutorial_figures(kRecipes + "hogwild.toml");
  const std::vector<double> minutes = {12.12, 9.22, 11.84, 11.25, 13.25};
  for (int ranks = 1; ranks <= 5; ++ranks) {
    EXPECT_NEAR(
        averaging.seconds.at(ranks, 2).value(),
        60 * minutes[static_cast<size_t>(ranks) - 1], 1e-9);
    // The tutorial prints the other figures for one rank only.
    EXPECT_EQ(hogwild.seconds.at(ranks, 2).has_value(), ranks == 1);
    EXPECT_EQ(averaging.train_accuracy.at(ranks, 2).has_value(), ranks == 1);
    EXPECT_EQ(hogwild.train_accuracy.at(ranks, 2).has_value(), ranks == 1);
  }
  EXPECT_NEAR(hogwild.seconds.at(1, 2).value(), 376.6, 0.05);
}

}  // namespace tandem::tutorial_figures_test
