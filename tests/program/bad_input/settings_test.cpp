// Names, numbers and recipes that cannot be.

#include "bad_input.h"

namespace tandem::settings_test {

namespace fs = std::filesystem;

// A wrong value of a setting, refused with exit code 2.
BadInputCase setting(
    const std::string& name, const std::vector<std::string>& flags,
    const std::vector<std::string>& says) {
  return {name, train(flags), 2, says, &with_data};
}

INSTANTIATE_TEST_SUITE_P(
    Names, BadInput,
    testing::Values(
        BadInputCase{"Command", {"trian"}, 2, {"trian", "'train'"}},
        BadInputCase{"Benchmark", {"bench", "stp"}, 2, {"'stp'", "'step'"}},
        BadInputCase{
            "ModelToPrint", {"model", "nett"}, 2, {"MODEL", "'nett'", "'net'"}},
        BadInputCase{"CustomModelToPrint", {"model", "custom"}, 2, {"MODEL", "net5x5"}},
        BadInputCase{"NoModelToPrint", {"model"}, 2, {"model is required"}},
        BadInputCase{
            "InputOfAModelToPrint",
            {"model", "net", "--input", "28x28"},
            2,
            {"--input", "'28x28'", "1x28x28"}},
        BadInputCase{
            "SmallInputOfAModelToPrint",
            {"model", "net", "--input", "1x4x4"},
            2,
            {"4x4", "too small"}},
        setting("Flag", {"--modle", "net"}, {"--modle", "'--model'"}),
        setting("Model", {"--model", "nett"}, {"nett", "'net'"}),
        setting(
            "ModelForThreeRanks", {"--model", "nett", "--nproc", "3"},
            {"nett", "'net'"}),
        setting(
            "ModelForThreads", {"--model", "nett", "--nproc", "4", "--ranks", "thread"},
            {"nett", "'net'"}),
        setting(
            "Strategy", {"--strategy", "data_paralel"},
            {"data_paralel", "'data_parallel'"}),
        setting("Optimizer", {"--optimizer", "sdg"}, {"sdg", "'sgd'"}),
        setting("Schedule", {"--schedule", "setp"}, {"setp", "'step'"}),
        setting("Sync", {"--sync", "overlp"}, {"overlp", "'overlap'"}),
        setting("Buffers", {"--buffers", "brodcast"}, {"brodcast", "'broadcast'"}),
        setting("Executor", {"--executor", "egar"}, {"egar", "'eager'"}),
        setting("Backend", {"--backend", "glo"}, {"glo", "'gloo'"}),
        setting(
            "BackendForFourRanks", {"--backend", "glo", "--nproc", "4"},
            {"glo", "'gloo'"}),
        setting("Uneven", {"--uneven", "jion"}, {"jion", "'join'"}),
        setting("DriftCheck", {"--drift-check", "resnyc"}, {"resnyc", "'resync'"}),
        setting("Precision", {"--precision", "fp23"}, {"fp23", "'fp32'"}),
        setting("Device", {"--device", "cpuu"}, {"cpuu", "'cpu'"}),
        setting("DeviceWithoutNumber", {"--device", "cuda:"}, {"cuda:", "cuda:0"}),
        setting("DeviceOfNoNumber", {"--device", "cuda:-1"}, {"cuda:-1", "cuda:0"}),
        setting("CpuOfANumber", {"--device", "cpu:0"}, {"cpu:0", "'cpu'"}),
        setting(
            "NcclOnCpus", {"--backend", "nccl", "--device", "cpu"},
            {"backend nccl", "device is cpu", "--backend auto"}),
        setting(
            "NcclOnCpusForThreeRanks",
            {"--backend", "nccl", "--device", "cpu", "--nproc", "3"},
            {"backend nccl", "device is cpu", "--backend auto"}),
        setting("Loss", {"--loss", "nnl"}, {"nnl", "'nll'"}),
        setting(
            "LossOfNumbers", {"--loss", "mse"},
            {"loss mse", "target here is a class", "--loss auto, cross_entropy, nll"}),
        setting(
            "LossOfNumbersForThreeRanks", {"--loss", "mse", "--nproc", "3"},
            {"loss mse", "--loss auto"}),
        setting(
            "LossOfLogProbabilities", {"--loss", "nll"},
            {"loss nll", "simplenet", "--loss cross_entropy"}),
        setting(
            "LossOfLogProbabilitiesForThreeRanks", {"--loss", "nll", "--nproc", "3"},
            {"loss nll", "simplenet", "--loss cross_entropy"}),
        setting(
            "LossOfLogProbabilitiesForThreads",
            {"--loss", "nll", "--nproc", "3", "--ranks", "thread"},
            {"loss nll", "simplenet", "--loss cross_entropy"}),
        setting("Reduction", {"--reduction", "men"}, {"men", "'mean'"}),
        setting("Share", {"--share", "scater"}, {"scater", "'scatter'"}),
        setting("CommHook", {"--comm-hook", "fp61"}, {"fp61", "'fp16'"}),
        setting(
            "AverageEvery", {"--average-every", "epch"}, {"'epch'", "epoch or end"}),
        setting(
            "PipelineSchedule", {"--pipeline-schedule", "gpip"}, {"gpip", "'gpipe'"}),
        setting(
            "ServerUpdates", {"--server-updates", "asynchronus"},
            {"asynchronus", "'asynchronous'"}),
        setting("LossScale", {"--loss-scale", "dynmic"}, {"dynmic", "dynamic"}),
        setting(
            "OwnModel", {"--model", "custom"}, {"examples/custom_model", "--model"}),
        setting("Launcher", {"--launcher", "mpirn"}, {"mpirn", "'mpirun'"}),
        setting("LogRanks", {"--log-ranks", "hots"}, {"hots", "'host'"}),
        setting(
            "OtherName", {"--num-machine", "1"}, {"--num-machine", "'--num-machines'"}),
        setting(
            "TwoNamesOfOneSetting", {"--micro-batches", "2", "--accumulate", "2"},
            {"--micro-batches and --accumulate", "leave one out"}),
        setting(
            "TwoNamesOfOneSettingWithOneDash", {"-nr=0", "--machine-id=0"},
            {"-nr and --machine-id", "leave one out"}),
        setting("OtherNameTwice", {"-g", "1", "-g", "2"}, {"more than once"}),
        setting("Ranks", {"--ranks", "thred"}, {"thred", "'thread'"}),
        setting("SetKey", {"--set", "bach_size=3"}, {"bach_size", "'batch_size'"}),
        setting(
            "SetWithoutValue", {"--set", "batch_size"}, {"batch_size", "key=value"}),
        setting("FlagTwice", {"--lr", "1", "--lr", "2"}, {"--lr", "more than once"}),
        setting("FlagWithoutValue", {"--lr"}, {"--lr", "has no value"}),
        setting("ArgumentTooMany", {"a.toml", "b.toml"}, {"b.toml", "--help"})),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Stages, BadInput,
    testing::Values(
        setting(
            "MoreThanLayers", {"--strategy", "pipeline", "--nproc", "3"},
            {"3 stages", "the model has 1 (fc)", "--stages"}),
        setting(
            "CutAtNoLayer",
            {"--model", "net", "--strategy", "pipeline", "--nproc", "2", "--cut",
             "fc3"},
            {"--cut fc3", "did you mean 'fc", "choose among conv2, fc1, fc2"}),
        setting(
            "CutAtTheFirstLayer",
            {"--model", "net", "--strategy", "model_parallel", "--nproc", "2", "--cut",
             "conv1"},
            {"--cut conv1 leaves a stage without layers", "conv1"}),
        setting(
            "CutsForOtherStages",
            {"--model", "net", "--strategy", "pipeline", "--nproc", "4", "--cut",
             "conv2,fc1"},
            {"--cut conv2,fc1 makes 3 stages, but there are 4", "--stages"}),
        setting(
            "CutOfReplicas", {"--cut", "fc1"},
            {"cut is fc1, but strategy data_parallel has none", "--cut"}),
        setting(
            "DoNotMultiply",
            {"--strategy", "pipeline", "--stages", "2", "--replicas", "3", "--nproc",
             "4"},
            {"2 stages x 3 replicas", "4 ranks", "1 x 4, 2 x 2, 4 x 1"}),
        setting(
            "DoNotDivideThreads",
            {"--strategy", "model_parallel", "--stages", "3", "--nproc", "4", "--ranks",
             "thread"},
            {"3 stages", "4 ranks", "1 x 4, 2 x 2, 4 x 1"}),
        setting(
            "OfDataParallel", {"--stages", "2", "--nproc", "4"},
            {"data_parallel", "--strategy pipeline", "--stages"})),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Numbers, BadInput,
    testing::Values(
        setting("NotUtf8", {"--name", "\xff\xfe"}, {"name", "not UTF-8", "--name"}),
        setting(
            "CheckpointMinutes", {"--checkpoint-minutes", "-1"},
            {"checkpoint_minutes is -1", "0 to"}),
        setting("BatchOfZero", {"--batch-size", "0"}, {"batch_size is 0", "1 to"}),
        setting("BatchNegative", {"--batch-size", "-1"}, {"batch_size is -1", "1 to"}),
        setting(
            "BatchAbsurd", {"--batch-size", "1000000000000000000"},
            {"batch_size is 1000000000000000000", "to 16777216", "--batch-size"}),
        setting(
            "BatchBeyondAnyNumber", {"--batch-size", "99999999999999999999"},
            {"--batch-size", "99999999999999999999"}),
        setting(
            "EvaluationBatch", {"--eval-batch-size", "0"}, {"eval_batch_size is 0"}),
        setting("EvaluationNever", {"--eval-every", "0"}, {"eval_every is 0"}),
        setting("Epochs", {"--epochs", "-1"}, {"epochs is -1", "0 to"}),
        setting("EpochsAsText", {"--epochs", "x"}, {"--epochs", "'x'", "whole number"}),
        setting("EpochsAsFraction", {"--epochs", "1.5"}, {"'1.5'", "whole number"}),
        setting("Limit", {"--limit", "-5"}, {"limit is -5", "0 to"}),
        setting("Nproc", {"--nproc", "0"}, {"nproc is '0'", "1 to 4096"}),
        setting("NprocNegative", {"--nproc", "-1"}, {"nproc is -1", "1 to 4096"}),
        setting("NprocAbsurd", {"--nproc", "100000"}, {"100000", "1 to 4096"}),
        setting("NprocByOtherName", {"-g0"}, {"nproc is '0'", "1 to 4096"}),
        setting(
            "NodesByOtherName", {"-n", "two"}, {"--nnodes", "'two'", "whole number"}),
        setting("Patience", {"--patience", "-1"}, {"patience is -1", "--patience"}),
        setting("MinDelta", {"--min-delta", "-1"}, {"min_delta is -1", "--min-delta"}),
        setting("Stages", {"--stages", "-1"}, {"stages is -1", "--stages"}),
        setting("Replicas", {"--replicas", "5000"}, {"replicas is 5000", "to 4096"}),
        setting(
            "Staleness", {"--max-staleness", "-1"},
            {"max_staleness is -1", "--max-staleness"}),
        setting(
            "AverageEveryZeroSteps", {"--average-every", "0"},
            {"average_every", "'0'"}),
        setting(
            "LossScaleNegative", {"--loss-scale", "-2"},
            {"loss_scale is -2", "--loss-scale"}),
        setting("BucketBytes", {"--bucket-bytes", "0"}, {"bucket_bytes is 0"}),
        setting(
            "BucketBytesForThreeRanks", {"--bucket-bytes", "0", "--nproc", "3"},
            {"bucket_bytes is 0"}),
        BadInputCase{
            "BenchmarkSteps",
            {"bench", "step", "--steps", "0"},
            2,
            {"--steps", "'0'", "1 to"}},
        setting("Accumulate", {"--accumulate", "0"}, {"accumulate is 0", "1 to"}),
        setting(
            "AccumulateAbsurd", {"--accumulate", "1000000000000"},
            {"accumulate is 1000000000000", "to 16384"}),
        setting("LrNan", {"--lr", "nan"}, {"--lr", "'nan'", "a number"}),
        setting("LrInf", {"--lr", "inf"}, {"--lr", "'inf'", "a number"}),
        setting("LrNegative", {"--lr", "-2"}, {"lr is -2", "default", "--lr"}),
        setting("LrAsText", {"--lr", "fast"}, {"--lr", "'fast'", "a number"}),
        setting(
            "Momentum", {"--optimizer", "sgd", "--momentum", "1.5"},
            {"momentum is 1.5", "0 to 1", "--momentum"}),
        setting(
            "MomentumOfAnotherOptimizer", {"--momentum", "0.9"},
            {"adadelta", "momentum"}),
        setting(
            "Beta", {"--optimizer", "adam", "--beta1", "1"}, {"beta1 is 1", "below 1"}),
        setting("Gamma", {"--gamma", "-1"}, {"gamma is -1", "--gamma"}),
        setting("StepSize", {"--step-size", "0"}, {"step_size is 0", "1 to"}),
        setting("Warmup", {"--warmup-steps", "-1"}, {"warmup_steps is -1"}),
        setting("Std", {"--std", "0"}, {"std is 0", "--std"}),
        setting("ClipNorm", {"--clip-norm", "-1"}, {"clip_norm is -1"}),
        setting("Timeout", {"--timeout-seconds", "0"}, {"timeout_seconds is 0"}),
        setting("TimeoutAbsurd", {"--timeout-seconds", "1e300"}, {"timeout_seconds"}),
        setting("Port", {"--nproc", "3", "--master-port", "99999"}, {"to 65535"}),
        setting("Nodes", {"--nnodes", "1000000000"}, {"nnodes is", "to 65536"}),
        setting("NodeRank", {"--node-rank", "3"}, {"node_rank is 3", "--nnodes"}),
        // Two ranks: a batch of half the samples must be too large for each.
        BadInputCase{
            "LargerThanMemory",
            train({"--nproc", "2", "--model", "net", "--out", "@/out"}),
            1,
            {"[memory]", "--batch-size", "--model"},
            [](const Stage& stage) { stage.data("data", 700, 700); },
            {},
            R"(ulimit -d 600000; exec "$@")"}),
    name_of_case);

// One row for each line that a template makes.
INSTANTIATE_TEST_SUITE_P(
    Templates, BadInput,
    testing::Values(
        setting(
            "StartLine", {"--start-line", "{shar}"},
            {"start_line is '{shar}'", "share"}),
        setting("LogLine", {"--log-line", "{loss"}, {"log_line is '{loss'", "loss"}),
        setting(
            "LogLineOfNumbers", {"--log-line", "{loss:d}"}, {"log_line", "'{loss:d}'"}),
        setting("EpochLine", {"--epoch-line", "{}"}, {"epoch_line is '{}'", "a name"}),
        setting(
            "ConvergedLine", {"--converged-line", "rank }"},
            {"converged_line is 'rank }'"}),
        setting("TestLine", {"--test-line", "{0}"}, {"test_line is '{0}'", "accuracy"}),
        setting(
            "EndLine", {"--end-line", "{secs}"}, {"end_line is '{secs}'", "seconds"}),
        setting(
            "ForFourRanks", {"--log-line", "{loss", "--nproc", "4"},
            {"log_line is '{loss'"})),
    name_of_case);

INSTANTIATE_TEST_SUITE_P(
    Contradictions, BadInput,
    testing::Values(
        setting(
            "ThreadsOnTwoHosts", {"--ranks", "thread", "--nnodes", "2"},
            {"2 hosts", "--ranks process"}),
        setting(
            "HogwildOnTwoHosts",
            {"--strategy", "hogwild", "--nnodes", "2", "--master-port", "4512"},
            {"share memory", "2 hosts", "--nnodes 1"}),
        setting(
            "CommHookWithoutBuckets",
            {"--strategy", "averaging", "--comm-hook", "fp16"},
            {"averaging", "leave out --comm-hook"}),
        setting(
            "LossScaleOfAveragedRanks",
            {"--strategy", "averaging", "--loss-scale", "dynamic"},
            {"--loss-scale", "averaging"}),
        setting(
            "StatisticsOfAveragedRanks",
            {"--strategy", "averaging", "--buffers", "sync", "--model", "convnet_bn"},
            {"--buffers sync", "averaging"}),
        setting(
            "StatisticsInCompiledLayers",
            {"--executor", "onednn", "--buffers", "sync", "--model", "convnet_bn"},
            {"--buffers sync", "--executor eager"}),
        setting(
            "CompiledLayersInFloat64", {"--executor", "onednn", "--precision", "fp64"},
            {"float32", "--executor eager"}),
        setting(
            "SequentialOnThreeRanks", {"--strategy", "sequential", "--nproc", "3"},
            {"sequential", "--nproc 1"}),
        setting(
            "GlooForThreads", {"--ranks", "thread", "--backend", "gloo"},
            {"gloo", "thread", "--backend auto"}),
        setting(
            "ThreadBackendForProcesses", {"--backend", "thread", "--nproc", "4"},
            {"thread", "process", "--backend auto"}),
        setting(
            "SharedMemoryOverHosts",
            {"--backend", "shm", "--nnodes", "2", "--master-port", "29411"},
            {"shm", "one host", "--backend auto"}),
        setting(
            "DividedBatchOfAveragedRanks",
            {"--strategy", "averaging", "--divide-batch", "--nproc", "3"},
            {"--divide-batch", "averaging", "data_parallel or sequential"}),
        setting(
            "DividedBatchOfScatteredData", {"--share", "scatter", "--divide-batch"},
            {"share is scatter", "--share sampler"}),
        setting(
            "DividedBatchThatDropsSamples", {"--uneven", "drop", "--divide-batch"},
            {"uneven is drop", "divide_batch", "leave out"}),
        setting("ResumeAutoWithoutOut", {"--resume", "auto"}, {"--out"}),
        setting("NodesWithoutPort", {"--nnodes", "2"}, {"--master-port"})),
    name_of_case);

// A recipe "@/r.toml" of this text.
BadInputCase recipe(
    const std::string& name, const std::string& text, int code,
    const std::vector<std::string>& says) {
  return {name, {"train", "@/r.toml"}, code, says, [=](const Stage& stage) {
            stage.write("r.toml", text);
          }};
}

INSTANTIATE_TEST_SUITE_P(
    Recipe, BadInput,
    testing::Values(
        recipe(
            "WrongType", "model = \"net\"\nepochs = \"three\"\n", 2,
            {"@/r.toml:2", "epochs", "three"}),
        recipe("NumberForAText", "model = 3\n", 2, {"@/r.toml:1", "model", "quotes"}),
        recipe("Fraction", "\nepochs = 1.5\n", 2, {"@/r.toml:2", "whole number"}),
        recipe("ListForANumber", "epochs = [1, 2]\n", 2, {"@/r.toml:1", "epochs"}),
        recipe("NotANumber", "lr = nan\n", 2, {"@/r.toml:1", "lr", "a number"}),
        recipe(
            "UnknownKey", "format_version = 1\nmodel = \"net\"\nepoch = 3\n", 2,
            {"@/r.toml:3", "'epoch'", "'epochs'"}),
        recipe("OutOfRange", "batch_size = 0\n", 2, {"batch_size is 0", "1 to"}),
        recipe("NotToml", "this is no recipe\n", 2, {"@/r.toml:1"}),
        recipe("NotText", std::string("\xff\xfe\0\1", 4), 2, {"@/r.toml:1"}),
        recipe("KeyTwice", "epochs = 1\nepochs = 2\n", 2, {"@/r.toml:2", "'epochs'"}),
        recipe(
            "NewerFormat", "format_version = 2\n", 2,
            {"@/r.toml:1", "format_version is 2", "reads 1", "update tandem"}),
        recipe(
            "MissingBase", "base = \"nosuch.toml\"\n", 1, {"@/nosuch.toml", "No such"}),
        recipe("BaseOfItself", "base = \"r.toml\"\n", 2, {"@/r.toml:1", "'r.toml'"}),
        BadInputCase{
            "LoopOfTwo",
            {"train", "@/a.toml", "--nproc", "4"},
            2,
            {"@/b.toml:2", "'a.toml'"},
            [](const Stage& stage) {
              stage.write("a.toml", "base = \"b.toml\"\n");
              stage.write("b.toml", "epochs = 1\nbase = \"a.toml\"\n");
            }},
        BadInputCase{
            "Missing",
            {"train", "@/nosuch.toml"},
            1,
            {"@/nosuch.toml", "check the path"}},
        BadInputCase{
            "Directory",
            {"train", "@/folder"},
            1,
            {"@/folder", "name a file in it"},
            [](const Stage& stage) { fs::create_directories(stage / "folder"); }}),
    name_of_case);

}  // namespace tandem::settings_test
