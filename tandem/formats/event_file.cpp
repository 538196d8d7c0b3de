#include "tandem/formats/event_file.h"

#include <fcntl.h>
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "tandem/base/files.h"
#include "tandem/base/host.h"

namespace tandem {

namespace {

// --- messages of protocol buffers ---

// Wire types of fields.
enum class Wire { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_varint(std::string& message, uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    message += static_cast<char>(value | 0x80);
  }
  message += static_cast<char>(value);
}

void append_key(std::string& message, int field, Wire wire) {
  append_varint(message, static_cast<uint64_t>(field << 3 | static_cast<int>(wire)));
}

// Appends the bytes of a number. All supported processors are little-endian.
template <typename Number>
void append_fixed(std::string& message, Number value) {
  message.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_bytes(std::string& message, int field, const std::string& bytes) {
  append_key(message, field, Wire::bytes);
  append_varint(message, bytes.size());
  message += bytes;
}

// --- messages of TensorBoard's event.proto and summary.proto ---

// Returns an Event that has only the present time.
std::string event_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  std::string event;
  append_key(event, 1, Wire::fixed64);  // wall_time
  append_fixed(event, std::chrono::duration<double>(now).count());
  return event;
}

std::string event_at(int64_t step) {
  std::string event = event_now();
  append_key(event, 2, Wire::varint);  // step
  append_varint(event, static_cast<uint64_t>(step));
  return event;
}

std::string version_event() {
  std::string event = event_now();
  append_bytes(event, 3, "brain.Event:2");  // file_version
  return event;
}

// When TensorBoard reads this event, it removes all earlier events whose step is at
// least `first_step`.
std::string start_event(int64_t first_step) {
  std::string log;
  append_key(log, 1, Wire::varint);  // SessionLog.status
  append_varint(log, 1);             // START
  std::string event = event_at(first_step);
  append_bytes(event, 7, log);  // session_log
  return event;
}

std::string scalars_event(int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [name, number] : scalars) {
    std::string value;
    append_bytes(value, 1, name);         // Value.tag
    append_key(value, 2, Wire::fixed32);  // Value.simple_value
    append_fixed(value, static_cast<float>(number));
    append_bytes(summary, 1, value);  // Summary.value
  }
  std::string event = event_at(step);
  append_bytes(event, 5, summary);  // summary
  return event;
}

// --- records ---

constexpr std::array<uint32_t, 256> crc32c_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    table[byte] = crc;
  }
  return table;
}

// A TFRecord masks its checksums, because a CRC of data that contains CRCs is weak.
uint32_t masked_crc(const std::string& bytes) {
  const uint32_t crc = crc32c(bytes.data(), bytes.size());
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

std::string record_of(const std::string& event) {
  std::string record;
  append_fixed(record, static_cast<uint64_t>(event.size()));
  append_fixed(record, masked_crc(record));
  record += event;
  append_fixed(record, masked_crc(event));
  return record;
}

constexpr const char* kPrefix = "events.out.tfevents.";
// Largest number with ten digits.
constexpr long long kLargestNumber = 9'999'999'999;

// Returns the path of a new event file. The number in its name is the present time in
// seconds, or a larger number if the directory has a file with this time or a later
// time.
std::string new_path(const std::string& directory) {
  make_directories(directory);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  long long number = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  for (const auto& name : list_directory(directory)) {
    if (name.rfind(kPrefix, 0) == 0) {
      const char* digits = name.c_str() + std::strlen(kPrefix);
      number = std::max(number, std::min(std::atoll(digits), kLargestNumber - 1) + 1);
    }
  }
  return fmt::format("{}/{}{:010}.{}", directory, kPrefix, number, host_name());
}

}  // namespace

uint32_t crc32c(const void* data, size_t size) {
  static constexpr auto kTable = crc32c_table();
  const auto* bytes = static_cast<const uint8_t*>(data);
  uint32_t crc = ~0u;
  for (size_t i = 0; i < size; ++i) {
    crc = crc >> 8 ^ kTable[(crc ^ bytes[i]) & 0xff];
  }
  return ~crc;
}

EventFile::EventFile(const std::string& directory, int64_t first_step)
    : file_(new_path(directory), O_EXCL) {
  file_.append(record_of(version_event()) + record_of(start_event(first_step)));
}

void EventFile::add(int64_t step, const Scalars& scalars) {
  file_.append(record_of(scalars_event(step, scalars)));
}

}  // namespace tandem
