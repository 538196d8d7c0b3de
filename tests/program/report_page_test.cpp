// The report as a page: what its parts are, whatever runs are called.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "browser.h"
#include "program.h"

namespace tandem::report_page_test {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// Each part would end an element, begin one, stand for another text, or be replaced.
const char* const kName = R"(</script><!--<script></table>"'&amp;{title}\)";
// As a browser writes that text.
const char* const kShown =
    R"(&lt;/script&gt;&lt;!--&lt;script&gt;&lt;/table&gt;"'&amp;amp;{title}\)";

TEST(ReportPage, NamesStayTextWhateverTheyHold) {
  const Scratch scratch;
  const nlohmann::json table = {
      {"kind", kName},
      {"machine", {{"cpu", kName}}},
      {"rows",
       {{{"name", kName}, {"recipe", kName}, {"status", "done"}, {"wall_seconds", 2.5}},
        {{"name", "b"}, {"recipe", "b"}, {"status", "failed"}, {"reason", kName}}}}};
  replace_file(scratch / "table.json", table.dump());
  ASSERT_TRUE(tandem_run({"report", scratch / ""}).status.ok());
  const auto html = read_file(scratch / "report.html");
  EXPECT_THAT(html, AllOf(Not(HasSubstr("<script></table>")), Not(HasSubstr("<!--"))));
  const auto page = drawn_page(scratch / "report.html", scratch / "profile");
  if (page.empty()) {
    GTEST_SKIP() << "no chromium to open the report in; scripts/setup --ci, then "
                    "scripts/test -R Report";
  }
  const std::string shown = kShown;
  EXPECT_THAT(
      page, AllOf(
                HasSubstr("<p>" + shown + "</p>"), HasSubstr("<td>" + shown + "</td>"),
                HasSubstr("<li>b failed: " + shown + "</li>")));
  EXPECT_THAT(page, HasSubstr("<h1>1 recipe compared</h1>"));
  EXPECT_THAT(page, HasSubstr("<figure id=\"seconds\" data-points=\"1\""));
}

TEST(ReportPage, EveryPlaceholderHasItsText) {
  const Scratch scratch;
  for (const char* kind : {"compare", "scaling"}) {
    const nlohmann::json table = {{"kind", kind}, {"rows", nlohmann::json::array()}};
    replace_file(scratch / "table.json", table.dump());
    ASSERT_TRUE(tandem_run({"report", scratch / ""}).status.ok());
    const auto html = read_file(scratch / "report.html");
    const auto page = html.substr(0, html.find("<script"));
    const auto body = page.substr(page.find("</style>"));
    EXPECT_THAT(body, HasSubstr("<main data-kind=\"" + std::string(kind) + "\">"));
    EXPECT_THAT(body, AllOf(Not(HasSubstr("{")), Not(HasSubstr("}"))));
  }
}

}  // namespace tandem::report_page_test
