#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "app/report/conclusions.h"

namespace tandem::app {

struct ReportPage {
  // One file that loads nothing; without scripts it shows the same.
  std::string html;
  // Its first chart as SVG.
  std::string picture;
};

/// report.html filled in. `table`: as conclude() left it.
ReportPage make_page(
    const nlohmann::ordered_json& table, const Conclusions& conclusions);

}  // namespace tandem::app
