#pragma once

#include <optional>
#include <string>
#include <vector>

namespace tandem::app {

/// A run's row in a chart of one figure.
struct DotRow {
  std::string name;
  double value = 0;
  // Colour, as its line's; none: without one.
  std::optional<size_t> slot;
  bool wins = false;
  // Of repeated runs.
  std::optional<double> least;
  std::optional<double> most;
  // The document's.
  std::optional<double> document;
};

/// One figure of all runs, a dot each: from zero, or by its logarithm where some would
/// be lost beside others.
struct DotChart {
  std::string id;
  std::string title;
  // Behind the title, such as "MB per rank".
  std::string unit;
  std::vector<DotRow> rows;
};

size_t count_documents(const DotChart& chart);

/// An <svg> element whose classes chart.css colours.
std::string draw(const DotChart& chart);

}  // namespace tandem::app
