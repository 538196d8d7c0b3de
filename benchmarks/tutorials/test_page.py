#!/usr/bin/python3
"""docs/documents.md is what scripts/documents makes of its record, and names every recipe of
the documents. Measures nothing."""
import glob
import os
import re
import sys
import unittest
import xml.dom.minidom

HERE = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, os.path.join(HERE, "..", "harness"), os.path.join(HERE, "..", "peers")]
import json  # noqa: E402
import lines  # noqa: E402
import page  # noqa: E402
from programs import BY_KEY, PROGRAMS, ROOT, printed_by_document  # noqa: E402
import svg  # noqa: E402


def read(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


class Documents(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.record = json.loads(read("docs", "documents.json"))

    def test_the_files_are_what_the_script_makes(self):
        for path, text in page.files(self.record).items():
            name = os.path.relpath(path, ROOT)
            self.assertTrue(os.path.exists(path) and read(name) == text,
                            f"{name} is not of its record; scripts/documents --render-only")

    def test_every_recipe_of_a_document_is_on_the_page(self):
        text = read("docs", "documents.md")
        for path in glob.glob(os.path.join(ROOT, "recipes", "00*.toml")):
            name = re.escape(os.path.basename(path))
            self.assertTrue(re.search(f"tandem (train|scaling) recipes/{name}", text), path)

    def test_every_program_of_a_document_is_run(self):
        programs = {os.path.basename(path) for path in glob.glob(
            os.path.join(ROOT, "benchmarks", "peers", "documents", "0*.py"))}
        run = {program.peer[0] for program in PROGRAMS if program.peer}
        self.assertEqual(programs - run, {"002_spawn.py"})

    def test_links_of_the_page_lead_somewhere(self):
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", read("docs", "documents.md")):
            self.assertTrue(os.path.exists(os.path.join(ROOT, "docs", target)), target)

    def test_the_page_renders_before_anything_is_measured(self):
        text, _ = page.render({"runs": {}, "examples": {}}, page.read_template())
        self.assertIn("| 000-single | 1 | 52.3 s | not measured | not measured |", text)

    def test_a_word_or_run_that_is_not_there_is_an_error(self):
        for wrong in ("{{command 000-double}}", "{{figure 000-single}}", "{{example lunch}}"):
            with self.assertRaises(ValueError):
                page.render({"runs": {}, "examples": {}}, wrong)

    def test_shortened_runs_say_so_and_converged_ones_do_not(self):
        side = {"epochs": 2, "limit": 0, "tail": []}
        told = page.Page.epochs_text
        self.assertEqual(told("003-ddp", side), "2 of 14")
        self.assertEqual(told("003-ddp", {**side, "epochs": 14}), "14")
        self.assertEqual(told("003-ddp", {**side, "limit": 100}), "2 of 14, 100 samples")
        ended = ["--- Converged on rank 0 after 12 epochs ---"]
        self.assertEqual(told("001-hogwild-1", {**side, "epochs": 12, "tail": ended}), "12")


class Lines(unittest.TestCase):
    def test_are_sorted_by_their_places(self):
        found = lines.numbered(BY_KEY["002-ddp"], printed_by_document("002-ddp"))
        self.assertEqual(len(found), 60)
        first, tenth, last = [found[i] for i in lines.shown(60)]
        self.assertEqual(first, "Rank: 0, Epoch: 0, Batch: 0, Loss: 2.4008755683898926")
        self.assertEqual(tenth, "Rank: 1, Epoch: 0, Batch: 200, Loss: 0.47861358523368835")
        self.assertEqual(last, "Rank: 3, Epoch: 4, Batch: 200, Loss: 0.23122680187225342")

    def test_of_few_all_are_shown(self):
        self.assertEqual(lines.shown(1), [0])
        self.assertEqual(lines.shown(4), [0, 3])

    def test_have_document_001s_curve(self):
        found = lines.curve(printed_by_document("001-hogwild-1").splitlines())
        self.assertEqual(len(found), 20)
        self.assertEqual(found[19], (20, 1.485495, 97.6))

    def test_say_which_ranks_converged(self):
        self.assertEqual(lines.converged(
            ["--- Converged on rank 1 after 18 epochs ---", "Total Time"]), {1: 18})


class Chart(unittest.TestCase):
    def test_is_xml_with_a_line_per_series(self):
        made = svg.chart({"a < b": [(1, 2.0), (2, 3.0)], "one": [(1, 5.0)], "none": []},
                         "x", "y")
        parsed = xml.dom.minidom.parseString(made)
        self.assertEqual(len(parsed.getElementsByTagName("polyline")), 2)

    def test_ticks_are_round(self):
        self.assertEqual(svg.ticks(0, 10), [0, 2, 4, 6, 8, 10])
        self.assertEqual(svg.ticks(1.48, 2.05), [1.5, 1.6, 1.7, 1.8, 1.9, 2.0])


if __name__ == "__main__":
    unittest.main()
