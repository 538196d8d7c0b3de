// The report as a page: its parts, its names as text, and its charts in a browser.

#include "app/report/run_report.h"

#include <gmock/gmock.h>

#include "report_series.h"
#include "some_runs.h"
#include "tandem/base/process.h"

namespace tandem::report_page_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Each part would end an element, start an element, be an entity or be a placeholder.
const char* const kName = R"(</script><!--<script></table>"'&amp;{title}\)";
// The text as HTML.
const char* const kEscaped =
    R"(&lt;/script&gt;&lt;!--&lt;script&gt;&lt;/table&gt;&quot;'&amp;amp;{title}\)";
// The text as a browser prints it.
const char* const kPrinted =
    R"(&lt;/script&gt;&lt;!--&lt;script&gt;&lt;/table&gt;"'&amp;amp;{title}\)";

using ReportPage = SomeRuns;

// Returns the HTML of a page after a browser has run its scripts; "" if no browser is
// installed. `profile` is a directory for files of the browser.
std::string drawn_page(const std::string& path, const std::string& profile) {
  for (const char* browser : {"/usr/bin/chromium", "/usr/bin/google-chrome"}) {
    if (file_exists(browser)) {
      return run_command(
                 {browser, "--headless", "--no-sandbox", "--disable-gpu",
                  "--user-data-dir=" + profile, "--window-size=1200,1600",
                  "--host-resolver-rules=MAP * ~NOTFOUND", "--dump-dom",
                  "file://" + path},
                 {}, 300)
          .output;
    }
  }
  return "";
}

// Returns the page without embedded scripts and styles.
std::string body_of(const std::string& page) {
  const size_t begin = page.find("<body>");
  return page.substr(begin, page.find("<script", begin) - begin);
}

TEST_F(ReportPage, EveryNameIsEscaped) {
  add("one", {{1, 90}}, {{"name", kName}, {"recipe", kName}, {"directory", "one"}});
  write("one/config.toml", "init = \"" + std::string(kName) + "\"\n");
  write("one/environment.json", nlohmann::json{{"started", kName}}.dump());
  add("b", {}, {{"status", "failed"}, {"reason", kName}});
  const auto page =
      report({{"kind", kName}, {"machine", {{"cpu", kName}, {"libtorch", kName}}}});
  EXPECT_EQ(page.find("<script></table>"), std::string::npos);
  EXPECT_EQ(page.find("<!--"), std::string::npos);
  const std::string escaped = kEscaped;
  EXPECT_THAT(
      body_of(page), AllOf(
                         HasSubstr("<p>" + escaped + ", LibTorch " + escaped + "</p>"),
                         HasSubstr("<td>" + escaped + "</td>"),
                         HasSubstr("<li>b failed: " + escaped + "</li>"),
                         HasSubstr("init = &quot;" + escaped)));
  EXPECT_EQ(charts_in(page)[0]["lines"][0]["run"], kName);
}

TEST_F(ReportPage, EveryPlaceholderHasItsText) {
  for (const char* kind : {"compare", "scaling"}) {
    EXPECT_THAT(
        body_of(report({{"kind", kind}})),
        AllOf(Not(HasSubstr("{")), Not(HasSubstr("}"))));
  }
}

TEST_F(ReportPage, LoadsNothing) {
  add("one", {{1, 90}});
  const auto page = report();
  for (const char* load : {"src=", "href=", "url(", "@import"}) {
    EXPECT_THAT(body_of(page), Not(HasSubstr(load)));
  }
  for (const char* load : {"<script src", "<link rel=\"stylesheet", "@import"}) {
    EXPECT_EQ(page.find(load), std::string::npos) << load;
  }
  EXPECT_NE(page.find("Chart.js v3.9"), std::string::npos);
}

TEST_F(ReportPage, TheTableHasTheResultsWithoutJavaScript) {
  add("one", {{1, 90}}, {{"test_accuracy", 90.0}});
  add("two", {{1, 91}}, {{"test_accuracy", 91.0}});
  add("broken", {}, {{"status", "failed"}, {"reason", "it broke"}});
  const auto body = body_of(report());
  EXPECT_THAT(
      body,
      AllOf(
          HasSubstr("<h1>2 recipes compared</h1>"),
          HasSubstr("<p>3 recipes: 2 done, 1 failed</p>"),
          HasSubstr("<p class=\"verdict\">Best accuracy: two, 91.00 %"),
          HasSubstr("<tr class=\"wins\"><td>two</td><td>-, -</td><td>2</td>"
                    "<td>91.00</td>"),
          HasSubstr("<tr><td>one</td>"),
          HasSubstr("<tr class=\"not-run\"><td>broken (failed)</td>"),
          HasSubstr("<li>broken failed: it broke</li>"), HasSubstr("<noscript>")));
}

