#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace tandem {

/// Returns the charts in `page`, the text of report.html. app/report/report_charts.h
/// describes the format of the charts.
inline nlohmann::json charts_in(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"charts\">";
  const size_t at = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
}

/// Returns the number of items in the lists named `list`, such as "points" or
/// "tutorial", of all lines in a chart. In a chart with bars, counts the bars that have
/// a value named `list`. Returns -1 if there is no such chart.
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
