// Programs that start their own ranks; the argument selects a program.

#include <ATen/ops/ones.h>
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/process.h"
#include "tandem/comm/join/spawn.h"

namespace tandem {
namespace {

void say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

std::string name_of(const Communicator& comm) {
  return std::to_string(comm.rank()) + " of " + std::to_string(comm.size());
}

void call_twice() {
  say("before");
  spawn(2, [](Communicator& comm) { say("first " + name_of(comm)); });
  say("between");
  SpawnOptions options;
  options.prefix_output = true;
  spawn(
      3, [](Communicator& comm) { say("second " + name_of(comm)); }, options);
  say("after");
}

// Rank 1 ends in its own way while rank 0 waits for it.
void end_rank_one(const std::function<void()>& end) {
  try {
    spawn(2, [&](Communicator& comm) {
      if (comm.rank() == 1) {
        end();
      }
      comm.barrier("wait");
    });
    say("no error");
  } catch (const ConfigError& error) {
    say(std::string("misuse: ") + error.what());
  } catch (const Error& error) {
    say(std::string("failure: ") + error.what());
  }
}

void ask_for_different_numbers() {
  const int ranks = std::getenv("RANK") == nullptr ? 2 : 3;
  spawn(ranks, [](Communicator&) { say("not reached"); });
}

void keep_what_was_there() {
  Process child({{"sleep", "60"}, {}, false});
  spawn(1, [](Communicator&) {});
  sigset_t blocked;
  pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  say(child.poll() ? "the child is gone" : "the child runs");
  say(sigismember(&blocked, SIGTERM) == 1 ? "SIGTERM is blocked" : "SIGTERM is free");
}

// The inner program is not a rank, although it inherits the variables of a rank.
void start_another_program(const std::string& own) {
  spawn(1, [&](Communicator&) {
    const auto inner = run_command({own, "inner"}, {}, 60);
    say("inner said: " + inner.output + inner.errors);
  });
}

// One of two hosts: HOST is its number, HOST_0 the address of host 0.
void spawn_on_two_hosts() {
  SpawnOptions options;
  options.nnodes = 2;
  options.node_rank = std::atoi(std::getenv("HOST"));
  options.master_addr = std::getenv("HOST_0");
  options.master_port = 29500;
  spawn(
      2,
      [](Communicator& comm) {
        auto sum = at::ones({1}, at::kLong);
        comm.all_reduce(sum, ReduceOp::sum, "count")->wait();
        say(name_of(comm) + ", " + std::to_string(sum.item<int64_t>()) + " met");
      },
      options);
  say("host ended");
}

// Ranks that print much output between their sums, and write the result into a file.
void print_between_sums(const std::string& path) {
  spawn(3, [&](Communicator& comm) {
    auto sums = at::ones({10'000}, at::kDouble);
    for (int i = 0; i < 10; ++i) {
      comm.all_reduce(sums, ReduceOp::sum, "sum")->wait();
      sums.div_(3);
      for (int line = 0; line < 100; ++line) {
        say(std::string(200, 'x'));
      }
    }
    comm.all_reduce(sums, ReduceOp::sum, "sum")->wait();
    replace_file(
        path + std::to_string(comm.rank()),
        std::to_string(sums.sum().item<double>()) + "\n");
  });
}

// Rank 1 reports that it runs, and waits.
void stay() {
  end_rank_one([] {
    replace_file("up", "");
    std::this_thread::sleep_for(std::chrono::seconds(600));
  });
}

const std::map<std::string, std::function<void(const std::string&)>> kPrograms = {
    {"twice", [](const auto&) { call_twice(); }},
    {"fail",
     [](const auto&) {
       end_rank_one([] { throw DataError("[files] no such file"); });
     }},
    {"misuse",
     [](const auto&) { end_rank_one([] { throw ConfigError("[grid] 3 x 2"); }); }},
    {"killed", [](const auto&) { end_rank_one([] { raise(SIGKILL); }); }},
    {"leaves", [](const auto&) { end_rank_one([] { std::_Exit(3); }); }},
    {"numbers", [](const auto&) { ask_for_different_numbers(); }},
    {"keeps", [](const auto&) { keep_what_was_there(); }},
    {"stay", [](const auto&) { stay(); }},
    {"prints", [](const auto&) { print_between_sums(std::getenv("SUMS")); }},
    {"hosts", [](const auto&) { spawn_on_two_hosts(); }},
    {"outer", &start_another_program},
    {"inner",
     [](const auto&) { spawn(2, [](Communicator& comm) { say(name_of(comm)); }); }},
};

}  // namespace
}  // namespace tandem

int main(int argc, char** argv) {
  try {
    tandem::kPrograms.at(argc > 1 ? argv[1] : "")(argv[0]);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return tandem::exit_code(error);
  }
}
