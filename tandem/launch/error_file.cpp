#include "tandem/launch/error_file.h"

#include <fmt/core.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "tandem/base/error.h"
#include "tandem/base/files.h"

namespace tandem {

namespace {

using nlohmann::json;

// Describes the end of a rank that reported no error.
std::string message_for(const RankFailure& failure) {
  const int signal = failure.status.signal;
  if (signal == 0) {
    return fmt::format("PID {} exited with code {}", failure.pid, failure.status.code);
  }
  const char* name = sigabbrev_np(signal);
  return fmt::format(
      "Signal {} (SIG{}) received by PID {}", signal, name == nullptr ? "?" : name,
      failure.pid);
}

// Returns the member "message" of an object, or null.
json member_message(const json& value) {
  return value.is_object() && value.contains("message") ? value["message"] : json();
}

// Programs write {"message": {"message": TEXT, ...}} or {"message": TEXT}.
std::optional<std::string> text_of(const json& content) {
  const json message = member_message(content);
  const json text = message.is_object() ? member_message(message) : message;
  return text.is_string() ? std::optional(text.get<std::string>()) : std::nullopt;
}

}  // namespace

std::optional<std::string> message_in_error_file(const std::string& path) {
  constexpr size_t kMostBytes = 16 << 20;
  if (!file_exists(path)) {
    return std::nullopt;
  }
  try {
    const auto content = json::parse(read_file(path, kMostBytes), nullptr, false);
    const auto text = text_of(content);
    return text ? std::optional(printable(text->substr(0, text->find('\n'))))
                : std::nullopt;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

void write_error_file(const std::string& path, const RankFailure& failure) {
  const int code =
      failure.status.signal != 0 ? -failure.status.signal : failure.status.code;
  const json content = {
      {"message",
       {{"message", failure.message.empty() ? message_for(failure) : failure.message},
        {"errorCode", code},
        {"extraInfo", {{"timestamp", std::to_string(failure.time)}}}}}};
  // Messages may contain invalid UTF-8.
  replace_file(
      path, content.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
}

}  // namespace tandem
