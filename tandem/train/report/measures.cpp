#include "tandem/train/report/measures.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

namespace tandem {

double PeakMemory::sample() {
  if (Clock::now() >= next_) {
    look_now();
  }
  return mib_;
}

double PeakMemory::mib() {
  look_now();
  return mib_;
}

void PeakMemory::look_now() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string line; std::getline(file, line);) {
    double kib = 0;
    if (std::sscanf(line.c_str(), "Pss: %lf kB", &kib) == 1) {
      mib_ = std::max(mib_, kib / 1024);
      break;
    }
  }
  next_ = Clock::now() + std::chrono::seconds(1);
}

}  // namespace tandem
