#include "tandem/launch/host_watch.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/log.h"
#include "tandem/base/text.h"

namespace tandem {

namespace {

constexpr Milliseconds kBetweenLooks{200};
// Interval between checks at the end of a run. It is shorter than kBetweenLooks,
// because the user waits for the result.
constexpr Milliseconds kBetweenLastLooks{20};
constexpr Milliseconds kHurried{2'000};
// Time for the other hosts to read the verdict.
constexpr Milliseconds kGoodbye{5'000};

const char* const kVerdict = "launch/verdict";
// Key of the line that names the missing hosts. The line is "" after all hosts have
// joined.
const char* const kMissing = "launch/missing";

std::string ended_key(int node) {
  return "launch/ended/" + std::to_string(node);
}

bool answers(const StoreServer::Launcher& launcher, Milliseconds timeout) {
  return launcher.here && std::chrono::steady_clock::now() - launcher.heard <= timeout;
}

std::string gone(const std::string& host) {
  return "[launch] " + host +
         " no longer answers: its launcher ended early or was killed, or the host went "
         "down";
}

}  // namespace

HostWatch::HostWatch(Options options, StoreServer* server, StoreClient* client)
    : options_(std::move(options)),
      notice_(options_.began),
      server_(server),
      client_(client) {
  if (!is_alone() && !is_first()) {
    thread_ = std::thread([this] { talk(); });
  }
}

HostWatch::~HostWatch() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    leaving_ = true;
    if (client_ != nullptr) {
      client_->hang_up();
    }
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::string HostWatch::ranks_of(int node) const {
  const auto& members = options_.members;
  const auto place = std::find(members.begin(), members.end(), node) - members.begin();
  const auto first = place * options_.nproc;
  return options_.nproc == 1
             ? fmt::format("rank {}", first)
             : fmt::format("ranks {} to {}", first, first + options_.nproc - 1);
}

std::string HostWatch::host(int node, const std::string& where) const {
  return fmt::format("host {} {} with {}", node, where, ranks_of(node));
}

std::vector<StoreServer::Launcher> HostWatch::launchers() const {
  auto found = server_->launchers();
  const auto& members = options_.members;
  const auto is_stranger = [&](const auto& one) {
    return !std::binary_search(members.begin(), members.end(), one.greeting.number);
  };
  found.erase(std::remove_if(found.begin(), found.end(), is_stranger), found.end());
  return found;
}

// Returns the error that host 0 and the unreachable host both report.
std::string HostWatch::unreachable(int node, const std::string& name) const {
  return fmt::format(
      "[launch] {} and {} have had no contact for {} s; check the network between "
      "them and whether one is suspended",
      host(0, "at " + options_.master_addr), host(node, "on " + name),
      static_cast<double>(options_.timeout.count()) / 1000);
}

// --- on host 0 ---

// Looks for a host that disconnected without reporting its end, or that has not
// answered for the timeout. Does nothing if a host is already lost.
void HostWatch::find_lost() {
  for (const auto& launcher : launchers()) {
    const int node = launcher.greeting.number;
    const auto& name = launcher.greeting.host;
    if (!lost_host_ && !answers(launcher, options_.timeout) &&
        !server_->get(ended_key(node))) {
      lost_host_ = node;
      lost_ = launcher.here ? unreachable(node, name) : gone(host(node, "on " + name));
    }
  }
}

void HostWatch::name_missing_hosts() {
  std::vector<int> there = {0};
  for (const auto& launcher : launchers()) {
    there.push_back(launcher.greeting.number);
  }
  std::vector<int> missing;
  std::set_difference(
      options_.members.begin(), options_.members.end(), there.begin(), there.end(),
      std::back_inserter(missing));
  if (missing.empty()) {
    all_have_come_ = true;
    server_->set(kMissing, "");
    return;
  }
  const auto line = fmt::format(
      "[launch] waiting for {} of {} to join at {}", with_numbers("host", missing),
      options_.members.size(), options_.store);
  if (notice_.is_due(line)) {
    log_info(line);
    server_->set(kMissing, fmt::format("{}\n{}", fmt::join(missing, " "), line));
  }
}

bool HostWatch::must_end(bool failed) {
  if (is_alone()) {
    return false;
  }
  if (!is_first()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed_ = failed_ || failed;
    changed_.notify_all();
    return over_ || !lost_.empty();
  }
  if (!all_have_come_) {
    name_missing_hosts();
  }
  if (failed && !std::exchange(failed_, true) && !server_->get(kRunOver)) {
    server_->set(kRunOver, "0");
  }
  find_lost();
  if (lost_host_ && !server_->get(kRunOver)) {
    server_->set(kRunOver, "0");
  }
  return server_->get(kRunOver).has_value();
}

// Returns the most likely cause among the endings of all hosts; nullopt while the ranks
// of a reachable host are running.
std::optional<HostEnding> HostWatch::choose(const HostEnding& mine) {
  const int first = parse_number<int>(server_->get(kRunOver).value_or("0")).value_or(0);
  HostEnding verdict = mine;
  leaving_hosts_.clear();
  const auto add = [&](const HostEnding& other, bool came_first) {
    if (other.cause > verdict.cause ||
        (other.cause == verdict.cause && came_first && first != 0)) {
      verdict = other;
    }
  };
  for (const auto& launcher : launchers()) {
    const int node = launcher.greeting.number;
    const auto text = server_->get(ended_key(node));
    if (const auto ending = text ? ending_from(*text) : std::nullopt) {
      add(*ending, node == first);
      if (ending->leaves) {
        leaving_hosts_.push_back(node);
      }
    } else if (answers(launcher, options_.timeout)) {
      return std::nullopt;
    }
  }
  find_lost();
  if (lost_host_) {
    add({Cause::lost, 1, lost_}, false);
  }
  return verdict;
}

// Publishes the verdict. Returns when the other hosts have read it and disconnected, or
// after kGoodbye.
void HostWatch::give_verdict(const HostEnding& verdict) {
  server_->set(kVerdict, to_text(verdict));
  const auto until = Clock::now() + kGoodbye;
  const auto anybody = [&] {
    const auto all = launchers();
    return std::any_of(all.begin(), all.end(), [](const auto& launcher) {
      return answers(launcher, kGoodbye);
    });
  };
  while (anybody() && Clock::now() < until) {
    std::this_thread::sleep_for(kBetweenLastLooks);
  }
}

// --- on other hosts ---

std::unique_ptr<StoreClient> HostWatch::connect() {
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (leaving_ || mine_) {
        return nullptr;
      }
    }
    try {
      auto client =
          std::make_unique<StoreClient>(options_.store, kBetweenLooks, options_.token);
      client->greet(options_.greeting);
      return client;
    } catch (const CommError&) {
      // The launcher of host 0 may start later than this one.
      const std::string line = "[launch] waiting for host 0 at " + options_.store;
      if (notice_.is_due(line)) {
        log_info(line);
      }
    }
  }
}

void HostWatch::talk() {
  bool rejected = false;
  try {
    if (client_ == nullptr) {
      own_client_ = connect();
      const std::lock_guard<std::mutex> lock(mutex_);
      client_ = own_client_.get();
    }
    if (client_ != nullptr) {
      client_->answer_within(options_.timeout);
      follow();
      // Host 0 waits until this connection closes, which shows that this host has read
      // the verdict.
      client_->hang_up();
    }
  } catch (const ConfigError& error) {
    // Not reported here, because the ranks get the same error and report it.
    log_debug(error.what());
    rejected = true;
  } catch (const Error& error) {
    log_debug(error.what());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  silent_ = true;
  if (!rejected && client_ != nullptr && lost_.empty() && !verdict_) {
    lost_ = gone(host(0, "at " + options_.master_addr));
  }
  changed_.notify_all();
}

void HostWatch::repeat_missing_hosts() {
  constexpr size_t kMostBytes = 300;
  constexpr size_t kMostNumbers = 10'000;
  if (all_have_come_ || !client_->has({kMissing})) {
    return;
  }
  // Any process of the run can write this line, so it is shortened and made printable.
  const auto text = client_->get(kMissing, {}).substr(0, kMostNumbers);
  all_have_come_ = text.empty();
  const size_t end = text.find('\n');
  const auto missing = split(text.substr(0, end), ' ');
  // Host 0 may have written the line before this host joined.
  const auto own = std::to_string(options_.node);
  if (end == std::string::npos ||
      std::find(missing.begin(), missing.end(), own) != missing.end()) {
    return;
  }
  const auto line = printable(text.substr(end + 1, kMostBytes));
  if (line != std::exchange(missing_, line)) {
    log_info(line);
  }
}

// Reports this host's news to host 0, and returns the news of host 0. The caller must
// not hold the lock.
HostWatch::News HostWatch::exchange_news(bool failed, const HostEnding* mine) {
  if (failed && !std::exchange(reported_failure_, true)) {
    client_->compare_set(kRunOver, "", std::to_string(options_.node));
  }
  if (mine != nullptr && !std::exchange(reported_end_, true)) {
    client_->set(ended_key(options_.node), to_text(*mine));
  }
  News news;
  news.over = client_->has({kRunOver});
  options_.exchange(*client_);
  repeat_missing_hosts();
  if (reported_end_ && client_->has({kVerdict})) {
    news.verdict = ending_from(client_->get(kVerdict, {}));
  }
  return news;
}

void HostWatch::follow() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!leaving_ && !verdict_) {
    const bool failed = failed_;
    const auto mine = mine_;
    lock.unlock();
    const auto asked = Clock::now();
    News news;
    try {
      news = exchange_news(failed, mine ? &*mine : nullptr);
    } catch (const CommError&) {
      lock.lock();
      if (Clock::now() - asked >= options_.timeout) {
        lost_ = unreachable(options_.node, options_.greeting.host);
      }
      throw;
    }
    lock.lock();
    over_ = over_ || news.over;
    verdict_ = news.verdict;
    ++rounds_;
    changed_.notify_all();
    changed_.wait_for(lock, mine_ ? kBetweenLastLooks : kBetweenLooks, [&] {
      return leaving_ || (failed_ && !reported_failure_) || (mine_ && !reported_end_);
    });
  }
}

