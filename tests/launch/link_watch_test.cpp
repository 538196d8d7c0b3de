#include "tandem/launch/link_watch.h"

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <unistd.h>

namespace tandem::link_watch_test {

using testing::ElementsAre;
using testing::IsEmpty;

// Returns a line of /proc/net/tcp.
std::string line(
    const std::string& remote, int state, int timer, int retransmits, int probes = 0,
    unsigned user = geteuid()) {
  return fmt::format(
      "   1: 02420A0A:9C40 {}:0016 {:02X} 00000024:00000000 {:02X}:00000014 {:08X} "
      "{:5d} {:8d} 5 1 0000000000000000 20 4 30 10 -1\n",
      remote, state, timer, retransmits, user, probes);
}

TEST(SilentPeers, AreThoseThatAcknowledgeNothing) {
  const std::string header = "  sl  local_address rem_address   st tx_queue\n";
  const std::string peer = "0342420A";
  EXPECT_THAT(silent_peers(header + line(peer, 1, 1, 3)), ElementsAre("10.66.66.3"));
  EXPECT_THAT(silent_peers(line(peer, 1, 4, 0, 2)), ElementsAre("10.66.66.3"));
  EXPECT_THAT(
      silent_peers(line("0000000000000000FFFF00000342420A", 1, 1, 1)),
      ElementsAre("10.66.66.3"));
  // Nothing is retransmitted; the peer answers probes; another state, timer or user.
  EXPECT_THAT(
      silent_peers(
          line(peer, 1, 1, 0) + line(peer, 1, 4, 0) + line(peer, 2, 1, 3) +
          line(peer, 1, 2, 3) + line(peer, 1, 1, 3, 0, geteuid() + 1) + "junk\n"),
      IsEmpty());
}

}  // namespace tandem::link_watch_test
