#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tandem {

/// The charts in report.html; see report_charts.h.
inline nlohmann::json charts_in(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"charts\">";
  const size_t at = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
}

/// Items of a list in all lines ("points", "tutorial") or bars of a chart; a bar has
/// one value. -1 if there is no such chart.
inline int64_t count_in_chart(
    const nlohmann::json& charts, const std::string& id, const std::string& list) {
  for (const auto& chart : charts) {
    if (chart["id"] != id) {
      continue;
    }
    int64_t count = 0;
    for (const auto& one :
         chart.value("lines", chart.value("bars", nlohmann::json()))) {
      count += one.contains(list) ? one[list].is_array() ? one[list].size() : 1 : 0;
    }
    return count;
  }
  return -1;
}

}  // namespace tandem
