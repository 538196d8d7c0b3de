// Unknown names and invalid values, as each command reports them. tests/app has the
// table of settings. Errors below that table come from ranks.

#include "bad_input.h"

namespace tandem::settings_test {

INSTANTIATE_TEST_SUITE_P(
    Names, BadInput,
    testing::Values(
        bad_input("Command", {"trian"}, 2, {"trian", "'train'"}),
        bad_input("Benchmark", {"bench", "stp"}, 2, {"'stp'", "'step'"}),
        bad_input("ModelToPrint", {"model", "nett"}, 2, {"MODEL", "'nett'", "'net'"}),
        bad_input("CustomModelToPrint", {"model", "custom"}, 2, {"MODEL", "net5x5"}),
        bad_input(
            "MissingNetworkToPrint", {"model", "@/nosuch.pt2"}, 1,
            {"@/nosuch.pt2", "check the path"}),
        bad_input(
            "NoModelToPrint", {"model"}, 2,
            {"MODEL is missing, expected net", "write tandem model MODEL"}),
        bad_input(
            "InputOfAModelToPrint", {"model", "net", "--input", "28x28"}, 2,
            {"--input", "'28x28'", "1x28x28"}),
        bad_input(
            "SmallInputOfAModelToPrint", {"model", "net", "--input", "1x4x4"}, 2,
            {"4x4", "too small"})),
    name_of_case);

// Returns a case with a setting that is refused with exit code 2.
BadInputCase setting(
    const std::string& name, const Arguments& flags,
    const std::vector<std::string>& says) {
  return {name, train(flags), 2, says, &with_data};
}

INSTANTIATE_TEST_SUITE_P(
    Settings, BadInput,
    testing::Values(
        setting("Flag", {"--modle", "net"}, {"--modle", "'--model'"}),
        bad_input(
            "MissingNetwork", train({"--model", "@/nosuch.pt2", "--nproc", "2"}), 1,
            {"model is '@/nosuch.pt2'", "check the path of --model"}, &with_data),
        bad_input(
            "TextAsNetwork", train({"--model", "@/text.pt2", "--nproc", "2"}), 1,
            {"'@/text.pt2' is damaged or not a zip archive of PyTorch"},
            data_and([](const Stage& stage) { stage.write("text.pt2", "hello"); })),
        bad_input(
            "BuiltInModelAsNetworkOfACheckpoint",
            {"eval", "--checkpoint", "@/checkpoint", "--model", "net"}, 2,
            {"--model is 'net'", "NET.pt2", "leave out --model"}, &with_checkpoint),
        bad_input(
            "NetworkOfABuiltInModel",
            {"eval", "--checkpoint", "@/checkpoint", "--model", "net.pt2"}, 2,
            {"'net.pt2'", "is simplenet", "leave out --model"}, &with_checkpoint),
        // -n counts hosts, as in tutorial 004.
        setting(
            "NodesWithoutPort", {"-n", "2"},
            {"set --master-port", "--nproc 2 instead of -n or --nnodes"}),
        setting(
            "OuterOptimizerWithoutAverages", {"--outer-optimizer", "nesterov"},
            {"outer_optimizer is nesterov", "averaging", "change --strategy"}),
        setting(
            "PlateauThatRaises", {"--schedule", "plateau", "--gamma", "2"},
            {"gamma is 2", "expected below 1", "lower --gamma"}),
        setting(
            "SequentialOnThreeRanks", {"--strategy", "sequential", "--nproc", "3"},
            {"sequential", "--nproc 1"}),
        setting(
            "StagesBeyondLayers", {"--strategy", "pipeline", "--nproc", "3"},
            {"3 stages", "the model has 1 (fc)", "--stages"}),
        setting(
            "StagesThatDoNotDivideThreads",
            {"--strategy", "model_parallel", "--stages", "3", "--nproc", "4",
             "--rank-type", "thread"},
            {"3 stages", "4 ranks", "1 x 4, 2 x 2, 4 x 1"}),
        setting(
            "StatisticsOfAveragedRanks",
            {"--strategy", "averaging", "--buffers", "sync", "--model", "convnet_bn"},
            {"--buffers sync", "averaging"}),
        setting(
            "StatisticsInCompiledLayers",
            {"--executor", "onednn", "--buffers", "sync", "--model", "convnet_bn"},
            {"--buffers sync", "--executor eager"}),
        setting(
            "FrozenPatternWithoutMatch",
            {"--model", "net", "--freeze", "conv1.*,convv2.*", "--nproc", "3"},
            {"'convv2.*'", "did you mean 'conv2.*'?", "change --freeze"}),
        setting(
            "NormalizedClasses", {"--target-mean", "auto", "--nproc", "2"},
            {"--target-mean", "are classes, expected numbers; leave both out"}),
        setting(
            "NormalizedProbabilities", {"--target-std", "2", "--loss", "bce"},
            {"target_mean is 0.0 and target_std is 2.0", "bce"}),
        setting(
            "DefaultMeanOfTargets", {"--target-mean", "default"},
            {"'default'", "auto"}),
        setting(
            "AllFrozen", {"--freeze", "*", "--nproc", "2"},
            {"all 2 parameters are frozen", "--freeze"}),
        bad_input(
            "SkippedPatternWithoutMatch",
            train({"--init", "@/checkpoint", "--init-skip", "fd.*", "--nproc", "3"}), 2,
            {"init_skip has the pattern 'fd.*'", "'fc.*'"}, &with_checkpoint),
        // Two ranks: half of the samples must not fit into the memory of a rank.
        in_shell(
            R"(ulimit -d 600000; exec "$@")",
            bad_input(
                "LargerThanMemory",
                train({"--nproc", "2", "--model", "net", "--out", "@/out"}), 1,
                {"[memory]", "--batch-size", "--model"},
                [](const Stage& stage) { stage.data("data", 700, 700); }))),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Recipe, BadInput,
    testing::Values(
        bad_input(
            "WrongType", {"train", "@/r.toml"}, 2, {"@/r.toml:2", "epochs", "three"},
            [](const Stage& stage) {
              stage.write("r.toml", "model = \"net\"\nepochs = \"three\"\n");
            }),
        bad_input(
            "Missing", {"train", "@/nosuch.toml"}, 1,
            {"@/nosuch.toml", "check the path"})),
    name_of_case);

}  // namespace tandem::settings_test
