#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tandem::app {

/// One request for a file, or for the rest of it.
struct Transfer {
  // http, https or file.
  std::string url;
  // The whole file's size, and how much of it is there already. The server is asked for
  // what lies between, and cut off where it sends something else.
  int64_t size = 0;
  int64_t offset = 0;
  // It is broken off when less than about a kilobyte a second came for so long.
  int64_t stall_seconds = 30;

  // Called before `take` where the server sends the file from its beginning, although
  // it was asked for the rest.
  std::function<void()> start_anew;
  // The next bytes. What it throws ends the transfer, and is thrown by transfer().
  std::function<void(const char* data, size_t size)> take;
  // Asked about once a second and more, with the bytes that are there; false ends it.
  std::function<bool(int64_t there)> go_on;
};

struct TransferEnd {
  enum class Kind {
    // All bytes are there; nobody looked at them.
    whole,
    // It ended in the middle: another request may bring the rest.
    broken,
    // Nothing came for too long: another server is the better choice.
    stalled,
    // This server has no such file.
    refused,
    // The server does not give the rest of the file: it is to be asked for all of it.
    no_rest,
    // go_on() said so.
    stopped
  };
  Kind kind = Kind::whole;
  // For a message: "answered 404"; "" when whole or stopped.
  std::string reason;
};

/// Runs the request to its end. Redirects are followed from http and https to http and
/// https. Proxies are those of the environment (https_proxy, no_proxy, ...). Nothing is
/// kept between calls.
TransferEnd transfer(const Transfer& request);

/// False where this build cannot: then transfer() is not to be called.
bool can_transfer();

}  // namespace tandem::app
