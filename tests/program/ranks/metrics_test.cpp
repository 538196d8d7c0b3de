// Metrics of live runs (--metrics-port), and `tandem top`.

#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <ctime>
#include <future>
#include <thread>

#include "hosts.h"
#include "tandem/base/host.h"
#include "tandem/launch/status/status_sockets.h"
#include "tests/base/test_tools.h"
#include "tests/launch/exposition.h"
#include "tests/launch/http_client.h"
#include "workers.h"

namespace tandem::metrics_test {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

// A run that trains until the test stops it.
class Metrics : public testing::Test {
 protected:
  ~Metrics() override {
    stop();
  }

  Arguments training(const Arguments& more, const char* epochs = "100000") const {
    return with(
        {"train", "--model", "simplenet", "--limit", "2000", "--epochs", epochs,
         "--log-every", "2", "--checkpoint-every", "5", "--out", out_},
        more);
  }
  Arguments with_metrics(const Arguments& more) const {
    return with({"--metrics-port", port_}, more);
  }
  void begin(const Arguments& arguments) {
    run_ = std::async(std::launch::async, [=] { return tandem_run(arguments); });
    wait_until_it_reports(out_);
  }
  // Stops the run by its launcher, or by its only process, and returns the result.
  CommandResult stop() {
    if (!run_.valid()) {
      return {};
    }
    const auto workers = workers_of(out_);
    if (!workers.empty()) {
      const pid_t parent = parent_of_process(workers[0]);
      kill(parent == getpid() || parent == 0 ? workers[0] : parent, SIGTERM);
    }
    return run_.get();
  }
  MetricSamples scrape() const {
    const auto text = page_at(address_, "/metrics");
    return text.empty() ? MetricSamples() : samples_of(text);
  }
  // Returns the samples when they have a metric with at least this value; otherwise
  // fails the test after a minute.
  MetricSamples scrape_until(const std::string& name, double least) const {
    MetricSamples samples;
    EXPECT_TRUE(eventually(
        [&] {
          samples = scrape();
          return samples.count(name) == 1 && samples.at(name) >= least;
        },
        60))
        << name << " is not " << least << " or more";
    return samples;
  }
  CommandResult top(const Arguments& arguments) const {
    return tandem_run(with({"top"}, arguments));
  }

