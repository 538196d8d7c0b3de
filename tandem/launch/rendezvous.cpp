#include "tandem/launch/rendezvous.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <numeric>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include "tandem/base/error.h"
#include "tandem/base/files.h"
#include "tandem/base/host.h"
#include "tandem/base/log.h"
#include "tandem/base/signals.h"
#include "tandem/base/store/socket.h"
#include "tandem/base/text.h"
#include "tandem/base/wait_notice.h"
#include "tandem/launch/host_watch.h"
#include "tandem/launch/restarts.h"

namespace tandem {

namespace {

using Clock = std::chrono::steady_clock;

// Keys with the number of the attempt, of the restarts and of the excluded hosts, and
// with the numbers of the hosts that take part.
constexpr const char* kAttempt = "launch/attempt";
constexpr const char* kMembers = "launch/members";
// Key that is set to the exit code of the run if no attempt follows.
constexpr const char* kRunEnded = "launch/ended";
// Keys with LaunchOptions::identity of host 0, and with the error of a refused host.
constexpr const char* kIdentity = "launch/identity";
constexpr const char* kRefused = "launch/refused";
constexpr Milliseconds kBetweenTries{200};
// Time in which host 0 notices that a launcher was replaced by another one. It is
// longer than the time after which a host counts as lost.
constexpr Milliseconds kReplacement{20'000};
// Time for which host 0 waits for more hosts after min_nnodes hosts have joined.
constexpr Milliseconds kLastCall{3'000};
// Longest time for which host 0 waits for launchers that must end.
constexpr Milliseconds kTimeToLeave{2'000};
// Time for which a host that lost contact with host 0 waits for an answer.
constexpr Milliseconds kContact{15'000};
// Timeout of a launcher without --timeout-seconds.
constexpr Milliseconds kUsualTimeout{300'000};

std::string master_address(const LaunchOptions& options) {
  return "tcp:" + options.master_addr + ":" + std::to_string(options.master_port);
}

ListenOn listen_on(const LaunchOptions& options) {
  return options.listen_all ? ListenOn::all : ListenOn::host;
}

Milliseconds meeting_timeout(const LaunchOptions& options) {
  return options.timeout() == Milliseconds(0) ? kUsualTimeout : options.timeout();
}

std::vector<int> all_members(const LaunchOptions& options) {
  std::vector<int> members(static_cast<size_t>(options.nnodes));
  std::iota(members.begin(), members.end(), 0);
  return members;
}

// Returns the remaining numbers in a text such as "0 2 5".
std::vector<int> numbers_in(std::istream& text) {
  return {std::istream_iterator<int>(text), std::istream_iterator<int>()};
}

Attempt attempt_in(StoreClient& client) {
  std::istringstream text(client.get(kAttempt, kBetweenTries));
  Attempt attempt;
  text >> attempt.number >> attempt.restarts;
  attempt.excluded = numbers_in(text);
  return attempt;
}

// Waits until host 0 has chosen the hosts of an attempt. Returns no hosts if the
// attempt ends first. Throws CommError if host 0 ends.
std::vector<int> members_in(StoreClient& client) {
  while (!client.has({kMembers})) {
    throw_if_stopped();
    if (client.has({kRunOver})) {
      return {};
    }
    std::this_thread::sleep_for(kBetweenTries);
  }
  std::istringstream text(client.get(kMembers, kBetweenTries));
  return numbers_in(text);
}

// `nodes`: numbers in ascending order.
bool is_member(const std::vector<int>& nodes, int node) {
  return std::binary_search(nodes.begin(), nodes.end(), node);
}

// Returns the meeting of a run that has ended; nullopt if an attempt follows.
std::optional<Meeting> end_of_run(StoreClient& client, const Attempt& next) {
  if (!client.has({kRunEnded})) {
    return std::nullopt;
  }
  // Any process of the run can write this number.
  const auto code = parse_number<int>(client.get(kRunEnded, kBetweenTries)).value_or(1);
  return Meeting{nullptr, next, code == 0 ? 0 : known_exit_code(code)};
}

// Error of a host that differs from host 0. Another try has the same error.
class RefusedError : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

// Sends host 0 the error of this host, and returns the error.
std::string tell_refusal(
    const LaunchOptions& options, StoreClient& client, const Error& error) {
  const auto text = fmt::format(
      "[launch] host {} on {} is refused: {}", options.node_rank, host_name(),
      error.what());
  client.set(kRefused, text);
  return text;
}

// Compares this host with host 0. Returns false if the attempt ends first. Throws
// RefusedError for a difference, and the other errors of check_identity().
bool is_same_as_host_0(const LaunchOptions& options, StoreClient& client) {
  std::string identity;
  for (;;) {
    throw_if_stopped();
    if (client.has({kRunOver})) {
      return false;
    }
    try {
      if (identity.empty() && client.has({kIdentity})) {
        identity = client.get(kIdentity, kBetweenTries);
      }
      if (!identity.empty() && options.check_identity(identity)) {
        return true;
      }
    } catch (const ConfigError& error) {
      throw RefusedError(tell_refusal(options, client, error));
    } catch (const DataError& error) {
      throw DataError(tell_refusal(options, client, error));
    }
    std::this_thread::sleep_for(kBetweenTries / 4);
  }
}

// Joins the store of host 0 for the attempt `next` or a later one. Returns nullopt if
// the server belongs to an earlier attempt or to an attempt that is over. If this host
// is not a member, waits for the end of the attempt and returns nullopt. Throws
// CommError if host 0 does not answer, Error if this host is excluded.
std::optional<Meeting> try_to_join(
    const LaunchOptions& options, const std::string& token, const Attempt& next) {
  auto client =
      std::make_unique<StoreClient>(master_address(options), kBetweenTries, token);
  if (auto over = end_of_run(*client, next)) {
    return over;
  }
  Attempt begun = attempt_in(*client);
  if (begun.number < next.number || client->has({kRunOver})) {
    return std::nullopt;
  }
  if (is_member(begun.excluded, options.node_rank)) {
    throw Error(fmt::format(
        "[launch] host {} is excluded from the run, because it caused {} starts in "
        "succession without a step; use another --node-rank, or start the run again",
        options.node_rank, HostChanges::kMostIdleStarts));
  }
  // A run whose hosts cannot change compares its ranks at the first start.
  const bool compares =
      options.check_identity && (options.is_elastic() || begun.number > 0);
  if (compares && !is_same_as_host_0(options, *client)) {
    return end_of_run(*client, next);
  }
  client->greet(launcher_greeting(options));
  begun.members = options.is_elastic() ? members_in(*client) : all_members(options);
  if (is_member(begun.members, options.node_rank)) {
    return Meeting{std::move(client), begun};
  }
  log_info(fmt::format(
      "[launch] host {} waits for the next start of the ranks", options.node_rank));
  while (!client->has({kRunOver})) {
    throw_if_stopped();
    std::this_thread::sleep_for(kBetweenTries);
  }
  return end_of_run(*client, next);
}

// On host 0, waits for the hosts of an attempt, and returns them.
std::vector<int> gather_members(
    const LaunchOptions& options, StoreServer& server,
    const std::function<void()>& while_waiting) {
  const auto start = Clock::now();
  auto enough_since = Clock::time_point::max();
  WaitNotice notice;
  for (;;) {
    while_waiting();
    std::vector<int> members = {0};
    for (const auto& launcher : server.launchers()) {
      if (launcher.here && launcher.greeting.number < options.nnodes) {
        members.push_back(launcher.greeting.number);
      }
    }
    const int count = static_cast<int>(members.size());
    const auto now = Clock::now();
    if (count < options.min_nnodes) {
      enough_since = Clock::time_point::max();
    } else if (enough_since == Clock::time_point::max()) {
      enough_since = now;
    }
    if (count >= options.nnodes || now - enough_since > kLastCall) {
      return members;
    }
    const std::string line = fmt::format(
        "{} of at least {} hosts have joined at {}", count, options.min_nnodes,
        server.address());
    if (count < options.min_nnodes && now - start > meeting_timeout(options)) {
      throw CommError(
          "join", line + "; start the other hosts, or raise --timeout-seconds");
    }
    if (notice.is_due(line)) {
      log_info("[launch] " + line);
    }
    throw_if_stopped();
    std::this_thread::sleep_for(kBetweenTries / 4);
  }
}

Meeting join_attempt(
    const LaunchOptions& options, const std::string& token, const Attempt& next) {
  // Host 0 may pause between two attempts.
  const auto usual = meeting_timeout(options) +
                     (next.number > 0 ? Milliseconds(kLongestDelay) : Milliseconds(0));
  const auto timeout = next.lost_host_0 ? std::min(usual, kContact) : usual;
  auto last_contact = Clock::now();
  std::optional<Clock::time_point> refused_since;
  WaitNotice notice;
  for (;;) {
    try {
      if (auto meeting = try_to_join(options, token, next)) {
        return std::move(*meeting);
      }
      last_contact = Clock::now();
      refused_since.reset();
    } catch (const CommError&) {
      if (Clock::now() - last_contact > timeout) {
        throw;
      }
    } catch (const RefusedError&) {
      throw;
    } catch (const ConfigError&) {
      refused_since = refused_since.value_or(Clock::now());
      if (Clock::now() - *refused_since > kReplacement) {
        throw;
      }
    }
    const std::string line =
        "[launch] waiting for host 0 at " + master_address(options);
    if (notice.is_due(line)) {
      log_info(line);
    }
    throw_if_stopped();
    std::this_thread::sleep_for(kBetweenTries);
  }
}

// Name of the store's socket. Other programs do not use this name, so it identifies a
// launcher's directory.
constexpr const char* kStore = "/launcher-store";

bool is_own_directory(int fd) {
  struct stat info {};
  return fstat(fd, &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

// Removes the directory of a killed launcher. Keeps a directory without a store, which
// may belong to a launcher that is starting.
void remove_if_left(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) {
    return;
  }
  if (is_own_directory(fd) && flock(fd, LOCK_EX | LOCK_NB) == 0 &&
      file_exists(path + kStore)) {
    remove_all(path);
  }
  close(fd);
}

void remove_leftovers(const std::string& beside) {
  const std::string folder = beside.substr(0, beside.rfind('/'));
  const std::string prefix = beside.substr(folder.size() + 1, sizeof("tandem-") - 1);
  try {
    for (const auto& name : list_directory(folder)) {
      const std::string path = std::filesystem::path(folder) / name;
      if (name.rfind(prefix, 0) == 0 && path.size() == beside.size() &&
          path != beside) {
        remove_if_left(path);
      }
    }
  } catch (const DataError&) {
    // The folder is writable but not readable, so the directories stay.
  }
}

}  // namespace

MeetingDirectory::MeetingDirectory() : path_(make_private_directory()) {
  lock_fd_ = open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  flock(lock_fd_, LOCK_EX);
  remove_leftovers(path_);
}

MeetingDirectory::~MeetingDirectory() {
  remove_all(path_);
  close(lock_fd_);
}

std::string MeetingDirectory::store_address() const {
  return "unix:" + path_ + kStore;
}

Greeting launcher_greeting(const LaunchOptions& options) {
  return greeting_of(
      Greeting::Role::launcher, options.node_rank,
      options.nnodes * options.nproc_per_node, options.backend, options.run);
}

Meeting meet_first_node(
    const LaunchOptions& options, const std::string& token, const Attempt& next) {
  const Milliseconds timeout = options.timeout();
  if (options.nnodes > 1 && options.node_rank > 0 && options.restarts()) {
    return join_attempt(options, token, next);
  }
  if (options.nnodes == 1 || timeout.count() == 0 || next.number > 0) {
    return {nullptr, next};
  }
  if (options.node_rank > 0) {
    auto client =
        std::make_unique<StoreClient>(master_address(options), timeout, token);
    client->greet(launcher_greeting(options));
    return {std::move(client), next};
  }
  listen_at(master_address(options), timeout, listen_on(options));
  return {nullptr, next};
}

Rendezvous::Rendezvous(
    const LaunchOptions& options, const std::string& token, Meeting meeting)
    : client(std::move(meeting.client)),
      attempt(std::move(meeting.attempt)),
      nnodes(options.nnodes) {
  if (attempt.members.empty()) {
    attempt.members = all_members(options);
  }
  if (options.nnodes == 1) {
    directory = std::make_unique<MeetingDirectory>();
    server = std::make_unique<StoreServer>(
        directory->store_address(), "", Milliseconds(0), ListenOn::host,
        launcher_greeting(options));
    address = server->address();
    return;
  }
  address = master_address(options);
  if (options.node_rank == 0) {
    server = std::make_unique<StoreServer>(
        address, token, Milliseconds(0), listen_on(options),
        launcher_greeting(options));
    if (options.restarts()) {
      server->refuse_only_launchers();
    }
    server->set(
        kAttempt, fmt::format(
                      "{} {} {}", attempt.number, attempt.restarts,
                      fmt::join(attempt.excluded, " ")));
    if (options.is_elastic()) {
      choose_members(options);
    }
    if (options.token.insecure && attempt.number == 0) {
      warn_of_no_token(address);
    }
  }
}

void Rendezvous::choose_members(const LaunchOptions& options) {
  attempt.members = {0};
  try {
    attempt.members = gather_members(options, *server, [&] { compare_hosts(options); });
  } catch (const Error&) {
    end_run(pending_stop_signal() != 0 ? kExitStopped : 1);
    throw;
  }
  server->set(kMembers, fmt::format("{}", fmt::join(attempt.members, " ")));
}

void Rendezvous::compare_hosts(const LaunchOptions& options) const {
  if (!options.identity) {
    return;
  }
  if (const auto refused = server->get(kRefused)) {
    constexpr size_t kMostBytes = 1000;
    log_warning(printable(refused->substr(0, kMostBytes)));
  }
  if (server->get(kIdentity)) {
    return;
  }
  try {
    if (const auto identity = options.identity()) {
      server->set(kIdentity, *identity);
    }
  } catch (const Error& error) {
    // The ranks report this error.
    log_debug(error.what());
  }
}

std::vector<int> Rendezvous::newcomers() const {
  std::vector<int> found;
  for (const auto& launcher : server->launchers()) {
    const int node = launcher.greeting.number;
    if (launcher.here && node < nnodes && !is_member(attempt.members, node)) {
      found.push_back(node);
    }
  }
  return found;
}

void Rendezvous::cancel_next_attempt() const {
  end_run(kExitStopped);
  std::this_thread::sleep_for(kTimeToLeave);
}

void Rendezvous::end_run(int code) const {
  server->set(kRunEnded, std::to_string(code));
  server->set(kRunOver, "0");
  const auto until = Clock::now() + kTimeToLeave;
  while (!newcomers().empty() && Clock::now() < until) {
    std::this_thread::sleep_for(kBetweenTries / 4);
  }
}

}  // namespace tandem
