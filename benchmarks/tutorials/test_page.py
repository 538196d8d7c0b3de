#!/usr/bin/python3
"""The tutorials' pages are those that scripts/tutorials makes of their figures, and name
every recipe of a tutorial. Measures nothing."""
import glob
import os
import re
import sys
import tomllib
import unittest
import xml.dom.minidom

HERE = os.path.dirname(os.path.realpath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, os.path.join(HERE, "..", "harness"), os.path.join(HERE, "..", "peers")]
import json  # noqa: E402
import lines  # noqa: E402
import page  # noqa: E402
from programs import BY_KEY, PAGES, PROGRAMS, ROOT, printed_by_tutorial  # noqa: E402
import svg  # noqa: E402


NOTHING = {"runs": {}, "examples": {}}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def pages():
    """{path: text} of the pages in the repository."""
    paths = [template.replace(".in.md", ".md") for template in page.TEMPLATES]
    return {path: read(path) for path in paths}


class Tutorials(unittest.TestCase):
    def test_files_are_those_that_the_script_makes(self):
        record = json.loads(read(os.path.join(PAGES, "figures.json")))
        for path, text in page.files(record).items():
            self.assertTrue(os.path.exists(path) and read(path) == text,
                            f"{path} differs; run scripts/tutorials --render-only")

    def test_every_recipe_of_a_tutorial_is_on_a_page(self):
        text = "\n".join(pages().values())
        for path in glob.glob(os.path.join(ROOT, "recipes", "*.toml")):
            if "tutorial" in tomllib.loads(read(path)):
                name = re.escape(os.path.basename(path).removesuffix(".toml"))
                self.assertTrue(re.search(f"tandem (train|scaling) {name} ", text), path)

    def test_every_program_of_a_tutorial_is_run(self):
        programs = {os.path.basename(path) for path in glob.glob(
            os.path.join(ROOT, "benchmarks", "peers", "tutorials", "0*.py"))}
        run = {program.peer[0] for program in PROGRAMS if program.peer}
        self.assertEqual(programs - run, {"002_spawn.py"})

    def test_links_lead_to_files(self):
        for path, text in pages().items():
            for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
                self.assertTrue(os.path.exists(os.path.join(PAGES, target)), (path, target))

    def test_pages_render_before_anything_is_measured(self):
        for template in page.TEMPLATES:
            page.render(NOTHING, page.read_template(template))
        text, _ = page.render(NOTHING, "{{overview}}")
        self.assertIn("| single-process | 1 | 52.3 s | not measured | not measured |", text)

    def test_overview_can_show_one_tutorial(self):
        text, _ = page.render(NOTHING, "{{overview 003}}")
        self.assertIn("| ddp-manual | 2 | 91.3 s, 99.24 % |", text)
        self.assertNotIn("single-process", text)

    def test_unknown_words_runs_and_examples_are_errors(self):
        for wrong in ("{{command ddpp}}", "{{figure single-process}}", "{{figures ddp ddpp}}",
                      "{{scaling ddp}}", "{{example lunch}}"):
            with self.assertRaises(ValueError):
                page.render(NOTHING, wrong)

    def test_shortened_runs_name_their_epochs_unless_ranks_converged(self):
        side = {"epochs": 2, "limit": 0, "tail": []}
        told = page.Page.epochs_text
        self.assertEqual(told("ddp", side), "2 of 14")
        self.assertEqual(told("ddp", {**side, "epochs": 14}), "14")
        self.assertEqual(told("ddp", {**side, "limit": 100}), "2 of 14, 100 samples")
        ended = ["--- Converged on rank 0 after 12 epochs ---"]
        self.assertEqual(told("hogwild-1", {**side, "epochs": 12, "tail": ended}), "12")


class Lines(unittest.TestCase):
    def test_are_sorted_by_their_places(self):
        found = lines.numbered(BY_KEY["ddp-linear"], printed_by_tutorial("ddp-linear"))
        self.assertEqual(len(found), 60)
        first, tenth, last = [found[i] for i in lines.shown(60)]
        self.assertEqual(first, "Rank: 0, Epoch: 0, Batch: 0, Loss: 2.4008755683898926")
        self.assertEqual(tenth, "Rank: 1, Epoch: 0, Batch: 200, Loss: 0.47861358523368835")
        self.assertEqual(last, "Rank: 3, Epoch: 4, Batch: 200, Loss: 0.23122680187225342")

    def test_are_all_shown_if_there_are_few(self):
        self.assertEqual(lines.shown(1), [0])
        self.assertEqual(lines.shown(4), [0, 3])

    def test_have_the_curve_of_tutorial_001(self):
        found = lines.curve(printed_by_tutorial("hogwild-1").splitlines())
        self.assertEqual(len(found), 20)
        self.assertEqual(found[19], (20, 1.485495, 97.6))

    def test_name_the_ranks_that_converged(self):
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
