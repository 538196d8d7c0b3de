#include "tandem/data/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "tandem/base/error.h"
#include "tandem/data/csv_text.h"
#include "tests/core/expect.h"
#include "tests/core/most_memory.h"
#include "tests/scratch.h"

namespace tandem::csv_test {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

CsvTable parse(std::string_view text) {
  return parse_csv(text, "t.csv");
}

std::string refusal(std::string_view text) {
  return error_of<DataError>([&] { parse(text); });
}

std::string refusal(
    std::string_view text, const std::vector<CsvColumn>& columns,
    const std::string& may_lack = "") {
  return error_of<DataError>([&] { parse_csv(text, "t.csv", columns, may_lack); });
}

std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  std::memcpy(bits.data(), values.data(), values.size() * sizeof(float));
  return bits;
}

TEST(Csv, NumbersAndCategoriesAreReadRowByRow) {
  const Scratch scratch;
  replace_file(scratch / "t.csv", "size,kind,price\n1.5,tree,-2e3\n-7,bush,.25\n");
  const CsvTable table = read_csv(scratch / "t.csv");
  EXPECT_THAT(names_of(table.columns), ElementsAre("size", "kind", "price"));
  EXPECT_THAT(table.columns[0].categories, IsEmpty());
  EXPECT_THAT(table.columns[1].categories, ElementsAre("bush", "tree"));
  EXPECT_EQ(table.num_rows, 2);
  EXPECT_THAT(table.values, ElementsAre(1.5F, 1, -2000, -7, 0, .25F));
}

TEST(Csv, QuotedCellsContainCommasQuotesAndLineBreaks) {
  const CsvTable table =
      parse("\"a,\"\"b\"\"\",x\r\n\"one\r\ntwo\",\"1\"\r\n\"\"\"\",2\r\n");
  EXPECT_THAT(names_of(table.columns), ElementsAre("a,\"b\"", "x"));
  EXPECT_THAT(table.columns[0].categories, ElementsAre("\"", "one\r\ntwo"));
  EXPECT_THAT(table.values, ElementsAre(1, 1, 0, 2));
}

TEST(Csv, ByteOrderMarkAndLineEndsDoNotChangeTheTable) {
  for (const char* text :
       {"a,b\n1,2\n3,4", "a,b\n1,2\n3,4\n", "a,b\r\n1,2\r\n3,4\r\n",
        "\xef\xbb\xbf"
        "a,b\n1,2\n3,4\n\n\r\n\n",
        "a,b\n1,2\r\n\"3\",\"4\""}) {
    SCOPED_TRACE(text);
    const CsvTable table = parse(text);
    EXPECT_THAT(names_of(table.columns), ElementsAre("a", "b"));
    EXPECT_EQ(table.num_rows, 2);
    EXPECT_THAT(table.values, ElementsAre(1, 2, 3, 4));
  }
}

TEST(Csv, SpacesAroundNumbersAreIgnoredButBelongToTexts) {
  const CsvTable table = parse("x,y\n 1 ,a\n\t+2, a\n");
  EXPECT_THAT(table.values, ElementsAre(1, 1, 2, 0));
  EXPECT_THAT(table.columns[1].categories, ElementsAre(" a", "a"));
}

TEST(Csv, NumbersAreRoundedToFloat32) {
  EXPECT_THAT(
      bits_of(
          parse("x\n16777217\n0.1\n1e-50\n-1e-50\n1e-45\n3.4028235e38\n-0\n").values),
      ElementsAre(0x4b800000, 0x3dcccccd, 0, 0x80000000, 1, 0x7f7fffff, 0x80000000));
  // A number has no prefix, unit or second sign.
  for (const char* text : {"0x10", "1 2", "5%", "+-1", "--1", "1e", "1.2.3"}) {
    EXPECT_EQ(parse(std::string("x\n") + text + "\n").columns[0].categories.size(), 1u)
        << text;
  }
}

TEST(Csv, CategoriesDoNotDependOnTheOrderOfRows) {
  const CsvTable one = parse("c,x\nb,1\n\xc3\xa4,2\nB,3\nb,4\n");
  const CsvTable other = parse("c,x\nB,3\nb,4\nb,1\n\xc3\xa4,2\n");
  EXPECT_EQ(to_text(one.columns), to_text(other.columns));
  EXPECT_THAT(one.columns[0].categories, ElementsAre("B", "b", "\xc3\xa4"));
  EXPECT_THAT(one.values, ElementsAre(1, 1, 2, 2, 0, 3, 1, 4));
}

