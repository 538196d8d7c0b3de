#!/usr/bin/python3
"""Tests of the harness, from made-up measurements: figures, goals, missing sides, changes."""
import io
import json
import os
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, os.path.join(HERE, "..", "peers")]
import against  # noqa: E402
from lines import LINES  # noqa: E402
import measure  # noqa: E402
import report  # noqa: E402
from table import ROWS, Row  # noqa: E402


def measured(**values):
    made = measure.Measured()
    made.values = {name.replace("_", " "): value for name, value in values.items()}
    return made


class Report(unittest.TestCase):
    def test_rows_belong_to_lines_and_have_unique_names(self):
        self.assertEqual({row.line for row in ROWS}, set(LINES))
        names = [row.what for row in ROWS]
        self.assertEqual(len(names), len(set(names)))

    def test_a_ratio_is_the_median_of_the_ratios_of_neighboring_runs(self):
        row = Row("step", "x", "ms", "above", "below", ">=", 3, 4)
        made = report.figure(row, measured(above=[30, 80, 10], below=[10, 20, 1]))
        self.assertEqual(made["ratio"]["median"], 4)
        self.assertEqual(made["ratio"]["of_medians"], 3)
        self.assertEqual(made["verdict"], "met, and more")

    def test_goals_have_a_direction(self):
        def verdict(sign, value, least, strive=None):
            return report.verdict(Row("", "", "", "", "", sign, least, strive), value)
        self.assertEqual(verdict(">=", 2.9, 3), "missed")
        self.assertEqual(verdict(">=", 3.1, 3, 4), "met")
        self.assertEqual(verdict("<=", 1.2, 1.25, 1.1), "met")
        self.assertEqual(verdict("<=", 1.3, 1.25, 1.1), "missed")
        self.assertEqual(verdict("+-", 0.86, 0.15), "met")
        self.assertEqual(verdict("+-", 1.16, 0.15), "missed")
        self.assertEqual(verdict(">=", 1, None), "")

    def test_a_missing_side_has_a_reason_and_does_not_stop_the_others(self):
        def fail():
            raise measure.Failed("tandem bench: tandem: error: no such thing")
        with tempfile.TemporaryDirectory() as folder:
            log = measure.Log(os.path.join(folder, "log"))
            sys.stdout, shown = io.StringIO(), sys.stdout
            try:
                found = measure.run_sides(log, "x", 3, {
                    "ours": measure.Side(["a"], lambda: {"ours": 1}),
                    "odd": measure.Side(["c"], lambda: {"odd": {}["ms"]}),
                    "gone": measure.Side(["d"], lambda: {"gone": 1}, "/no/bench_x"),
                    "theirs": measure.Side(["b"], fail)})
            finally:
                sys.stdout = shown
                log.file.close()
        self.assertEqual(found.values, {"ours": [1, 1, 1]})
        made = report.figure(Row("x", "x", "ms", "theirs fp32", "ours"), found)
        self.assertEqual(made["missing"], "theirs fp32: no such thing")
        self.assertIn("| missing |", report.table([made]))
        self.assertIn("build the target bench_x", found.missing["gone"])
        odd = report.figure(Row("x", "x", "ms", "odd", "ours"), found)
        self.assertEqual(odd["missing"], "odd: c: its output was not understood "
                                         "(KeyError: 'ms')")

    def test_a_line_measured_again_replaces_only_its_entries(self):
        entries = [{"kind": "machine", "lines": ["step", "epoch"], "date": "d",
                    "commit": "c", "load average before": 1},
                   {"kind": "row", "line": "epoch", "what": "e"},
                   {"kind": "row", "line": "step", "what": "s"}]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.jsonl")
            self.assertEqual(report.other_lines(path, ["step"]), [])
            measure.Log(path, entries).file.close()
            kept = report.other_lines(path, ["step"])
            self.assertEqual([entry.get("what") for entry in kept], [None, "e"])
            self.assertIn(": epoch", report.origins(kept))
            self.assertEqual(report.other_lines(path, ["step", "epoch"]), [])

    def test_a_change_beyond_both_spreads_is_marked(self):
        row = Row("step", "x", "ms", "above", "below")
        def figure(*above):
            return report.figure(row, measured(above=list(above), below=[1] * len(above)))
        before = {"x": figure(2.9, 3, 3.1)}
        self.assertNotIn("beyond", against.text([figure(3, 3.2, 3.4)], before))
        self.assertIn("1.333 | beyond", against.text([figure(3.9, 4, 4.1)], before))
        self.assertEqual(against.text([figure(1)], {"y": before["x"]}),
                         "No figure is in both.")

    def test_a_wrong_file_to_compare_with_is_an_error_of_one_line(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "x.jsonl")
            for content in ("", "{", "[1]", json.dumps({"kind": "run"})):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(content)
                with self.assertRaisesRegex(SystemExit, "^bench: --against [^\n]*$"):
                    against.read_rows(path)
            with self.assertRaisesRegex(SystemExit, "No such file"):
                against.read_rows(path + ".none")


if __name__ == "__main__":
    unittest.main()
