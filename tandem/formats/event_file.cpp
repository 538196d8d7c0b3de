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
#include "tandem/formats/protobuf.h"

namespace tandem {

namespace {

// --- messages of TensorBoard's event.proto and summary.proto ---

// Returns an Event that has only the present time.
ProtobufMessage event_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  ProtobufMessage event;
  event.add_number(1, std::chrono::duration<double>(now).count());  // wall_time
  return event;
}

ProtobufMessage event_at(int64_t step) {
  ProtobufMessage event = event_now();
  event.add_integer(2, step);  // step
  return event;
}

ProtobufMessage version_event() {
  ProtobufMessage event = event_now();
  event.add(3, "brain.Event:2");  // file_version
  return event;
}

// When TensorBoard reads this event, it removes all earlier events whose step is at
// least `first_step`.
ProtobufMessage start_event(int64_t first_step) {
  ProtobufMessage log;
  log.add_integer(1, 1);  // SessionLog.status: START
  ProtobufMessage event = event_at(first_step);
  event.add(7, log);  // session_log
  return event;
}

ProtobufMessage scalars_event(int64_t step, const Scalars& scalars) {
  ProtobufMessage summary;
  for (const auto& [name, number] : scalars) {
    ProtobufMessage value;
    value.add(1, name);                               // Value.tag
    value.add_number(2, static_cast<float>(number));  // Value.simple_value
    summary.add(1, value);                            // Summary.value
  }
  ProtobufMessage event = event_at(step);
  event.add(5, summary);  // summary
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

// Appends the bytes of a number, little-endian.
template <typename Number>
void append_number(std::string& record, Number value) {
  record.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

std::string record_of(const ProtobufMessage& event) {
  std::string record;
  append_number(record, static_cast<uint64_t>(event.bytes().size()));
  append_number(record, masked_crc(record));
  record += event.bytes();
  append_number(record, masked_crc(event.bytes()));
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