TEST(Csv, ATextAmongNineTenthsNumbersIsAnError) {
  std::string text = "x,id\n";
  for (int i = 0; i < 9; ++i) {
    text += std::to_string(i) + ",a\n";
  }
  expect_parts(
      refusal(text + "n/a,a\n"),
      {"column 'x' in line 11 of 't.csv' is text in a numeric column",
       "('n/a'; 9 of 10 cells are numbers)"});
  // With 9 of 11 cells, numbers are also texts.
  const CsvTable table = parse(text + "n/a,a\nn/a,b\n");
  EXPECT_THAT(
      table.columns[0].categories,
      ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8", "n/a"));
}

TEST(Csv, NumbersWithSeparatorsAreReportedWithLineAndColumn) {
  for (const char* cell :
       {"3,5", "-0,25", "1,200", "1,200.50", "1,234,567", "1.200,5", "1.234.567",
        "1 200", "1'200'300.5", " 12,5 "}) {
    EXPECT_TRUE(has_number_separators(cell)) << cell;
    const std::string quoted = std::string("\"") + cell + "\"";
    EXPECT_THAT(
        refusal("x,price\n1," + quoted + "\n2,7\n"),
        AllOf(
            HasSubstr("column 'price' in line 2 of 't.csv' is '" + std::string(cell)),
            HasSubstr("a decimal comma or thousands separators, expected a decimal")));
    EXPECT_THAT(
        refusal("x,price\n1,7\n2," + quoted + "\n", {{"x", {}}, {"price", {}}}),
        HasSubstr("column 'price' in line 3 of 't.csv' is '" + std::string(cell)));
  }
  for (const char* cell :
       {"", ",", "5,", ",5", "1,2,3", "12 34", "2020.01.02", "1,2000,5", "10.0.0.1",
        "a,5", "1.5", "1200", "1,200,", "1 234,567 8"}) {
    EXPECT_FALSE(has_number_separators(cell)) << cell;
  }
  // Texts and such numbers are categories.
  EXPECT_THAT(
      parse("x\n\"1,5\"\nred\n").columns[0].categories, ElementsAre("1,5", "red"));
}

TEST(Csv, AChoiceOfColumnsNamesThemOrLeavesThemOut) {
  // The column "id" has an empty cell, and "-z" begins with a hyphen.
  const char* text = "id,x,y,-z\n,1,2,3\n7,4,5,6\n";
  const auto chosen = [&](const std::vector<std::string>& columns) {
    const CsvTable table = parse_csv(text, "t.csv", CsvChoice{columns, {"y"}, {}});
    EXPECT_EQ(table.values.size(), 2 * table.columns.size());
    return names_of(table.columns);
  };
  EXPECT_THAT(chosen({"x"}), ElementsAre("x", "y"));
  EXPECT_THAT(chosen({"-z", "x"}), ElementsAre("x", "y", "-z"));
  EXPECT_THAT(chosen({"-id"}), ElementsAre("x", "y", "-z"));
  EXPECT_THAT(chosen({"all", "-id", "-x"}), ElementsAre("y", "-z"));
  const auto error = [&](const std::vector<std::string>& columns) {
    return error_of<ConfigError>([&] { chosen(columns); });
  };
  EXPECT_THAT(
      error({"w"}), HasSubstr("columns names the column 'w', expected a column"));
  EXPECT_THAT(error({"-w"}), HasSubstr("columns names the column 'w', expected"));
  EXPECT_THAT(error({"x", "-id"}), HasSubstr("names with and without a hyphen"));
}

TEST(Csv, ChosenNumbersAreCategories) {
  const CsvTable table = parse_csv(
      "zip,x\n24103,1\n01067,2\n24103,3\n", "t.csv", CsvChoice{{}, {}, {"zip"}});
  EXPECT_THAT(table.columns[0].categories, ElementsAre("01067", "24103"));
  EXPECT_THAT(table.values, ElementsAre(1, 1, 0, 2, 1, 3));
  const auto refused = error_of<ConfigError>([] {
    parse_csv("zip\n1\n", "t.csv", CsvChoice{{}, {}, {"zap"}});
  });
  EXPECT_THAT(refused, HasSubstr("categories names the column 'zap'"));
  EXPECT_THAT(refused, HasSubstr("did you mean 'zip'"));
}

TEST(Csv, OtherColumnsOfAFileCanBeIgnored) {
  const CsvTable table = parse_csv("id,x\n,3\n", "t.csv", {{"x", {}}}, "", true);
  EXPECT_THAT(table.values, ElementsAre(3));
}

TEST(Csv, InvalidCellsAreReportedWithLineAndColumn) {
  struct Case {
    const char* text;
    const char* place;
    const char* what;
  };
  const std::vector<Case> cases = {
      {"x,y\n1,2\n3,\n", "column 'y' in line 3 of 't.csv' ", "is empty"},
      {"x,y\n1,2\n  ,4\n", "column 'x' in line 3 of 't.csv' ", "is empty"},
      {"x,y\n1,\"\"\n", "column 'y' in line 2 of 't.csv' ", "is empty"},
      {"x,y\na,1\n,2\n", "column 'x' in line 3 of 't.csv' ", "is empty"},
      {"x,y\n1,NaN\n", "column 'y' in line 2 of 't.csv' ",
       "is 'NaN', expected a finite"},
      {"x,y\na,1\n-inf,1\n", "column 'x' in line 3 of 't.csv' ", "is '-inf', expected"},
      {"x,y\n1,1e39\n", "column 'y' in line 2 of 't.csv' ", "range of float32"},
      {"x,y\n1,-1e999\n", "column 'y' in line 2 of 't.csv' ", "is '-1e999'"},
      {"x,y\n\"a\n\n\",1\nb,nan\n", "column 'y' in line 5 of 't.csv' ", "is 'nan'"}};
  for (const auto& [text, place, what] : cases) {
    EXPECT_THAT(refusal(text), AllOf(HasSubstr(place), HasSubstr(what))) << text;
  }
}

TEST(Csv, InvalidLinesAreReported) {
  struct Case {
    std::string text;
    std::string said;
  };
  const std::vector<Case> cases = {
      {"x,y\n1,2\n3\n", "line 3 of 't.csv' has 1 cells, expected 2"},
      {"x,y\n1,2,3\n", "line 2 of 't.csv' has 3 cells, expected 2"},
      // The number of cells matters more than their content.
      {"x,y\n,nan,3\n", "line 2 of 't.csv' has 3 cells"},
      {"x,y\n\"1\n\",2\n3\n", "line 4 of 't.csv' has 1 cells"},
      {"x\n1\n\n2\n", "line 3 of 't.csv' is empty"},
      {"x\n1\r\n\r\n2\r\n", "line 3 of 't.csv' is empty"},
      {"\nx\n1\n", "line 1 of 't.csv' is empty"},
      {"x\na\n\"b\nc\n", "line 3 of 't.csv' has a quote that is not closed"},
      {"x\n\"a\nb\" c\n", "line 3 of 't.csv' has text after a closing quote"},
      {"x\n5\"\n", "line 2 of 't.csv' has a quote in a cell without quotes"},
      {"x\r1\r2\r", "line 1 of 't.csv' has a carriage return without a line feed"},
      {"x\n1\r", "line 2 of 't.csv' has a carriage return without a line feed"},
      {std::string("x\n1\n\0\n", 6), "line 3 of 't.csv' has a NUL byte"},
      {"x\xfc,y\n1,2\n",
       "line 1 of 't.csv' has the byte fc at position 2, expected text in UTF-8; "
       "convert the file, for example with iconv"},
      {"x,y\nK\xc3\xb6ln,1\nKiel,K\xf6ln\n",
       "line 3 of 't.csv' has the byte f6 at position 7"}};
  for (const auto& [text, said] : cases) {
    EXPECT_THAT(refusal(text), HasSubstr(said)) << text;
  }
}

TEST(Csv, InvalidHeadersAreReported) {
  struct Case {
    std::string text;
    std::string said;
  };
  std::string wide = "c0";
  for (int i = 1; i <= 1 << 17; ++i) {
    wide += ",c" + std::to_string(i);
  }
  const std::vector<Case> cases = {
      {"", "'t.csv' is empty, expected a line of column names"},
      {"\xef\xbb\xbf\n", "'t.csv' is empty"},
      {"x,y\n", "'t.csv' has no rows after its header"},
      {"1,2.5\n3,4\n", "line 1 of 't.csv' has only numbers, expected column names"},
      {"x,y,x\n1,2,3\n", "line 1 of 't.csv' has the column name 'x' twice"},
      {"x, ,z\n1,2,3\n", "line 1 of 't.csv' has an empty name for column 2 of 3"},
      {"x,\n1,2\n", "line 1 of 't.csv' has an empty name for column 2 of 2"},
      {"x;y\n1;2\n", "'t.csv' separates its columns with semicolons, expected commas"},
      {"\"x\";\"y,z\"\n1;2\n", "with semicolons"},
      {"x\ty\n1\t2,3\n", "'t.csv' separates its columns with tabs, expected commas"},
      {wide, "line 1 of 't.csv' has 131073 columns, expected at most 131072"}};
  for (const auto& [text, said] : cases) {
    EXPECT_THAT(refusal(text), HasSubstr(said)) << text.substr(0, 100);
  }
  EXPECT_EQ(parse("\"x;y\"\n1\n").columns[0].name, "x;y");
}

TEST(Csv, LongTextsAreCutInErrors) {
  std::string name = std::string(39, 'x') + "\xc3\xa4" + std::string(1000, 'y');
  EXPECT_THAT(
      refusal(name + "\nnan\n"),
      HasSubstr("column '" + std::string(39, 'x') + "...' in line 2"));
}

TEST(Csv, KnownColumnsCanBeInAnotherOrder) {
  const auto columns = parse("x,c,y\n1,b,2\n3,a,4\n5,c,6\n").columns;
  const CsvTable table = parse_csv("y,x,c\n20,10,c\n40,30,b\n", "t.csv", columns);
  EXPECT_EQ(to_text(table.columns), to_text(columns));
  EXPECT_EQ(table.num_rows, 2);
  EXPECT_THAT(table.values, ElementsAre(10, 2, 20, 30, 1, 40));
}

TEST(Csv, OneKnownColumnMayBeMissing) {
  const auto columns = parse("x,c,y\n1,b,2\n3,a,4\n").columns;
  const Scratch scratch;
  replace_file(scratch / "t.csv", "y,x\n4,3\n");
  const CsvTable table = read_csv(scratch / "t.csv", columns, "c");
  EXPECT_THAT(names_of(table.columns), ElementsAre("x", "y"));
  EXPECT_THAT(table.values, ElementsAre(3, 4));
  // The column may also be present.
  EXPECT_THAT(
      parse_csv("y,x,c\n4,3,a\n", "t.csv", columns, "c").values, ElementsAre(3, 0, 4));
  EXPECT_THAT(refusal("y,x\n4,3\n", columns), HasSubstr("'t.csv' has no column 'c'"));
  EXPECT_THAT(refusal("c,x\na,3\n", columns, "c"), HasSubstr("has no column 'y'"));
}

TEST(Csv, DataThatDoesNotFitKnownColumnsIsReported) {
  const auto columns =
      parse("length,kind\n1,f\n2,a\n3,b\n4,e\n5,c\n6,d\n7,g\n").columns;
  struct Case {
    const char* text;
    const char* said;
  };
  const std::vector<Case> cases = {
      {"lenght,kind\n1,a\n", "has no column 'length', did you mean 'lenght'?"},
      {"length,kind,extra\n1,a,2\n",
       "has an extra column 'extra', expected only the columns of the training part "
       "('length', 'kind')"},
      {"length,kind\n1,a\n2,z\n",
       "column 'kind' in line 3 of 't.csv' is 'z', expected a category of the training "
       "part ('a', 'b', 'c', 'd', 'e' and 2 more)"},
      {"length,kind\n1,a\nlong,b\n",
       "column 'length' in line 3 of 't.csv' is text in a numeric column ('long')"},
      {"length,kind\n1,\n", "column 'kind' in line 2 of 't.csv' is empty"},
      {"length,kind\n,a\n", "column 'length' in line 2 of 't.csv' is empty"},
      {"length,kind\ninf,a\n", "column 'length' in line 2 of 't.csv' is 'inf'"},
      {"length,kind\n1\n", "has 1 cells, expected 2"},
      {"length,kind\n", "has no rows"},
      {"length;kind\n1;a\n", "with semicolons"}};
  for (const auto& [text, said] : cases) {
    EXPECT_THAT(refusal(text, columns), HasSubstr(said)) << text;
  }
}

TEST(Csv, WrittenTablesComeBack) {
  CsvTable table;
  table.columns = {
      {"plain", {}}, {"comma, \"quote\"", {"\n", ";", "\xef\xbb\xbfz", "1", "a\"b"}}};
  const std::vector<float> numbers = {
      0.1F, -0.F, 1e-45F, std::numeric_limits<float>::max(), 16777215.F, 1e10F};
  for (size_t i = 0; i < numbers.size(); ++i) {
    table.values.insert(table.values.end(), {numbers[i], static_cast<float>(i % 5)});
  }
  table.num_rows = static_cast<int64_t>(numbers.size());
  const Scratch scratch;
  write_csv(scratch / "t.csv", table);
  const CsvTable back = read_csv(scratch / "t.csv", table.columns);
  EXPECT_EQ(bits_of(back.values), bits_of(table.values));
  EXPECT_EQ(back.num_rows, table.num_rows);

  table.columns = {{"x", {}}};
  table.values = {0.1F, 100, 1e-7F};
  table.num_rows = 3;
  write_csv(scratch / "t.csv", table);
  EXPECT_EQ(read_file(scratch / "t.csv"), "x\n0.1\n100\n1e-07\n");
}

TEST(Csv, ATableWithNanIsNotWritten) {
  const Scratch scratch;
  replace_file(scratch / "t.csv", "old");
  const CsvTable table{{{"x", {}}, {"y", {}}}, 2, {1, 2, 3, std::nanf("")}};
  expect_error<DataError>(
      [&] { write_csv(scratch / "t.csv", table); },
      {"would have nan in row 2, column 'y'"});
  EXPECT_EQ(read_file(scratch / "t.csv"), "old");
  expect_error<DataError>(
      [&] {
        write_csv(scratch / "no/t.csv", {{{"x", {}}}, 1, {1}});
      },
      {"no/t.csv"});
}

TEST(Csv, ColumnsComeBackFromText) {
  const auto columns =
      parse("x,\"a,\nb\"\n1,\"\"\"q\"\"\"\n2,\"two\r\nlines\"\n3,\xe6\x97\xa5\n")
          .columns;
  const std::string text = to_text(columns);
  EXPECT_EQ(text, "x\n\"a,\nb\",\"\"\"q\"\"\",\"two\r\nlines\",\xe6\x97\xa5\n");
  const auto back = columns_from_text(text, "run");
  EXPECT_THAT(names_of(back), ElementsAre("x", "a,\nb"));
  EXPECT_EQ(back[1].categories, columns[1].categories);
  EXPECT_THAT(back[0].categories, IsEmpty());
}

TEST(Csv, DamagedTextOfColumnsIsReported) {
  for (const char* text :
       {"x,b,a\n", "x,a,a\n", "x\nx\n", ",a\n", "x,a,\n", "x,\"a\n"}) {
    EXPECT_THAT(
        error_of<DataError>([&] { columns_from_text(text, "run"); }),
        HasSubstr("of 'run' "))
        << text;
  }
}

TEST(Csv, AFileLargerThanMemoryIsRejected) {
  const Scratch scratch;
  replace_file(scratch / "t.csv", "");
  // The file has no blocks on the disk.
  std::filesystem::resize_file(scratch / "t.csv", uintmax_t{1} << 42);
  expect_error<ConfigError>(
      [&] { read_csv(scratch / "t.csv"); },
      {"has 4398046511104 bytes, more than half of the free memory"});
}

TEST(Csv, ReadingUsesLittleMemory) {
  // Two bytes per cell are the worst case.
  std::string small = "x,y\n";
  for (int i = 0; i < 2 << 20; ++i) {
    small += "1,2\n";
  }
  const auto size_kb = static_cast<int64_t>(small.size() / 1024);
  const int64_t before = most_memory_kb();
  EXPECT_EQ(parse(small).num_rows, 2 << 20);
  EXPECT_LT(most_memory_kb() - before, 5 * size_kb / 2 + 4096);
  // A line has more cells than the reader keeps.
  const std::string commas = "x,y\n" + std::string(8 << 20, ',');
  EXPECT_THAT(refusal(commas), HasSubstr("has 8388609 cells, expected 2"));
  EXPECT_THAT(refusal(commas.substr(3)), HasSubstr("line 1 of 't.csv' is empty"));
  EXPECT_THAT(refusal(commas.substr(4)), HasSubstr("has 8388609 columns"));
  EXPECT_LT(most_memory_kb() - before, 4 * size_kb + 32 * 1024);
}

}  // namespace tandem::csv_test
