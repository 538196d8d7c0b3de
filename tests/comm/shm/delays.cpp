#include "tests/comm/shm/delays.h"

#include <sched.h>

#include <ctime>
#include <random>

namespace tandem {

namespace {

// 0: this thread is not delayed.
thread_local uint64_t delay_state = 0;
thread_local int64_t places_passed = 0;

// Rarely, because a rank that polls calls this all the time.
void delay() {
  if (delay_state == 0) {
    return;
  }
  ++places_passed;
  // Marsaglia's xorshift.
  delay_state ^= delay_state << 13;
  delay_state ^= delay_state >> 7;
  delay_state ^= delay_state << 17;
  const uint64_t chance = delay_state >> 40 & 0x3fff;
  if (chance == 0) {
    timespec nap{};
    nap.tv_nsec = static_cast<long>(delay_state >> 20 & 0x3ffff);  // up to 0.26 ms
    nanosleep(&nap, nullptr);
  } else if (chance < 64) {
    sched_yield();
  }
}

}  // namespace

RandomDelays::RandomDelays(uint64_t seed) {
  delay_state = std::mt19937_64(seed)() | 1;
  places_passed = 0;
}

RandomDelays::~RandomDelays() {
  delay_state = 0;
}

int64_t RandomDelays::num_places() const {
  return places_passed;
}

}  // namespace tandem

extern "C" {
void enter_function(void*, void*) __asm__("__cyg_profile_func_enter");
void leave_function(void*, void*) __asm__("__cyg_profile_func_exit");
}

void enter_function(void*, void*) {
  tandem::delay();
}

void leave_function(void*, void*) {
  tandem::delay();
}