TEST_F(ReportPage, TheTableHasTheErrorsOfRegressions) {
  add_errors("one", {{1, 0.5}});
  add_errors("two", {{1, 0.0123456}});
  const auto body = body_of(report());
  EXPECT_THAT(
      body,
      AllOf(
          HasSubstr("<p class=\"verdict\">Best mean absolute error: two, 0.01235"),
          HasSubstr("<th>test MAE</th>"), HasSubstr("<td>2</td><td>0.01235</td>"),
          HasSubstr("test MAE: mean absolute error"), Not(HasSubstr("test %"))));
  add("three", {{1, 90}}, {{"test_accuracy", 90.0}});
  EXPECT_THAT(
      body_of(report()),
      AllOf(
          HasSubstr("<th>test %</th>"), HasSubstr("<th>test MAE</th>"),
          HasSubstr("<td>90.00</td>")));
}

TEST_F(ReportPage, ExplainsOnlyColumnsAndMarksThatItHas) {
  add("one", {{1, 90}});
  EXPECT_THAT(
      body_of(report()), AllOf(
                             HasSubstr("comm ms: time per step"), Not(HasSubstr("GPU")),
                             Not(HasSubstr("Figures of a tutorial"))));
  EXPECT_THAT(body_of(report({{"kind", "scaling"}})), Not(HasSubstr("comm ms")));
  add("two", {{1, 90}},
      {{"peak_device_memory_mib", 7}, {"tutorial", {{"seconds", 3}}}});
  EXPECT_THAT(
      body_of(report()),
      AllOf(
          HasSubstr("GPU MiB: peak memory"), HasSubstr("Figures of a tutorial come")));
}

TEST_F(ReportPage, EveryRunHasItsStartAndItsSettings) {
  add("one", {{1, 90}});
  add("two", {});
  write("one/environment.json", "{\"started\": \"2026-11-25T03:12:58Z\"}");
  write(
      "one/config.toml",
      "format_version = 1\n\n# run\nname = \"x\"\nbatch_size = 32\nepochs = 14\n"
      "optimizer = \"adadelta\"\nout = \"runs/x\"\nlr = 0.5\nnew_setting = 3\n");
  const auto body = body_of(report());
  EXPECT_THAT(
      body,
      HasSubstr("<tr><td>one</td><td>2026-11-25 03:12 UTC</td><td>batch_size = 32, "
                "epochs = 14, lr = 0.5, new_setting = 3</td></tr>"));
  EXPECT_THAT(body, HasSubstr("<tr><td>two</td><td>-</td><td>-</td></tr>"));
}

// Runs after the page's own scripts. Prints what the legend of the first chart shows.
const char* const kClicks = R"(<script>
  const [first] = Object.values(Chart.instances);
  const { legend } = first;
  const print = (id) => {
    const text = document.createElement('p');
    text.textContent = id + ': ' + legend.legendItems.filter((item) => !item.hidden)
      .map((item) => item.text).join(', ');
    document.body.append(text);
  };
  const click = (name) => legend.options.onClick.call(legend, {},
    legend.legendItems.find((item) => item.text.startsWith(name)), legend);
  print('at first');
  click('run8');
  click('run0');
  print('clicked');
  document.body.dataset.charts = Object.keys(Chart.instances).length;
  document.body.dataset.ticks = first.scales.y.ticks.map((tick) => tick.label).join(' ');
</script>)";

TEST_F(ReportPage, ABrowserDrawsEveryChartAndEightLinesAtFirst) {
  for (int i = 0; i < 9; ++i) {
    add("run" + std::to_string(i), {{1, 24}, {2, 98 + 0.1 * i}});
  }
  add("best", {{1, 24}, {2, 100}}, {{"name", kName}, {"directory", "best"}});
  auto page = report({{"target_accuracy", 98}});
  const auto charts = charts_in(page).size();
  EXPECT_GT(charts, 2u);
  page.insert(page.rfind("</body>"), kClicks);
  replace_file(scratch_ / "clicked.html", page);
  const auto drawn = drawn_page(scratch_ / "clicked.html", scratch_ / "profile");
  if (drawn.empty()) {
    GTEST_SKIP() << "no chromium to open the report in; scripts/setup --ci, then "
                    "scripts/test -R Report";
  }
  const std::string name = kPrinted;
  EXPECT_NE(drawn.find("<td>" + name + "</td>"), std::string::npos);
  const std::string body = drawn.substr(drawn.find("<body"), 1000);
  EXPECT_THAT(
      body.substr(0, body.find(">")),
      AllOf(
          HasSubstr("data-charts=\"" + std::to_string(charts) + "\""),
          // The axis shows the logarithm of errors and ends at 100.
          testing::ContainsRegex("data-ticks=.*50 .*90 .*95 .*99 .*100\"")));
  EXPECT_THAT(
      drawn.substr(drawn.rfind("</script>")),
      AllOf(
          HasSubstr(
              "<p>at first: ★ " + name + ": 98 % after 2 s, " + name +
              " (100.00 %), run8 (98.80 %), run7 (98.70 %), run6 (98.60 %), run5 "
              "(98.50 "
              "%), run4 (98.40 %), run3 (98.30 %), run2 (98.20 %), target 98 %</p>"),
          HasSubstr(
              " (100.00 %), run7 (98.70 %), run6 (98.60 %), run5 (98.50 %), run4 "
              "(98.40 "
              "%), run3 (98.30 %), run2 (98.20 %), run0 (98.00 %), target 98 %</p>")));
}

}  // namespace tandem::report_page_test