  const Scratch scratch_;
  const std::string out_ = scratch_ / "run";
  const std::string port_ = unused_port();
  const std::string address_ = "127.0.0.1:" + port_;
  std::future<CommandResult> run_;
};

// Returns the training line of metrics.jsonl with the loss of the samples.
nlohmann::json line_of(const MetricSamples& samples, const std::string& out) {
  for (const auto& line : metrics_of(out)) {
    if (line["kind"] == "train" && line["loss"] == samples.at("tandem_loss")) {
      return line;
    }
  }
  return {};
}

void expect_values_of_the_file(const MetricSamples& samples, const std::string& out) {
  const auto line = line_of(samples, out);
  ASSERT_FALSE(line.is_null());
  EXPECT_EQ(line["lr"], samples.at("tandem_learning_rate"));
  EXPECT_EQ(line["samples_per_second"], samples.at("tandem_samples_per_second"));
  EXPECT_LE(line["step"], samples.at("tandem_step"));
  EXPECT_LE(line["epoch"], samples.at("tandem_epoch"));
  EXPECT_LE(samples.at("tandem_checkpoint_step"), samples.at("tandem_step"));
  EXPECT_LE(
      samples.at("tandem_checkpoint_timestamp_seconds"),
      static_cast<double>(std::time(nullptr) + 1));
}

std::string waiting_of(int rank) {
  return "tandem_rank_waiting_seconds{rank=\"" + std::to_string(rank) + "\",host=\"" +
         host_name() + "\"}";
}

struct Ranks {
  const char* name;
  Arguments flags;
  int count;
  int num_processes;
};

using tandem::operator<<;

class MetricsOfRanks : public Metrics, public testing::WithParamInterface<Ranks> {};

TEST_P(MetricsOfRanks, AreThoseOfMetricsJsonl) {
  begin(training(with_metrics(GetParam().flags)));
  const auto samples = scrape_until("tandem_checkpoint_step", 5);
  EXPECT_EQ(samples.at("tandem_ranks"), GetParam().count);
  EXPECT_EQ(samples.at("tandem_restarts_total"), 0);
  expect_values_of_the_file(samples, out_);
  for (int rank = 0; rank < GetParam().num_processes; ++rank) {
    EXPECT_EQ(samples.count(waiting_of(rank)), 1u) << rank;
  }
  EXPECT_EQ(samples.count(waiting_of(GetParam().num_processes)), 0u);
  EXPECT_EQ(stop().status.code, 75);
  EXPECT_THAT(page_at(address_, "/metrics"), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    All, MetricsOfRanks,
    testing::Values(
        Ranks{"One", {}, 1, 1},
        Ranks{"Threads", {"--nproc", "3", "--rank-type", "thread"}, 3, 1},
        Ranks{"Three", {"--nproc", "3"}, 3, 3},
        Ranks{"Averaging", {"--nproc", "4", "--strategy", "averaging"}, 4, 4}),
    testing::PrintToStringParamName());

TEST_F(Metrics, SurviveARestart) {
  begin(training(with_metrics({"--nproc", "3", "--max-restarts", "3"})));
  const double steps = scrape_until("tandem_checkpoint_step", 5).at("tandem_step");
  const auto ranks = workers_of(out_);
  ASSERT_EQ(ranks.size(), 3u);
  kill(ranks[1], SIGKILL);
  scrape_until("tandem_restarts_total", 1);
  const auto samples = scrape_until("tandem_step", steps + 1);
  EXPECT_EQ(samples.at("tandem_restarts_total"), 1);
  EXPECT_THAT(top({out_, "--once"}).output, HasSubstr(", 1 restart\n"));
}

TEST_F(Metrics, NeedAFreePort) {
  const auto taken = listen_for_metrics("127.0.0.1", std::stoi(port_));
  for (const Arguments& command :
       {training(with_metrics({"--nproc", "3"})), training(with_metrics({})),
        with({"launch", "--nproc", "3"}, with_metrics({"/bin/echo", "started"}))}) {
    const auto result = tandem_run(command);
    EXPECT_EQ(result.status.code, 2);
    EXPECT_EQ(result.output, "");
    expect_parts(
        result.errors, {"[launch] cannot serve metrics at " + address_,
                        "Address already in use; change --metrics-port"});
    EXPECT_EQ(sorted_lines(result.errors).size(), 1u) << result.errors;
    EXPECT_FALSE(file_exists(out_));
  }
}

TEST_F(Metrics, AreServedByTheLauncherThatStartedTheRanks) {
  const Arguments launch = {"launch",         "--nproc", "3",
                            "--metrics-port", port_,     program()};
  const auto unused = unused_port();
  begin(with(launch, training({"--metrics-port", unused})));
  const auto samples = scrape_until("tandem_checkpoint_step", 5);
  EXPECT_EQ(samples.at("tandem_ranks"), 3);
  expect_values_of_the_file(samples, out_);
  EXPECT_THAT(page_at("127.0.0.1:" + unused, "/metrics"), IsEmpty());
  const auto errors = stop().errors;
  EXPECT_EQ(
      lines_after(errors, "[launch] no metrics are served, because another launcher")
          .size(),
      1u)
      << errors;
}

TEST_F(Metrics, CoverAllHosts) {
  const Hosts hosts(2);
  TANDEM_NEEDS_HOSTS(hosts);
  const auto begin_on = [&](int host) {
    const auto arguments = with(training(with_metrics({})), hosts.flags_of(host, 2, 2));
    return std::async(std::launch::async, [&hosts, host, arguments] {
      return hosts.run(host, arguments);
    });
  };
  auto second = begin_on(1);
  run_ = begin_on(0);
  wait_until_it_reports(out_);
  MetricSamples samples;
  hosts.on(0, [&] {
    scrape_until(waiting_of(3), 0);
    samples = scrape_until("tandem_checkpoint_step", 5);
  });
  ASSERT_FALSE(samples.empty());
  EXPECT_EQ(samples.at("tandem_ranks"), 4);
  expect_values_of_the_file(samples, out_);
  hosts.on(1, [&] { EXPECT_THAT(page_at(address_, "/metrics"), IsEmpty()); });
  EXPECT_THAT(
      hosts.run(0, {"top", out_, "--once"}).output,
      AllOf(HasSubstr("4 ranks, epoch "), ContainsRegex("\n3 +" + host_name())));
  const auto elsewhere = hosts.run(1, {"top", out_, "--once"});
  expect_exit(elsewhere, 1, {"run tandem top on the host of that process"});
  stop();
  second.get();
}

// --- tandem top ---

using Top = Metrics;

TEST_F(Top, ShowsTheRanksOfADirectoryAndOfAnAddress) {
  begin(training(with_metrics({"--nproc", "3"})));
  scrape_until("tandem_checkpoint_step", 5);
  for (const auto& run : {out_, address_}) {
    const auto result = checked(top({run, "--once"}));
    EXPECT_THAT(
        result.output,
        AllOf(
            ContainsRegex("^3 ranks, epoch [0-9]+, step [0-9]+, checkpoint of step"),
            HasSubstr("\nrank  host"), ContainsRegex("\n0 .* s ago +[a-z]"),
            ContainsRegex("\n2 +" + host_name() + " +[0-9]+ ")));
  }
}

TEST_F(Top, NamesTheRankThatStopsTheOthers) {
  begin(training({"--nproc", "3"}));
  const auto ranks = workers_of(out_);
  ASSERT_EQ(ranks.size(), 3u);
  kill(ranks[1], SIGSTOP);
  std::string table;
  EXPECT_TRUE(eventually([&] {
    table = top({out_, "--once"}).output;
    return table.find("suspended") != std::string::npos &&
           table.find(" s in ") != std::string::npos;
  }));
  EXPECT_THAT(
      table, AllOf(
                 ContainsRegex("\n0 .*, waits [0-9]+ s in [a-z_]+"),
                 ContainsRegex("\n1 .*suspended")));
  kill(ranks[1], SIGCONT);
}

TEST_F(Top, FollowsARunToItsEnd) {
  begin(training({"--nproc", "3"}));
  auto tables = std::async(std::launch::async, [&] { return top({out_}); });
  std::this_thread::sleep_for(std::chrono::seconds(3));
  EXPECT_EQ(stop().status.code, 75);
  const auto result = checked(tables.get());
  EXPECT_THAT(
      result.output, AllOf(
                         ContainsRegex("^3 ranks.*\n(.*\n)+\n3 ranks"),
                         HasSubstr("\nthe run has ended\n")));
  const auto later = top({out_});
  expect_exit(
      later, 1, {"[top] no process trains in '" + out_ + "'; the run has ended"});
}

TEST_F(Top, ExplainsWhyThereIsNoTable) {
  const auto missing = top({out_});
  expect_exit(missing, 2, {"does not exist, expected the --out of a run"});
  const auto silent = top({address_});
  expect_exit(silent, 1, {"no launcher of tandem answers at " + address_});
  EXPECT_EQ(top({}).status.code, 2);
  begin(training({}));
  const auto alone = top({out_});
  EXPECT_EQ(alone.status.code, 1);
  EXPECT_THAT(
      alone.errors,
      AllOf(
          HasSubstr("run of one process with --metrics-port"), Not(HasSubstr("\n["))));
}

}  // namespace tandem::metrics_test
