// `tandem data fetch` with invalid names, folders and mirrors.

#include "bad_input.h"

namespace tandem::fetch_test {

const std::vector<std::string> kFetch = {"data", "fetch", "mnist"};
const Variables kOwnMirrors = {{"TANDEM_MIRRORS", "@/m.toml"}};

Prepare mirrors(const std::string& text) {
  return [=](const Stage& stage) { stage.write("m.toml", text); };
}

INSTANTIATE_TEST_SUITE_P(
    Fetch, BadInput,
    testing::Values(
        bad_input(
            "UnknownDataSet", {"data", "fetch", "fashonmnist"}, 2,
            {"'fashonmnist'", "did you mean 'fashion-mnist'"}),
        bad_input(
            "DigitsToFetch", {"data", "fetch", "digits"}, 2,
            {"draws the digits itself"}),
        bad_input("NothingToFetch", {"data", "fetch"}, 2, {"name"}),
        bad_input("NearestAction", {"data", "fech", "mnist"}, 2, {"'fech'", "'fetch'"}),
        bad_input(
            "FetchIntoAFile", {"data", "fetch", "mnist", "--to", "@/file"}, 1,
            {"@/file", "another path"},
            [](const Stage& stage) { stage.write("file", "x"); }),
        on_disk(
            "ro", bad_input(
                      "FetchOntoAReadOnlyDisk",
                      {"data", "fetch", "mnist", "--to", "@/disk/mnist"}, 1,
                      {"@/disk/mnist", "Read-only"})),
        bad_input(
            "NoCacheToFetchInto", kFetch, 1, {"@/file", "another path"},
            [](const Stage& stage) { stage.write("file", "x"); },
            {{"XDG_CACHE_HOME", "@/file"}}),
        bad_input(
            "MirrorsFileMissing", kFetch, 1, {"cannot read '@/m.toml'"}, {},
            kOwnMirrors),
        bad_input(
            "MirrorsFileIsNoToml", kFetch, 2, {"@/m.toml:2: "},
            mirrors("[mnist]\nurls = [\n"), kOwnMirrors),
        bad_input(
            "MirrorsFileTooLarge", kFetch, 1, {"@/m.toml", "more than 65536 bytes"},
            mirrors(std::string(70'000, '#')), kOwnMirrors),
        bad_input(
            "MirrorsWithoutAddresses", kFetch, 2,
            {"@/m.toml:1: urls is missing", "expected a list"}, mirrors("[mnist]\n"),
            kOwnMirrors),
        bad_input(
            "MirrorsWithoutASha256", kFetch, 2,
            {"@/m.toml:3: sha256 is missing", "64 hex digits"},
            mirrors("[mnist]\nurls = [\"/m\"]\nfiles = [{name = \"f\", size = 1}]\n"),
            kOwnMirrors),
        bad_input(
            "MirrorsOfNoSet", {"data", "fetch", "kmnits"}, 2,
            {"@/m.toml:1: kmnits has no files", "did you mean 'kmnist'"},
            mirrors("[kmnits]\nurls = [\"/m\"]\n"), kOwnMirrors),
        bad_input(
            "MnistIsMissing", {"train", "--data", "mnist"}, 1,
            {"MNIST is not in /nonexistent/mnist or /nonexistent or "
             "@/cache/tandem/mnist",
             "run tandem data fetch mnist, or add --fetch"}),
        bad_input(
            "CifarIsMissingForFourRanks",
            {"train", "--data", "cifar-10", "--nproc", "4"}, 1,
            {"CIFAR-10 is not in", "run tandem data fetch cifar-10, or add --fetch"})),
    name_of_case);

}  // namespace tandem::fetch_test
