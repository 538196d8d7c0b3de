// Ranks that do not fit together or do not find each other, and `tandem launch`.

#include "bad_input.h"

#include <sys/stat.h>

namespace tandem::ranks_test {

// Runs one rank, as another launcher starts it. "train" runs on "@/data".
BadInputCase rank(
    const std::string& name, const Variables& variables, int code,
    const std::vector<std::string>& says, const Arguments& flags = {}) {
  return {name, train(flags), code, says, &with_data, variables};
}

INSTANTIATE_TEST_SUITE_P(
    World, BadInput,
    testing::Values(
        rank(
            "SizeDiffersFromNproc", {{"RANK", "0"}, {"WORLD_SIZE", "3"}}, 2,
            {"4 ranks", "WORLD_SIZE is 3", "--nproc"}, {"--nproc", "4"}),
        rank(
            "RankBeyondSize", {{"RANK", "3"}, {"WORLD_SIZE", "3"}}, 2,
            {"RANK is '3'", "0 to 2"}),
        rank(
            "StoreOfUnknownForm",
            {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"TANDEM_STORE", "rubbish"}}, 2,
            {"'rubbish'", "unix:PATH"})),
    name_of_case);

Variables meeting(
    const std::string& own_rank, const std::string& host, const std::string& port) {
  return {
      {"RANK", own_rank},
      {"WORLD_SIZE", "2"},
      {"MASTER_ADDR", host},
      {"MASTER_PORT", port}};
}

const std::vector<std::string> kSoon = {"--timeout-seconds", "1"};
// For ranks on several hosts in tests that are not about tokens.
const std::vector<std::string> kOpen = {"--timeout-seconds", "1", "--insecure"};
const std::string kNoHost = "no-such-host.invalid";

std::vector<std::string> host(
    const std::string& number, const std::string& address, const std::string& port,
    const Arguments& more = {}) {
  return train(with(
      {"--nproc", "2", "--nnodes", "2", "--node-rank", number, "--master-addr", address,
       "--master-port", port, "--timeout-seconds", "1", "--out", "@/out"},
      more));
}

INSTANTIATE_TEST_SUITE_P(
    Meeting, BadInput,
    testing::Values(
        rank(
            "PortTaken", meeting("0", "127.0.0.1", "@port"), 2,
            {"127.0.0.1:@port", "already in use", "choose another port"}, kSoon),
        rank(
            "SomebodyElseAnswers", meeting("1", "127.0.0.1", "@port"), 1,
            {"127.0.0.1:@port", "another kind of server answers", "MASTER_PORT"},
            kSoon),
        rank(
            "NobodyAnswers", meeting("1", "127.0.0.1", "@free"), 1,
            {"127.0.0.1:@free", "no server answers", "after 1 s", "MASTER_PORT"},
            kSoon),
        rank(
            "HostIsSilent", meeting("1", "127.0.0.1", "@full"), 1,
            {"127.0.0.1:@full", "no server answers", "after 1 s"}, kSoon),
        rank(
            "OtherRankStaysAway", meeting("0", "127.0.0.1", "@free"), 1,
            {"rank 1 of 2 did not arrive within ", "--timeout-seconds"}, kSoon),
        rank(
            "HostDoesNotResolve", meeting("1", kNoHost, "4511"), 1,
            {"'no-such-host.invalid' does not resolve", "after 1 s", "MASTER_ADDR"},
            kOpen),
        rank(
            "MasterElsewhere", meeting("0", "192.0.2.1", "4511"), 2,
            {"192.0.2.1:4511", "not an address of this host", "--listen-all"}, kOpen),
        rank(
            "HostWithoutToken", meeting("1", "10.77.0.1", "4511"), 2,
            {"several hosts need a token", "umask 077; head -c 32 /dev/urandom",
             "--token-file", "TANDEM_TOKEN_FILE"},
            kSoon),
        rank(
            "OwnHostDoesNotResolve", meeting("0", kNoHost, "4511"), 1,
            {"'no-such-host.invalid'", "after 1 s", "MASTER_ADDR"}, kOpen),
        bad_input(
            "FirstHostPortTaken", host("0", "127.0.0.1", "@port"), 2,
            {"127.0.0.1:@port", "already in use"}, &with_data),
        bad_input(
            "FirstHostSomebodyElseAnswers", host("1", "127.0.0.1", "@port"), 1,
            {"127.0.0.1:@port", "another kind of server answers"}, &with_data),
        bad_input(
            "FirstHostAbsent", host("1", "127.0.0.1", "@free"), 1,
            {"127.0.0.1:@free", "no server answers", "after 1 s"}, &with_data),
        bad_input(
            "FirstHostUnknown", host("1", kNoHost, "4511", {"--insecure"}), 1,
            {"'no-such-host.invalid' does not resolve", "after 1 s"}, &with_data),
        bad_input(
            "FirstHostUnknownToItself", host("0", kNoHost, "4511", {"--insecure"}), 1,
            {"'no-such-host.invalid'", "after 1 s"}, &with_data),
        bad_input(
            "FirstHostElsewhere", host("0", "192.0.2.1", "4511", {"--insecure"}), 2,
            {"192.0.2.1:4511", "not an address of this host", "--listen-all"},
            &with_data),
        bad_input(
            "HostsWithoutToken", host("0", "10.77.0.1", "4511"), 2,
            {"several hosts need a token", "umask 077; head -c 32 /dev/urandom",
             "--token-file", "TANDEM_TOKEN_FILE", "--insecure"},
            &with_data),
        bad_input(
            "SecondHostAbsent", host("0", "127.0.0.1", "@free"), 1,
            {"3 of 4 did not arrive within ", "--timeout-seconds"}, &with_data)),
    name_of_case);

BadInputCase launching(
    const std::string& name, const Arguments& flags,
    const std::vector<std::string>& says, int code = 2) {
  Arguments arguments = with({"launch"}, flags);
  const auto prepare = [](const Stage& stage) {
    stage.write("text", "hello\n");
    stage.write("script", "#!/no/such/interpreter\n");
    std::filesystem::permissions(stage / "script", std::filesystem::perms::all);
  };
  return {name, arguments, code, says, prepare};
}

INSTANTIATE_TEST_SUITE_P(
    Launch, BadInput,
    testing::Values(
        launching("Missing", {"/no/such/program"}, {"/no/such/program", "No such"}),
        launching(
            "NotExecutableOnFourRanks", {"--nproc", "4", "@/text"},
            {"@/text", "executable"}),
        launching(
            "HostsWithoutToken",
            {"--nnodes", "2", "--master-port", "4242", "--master-addr", "10.77.0.1",
             "true"},
            {"several hosts need a token", "umask 077"}),
        launching(
            "PortTaken", {"--nnodes", "2", "--master-port", "@port", "true"},
            {"127.0.0.1:@port", "already in use"}),
        launching(
            "FirstHostAbsent",
            {"--nnodes", "2", "--node-rank", "1", "--master-port", "@free",
             "--timeout-seconds", "1", "true"},
            {"127.0.0.1:@free", "no server answers"}, 1),
        launching("UnknownFlag", {"--nporc", "2", "true"}, {"--nporc", "'--nproc'"}),
        launching(
            "RanksThatMisuseTrain",
            {"--nproc", "3", program(), "train", "--modle", "net"},
            {"--modle", "'--model'"}),
        launching(
            "RanksThatLaunchAgain", {"--nproc", "3", program(), "train", "-g", "4"},
            {"request 4 ranks", "WORLD_SIZE is 3"})),
    name_of_case);

}  // namespace tandem::ranks_test