void HostWatch::hurry() {
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t before = rounds_;
  const bool answered = changed_.wait_for(lock, kHurried, [&] {
    return !thread_.joinable() || rounds_ > before || silent_;
  });
  if (!answered && client_ != nullptr) {
    client_->hang_up();
  }
}

std::string HostWatch::lost() {
  if (is_first()) {
    return "";
  }
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t before = rounds_;
  changed_.wait(lock, [&] {
    return !thread_.joinable() || client_ == nullptr || rounds_ > before || silent_;
  });
  return lost_;
}

// --- on all hosts ---

HostEnding HostWatch::agree(
    const HostEnding& mine, const std::function<bool()>& stop,
    const std::function<void(HostEnding&)>& decide) {
  return is_first() ? judge(mine, stop, decide) : await_verdict(mine, stop);
}

HostEnding HostWatch::judge(
    const HostEnding& mine, const std::function<bool()>& stop,
    const std::function<void(HostEnding&)>& decide) {
  if (is_alone()) {
    HostEnding verdict = mine;
    decide(verdict);
    return verdict;
  }
  if (mine.cause != Cause::none) {
    must_end(true);
  }
  std::optional<HostEnding> verdict;
  while (!(verdict = choose(mine)) && !stop()) {
    std::this_thread::sleep_for(kBetweenLastLooks);
  }
  if (verdict) {
    decide(*verdict);
    give_verdict(*verdict);
  }
  return verdict.value_or(mine);
}

HostEnding HostWatch::await_verdict(
    const HostEnding& mine, const std::function<bool()>& stop) {
  std::unique_lock<std::mutex> lock(mutex_);
  mine_ = mine;
  failed_ = failed_ || mine.cause != Cause::none;
  changed_.notify_all();
  while (!verdict_ && !silent_ && !stop()) {
    changed_.wait_for(lock, kBetweenLastLooks);
  }
  if (verdict_) {
    return *verdict_;
  }
  const bool follows = mine.cause != Cause::none && mine.cause < Cause::lost;
  HostEnding ending = mine;
  if (follows && !lost_.empty()) {
    ending = {Cause::lost, 1, lost_};
    ending.lost_host_0 = true;
  }
  return ending;
}

}  // namespace tandem
