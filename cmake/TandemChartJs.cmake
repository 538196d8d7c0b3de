# Sets TANDEM_CHART_JS to the minified Chart.js, which reports embed. Chart.js changes its
# API with each major version; app/report/report.js needs the version in Debian 12 and 13.

set(wanted 3.9)
# The script does not depend on the processor, so a cross build uses the host's script.
find_file(TANDEM_CHART_JS chart.min.js PATHS /usr/share/javascript/chart.js
          NO_CMAKE_FIND_ROOT_PATH
          DOC "Chart.js ${wanted}, minified")
if(NOT TANDEM_CHART_JS)
  message(FATAL_ERROR "Chart.js is missing; apt-get install libjs-chart.js, or set "
                      "TANDEM_CHART_JS to chart.min.js of version ${wanted}")
endif()
file(READ ${TANDEM_CHART_JS} head LIMIT 200)
if(NOT head MATCHES "Chart\\.js v([0-9]+\\.[0-9]+)")
  message(FATAL_ERROR "${TANDEM_CHART_JS} is not Chart.js; set TANDEM_CHART_JS to "
                      "chart.min.js of version ${wanted}")
elseif(NOT CMAKE_MATCH_1 STREQUAL wanted)
  message(FATAL_ERROR "${TANDEM_CHART_JS} is Chart.js ${CMAKE_MATCH_1}, expected ${wanted}; "
                      "set TANDEM_CHART_JS to chart.min.js of version ${wanted}")
endif()
