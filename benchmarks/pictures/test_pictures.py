#!/usr/bin/python3
"""Tests of docs/pictures and of the modules that make them."""
import glob
import os
import re
import struct
import sys
import unittest
import xml.dom.minidom

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.join(HERE, "..", "..")
PICTURES = os.path.join(ROOT, "docs", "pictures")
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, os.path.join(HERE, "..", "harness")]
import charts  # noqa: E402
import draw  # noqa: E402
import sketches  # noqa: E402
import terminal  # noqa: E402
import timeline  # noqa: E402

COUNTER = ("import sys, time\n"
           "print('begins', sys.stdout.isatty())\n"
           "for i in range(4):\n"
           "    print('\\r\\033[K' + str(i) * (4 - i), end='', flush=True)\n"
           "    time.sleep(0.05)\n"
           "print('\\r\\033[Kends')\n")


def svg_files():
    return sorted(glob.glob(os.path.join(PICTURES, "*.svg")))


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def extent(text):
    """The least and the largest x of an SVG text, with the widest of common fonts."""
    size = float(text.getAttribute("font-size"))
    mono = text.getAttribute("font-family") == "monospace"
    width = draw.width_of(text.firstChild.data, size, mono)
    width *= 1.08 if text.getAttribute("font-weight") == "bold" else 1
    left = float(text.getAttribute("x")) - width * {"start": 0, "middle": 0.5, "end": 1}[
        text.getAttribute("text-anchor")]
    return left, left + width


class Terminal(unittest.TestCase):
    def test_a_rewritten_line_appears_once(self):
        self.assertEqual(terminal.screen("one\nepoch 1 ###\r\033[Kepoch 2\n"),
                         ["one", "epoch 2", ""])
        self.assertEqual(terminal.screen("abcdef\rxy\n\tz"), ["xycdef", "        z"])
        self.assertEqual(terminal.screen("\033[1mbold\033[0m"), ["bold"])

    def test_an_unknown_control_sequence_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "control sequence"):
            terminal.screen("\033[2Jempty")

    def test_capture_returns_the_last_screen(self):
        self.assertEqual(terminal.capture([sys.executable, "-c", COUNTER], ROOT, 80),
                         ["begins True", "ends"])

    def test_a_failed_program_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "failed: no data"):
            terminal.capture([sys.executable, "-c", "raise SystemExit('no data')"], ROOT, 80)

    def test_the_picture_wraps_lines_between_words(self):
        svg = terminal.picture("run <x> & y", ["", "50% ███░ 1 < 2"], "a \"title\"", 12)
        texts = [node.firstChild.data
                 for node in xml.dom.minidom.parseString(svg).getElementsByTagName("text")]
        self.assertEqual(texts, ['a "title"', "$ run <x> & y", "50% ███░ 1 <", "  2"])

    def test_the_terminal_of_the_readme_ends_with_the_accuracy(self):
        texts = xml.dom.minidom.parse(
            os.path.join(PICTURES, "terminal.svg")).getElementsByTagName("text")
        self.assertRegex(" ".join(node.firstChild.data for node in texts[-2:]),
                         r"Accuracy: \d+/10000 \(\d+%\) Finished training")


class Pictures(unittest.TestCase):
    def test_pictures_of_the_readme_exist_and_are_small(self):
        for name in re.findall(r"docs/pictures/[a-z-]+\.[a-z]+",
                               read(os.path.join(ROOT, "README.md"))):
            self.assertLess(os.path.getsize(os.path.join(ROOT, name)), 150_000, name)

    def test_the_report_has_its_size_in_pixels(self):
        with open(os.path.join(PICTURES, "report.png"), "rb") as file:
            head = file.read(24)
        self.assertEqual(head[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(struct.unpack(">II", head[16:]), (1200, 800))

    def test_svgs_load_nothing_and_have_literal_colors(self):
        for path in svg_files():
            made = xml.dom.minidom.parse(path)
            self.assertFalse(made.getElementsByTagName("script"), path)
            self.assertTrue(made.getElementsByTagName("title"), path)
            text = read(path)
            self.assertNotRegex(text, r"href|url\(|@import|var\(|currentColor", path)
            for color in re.findall(r'(?:fill|stroke)="([^"]*)"', text):
                self.assertRegex(color, r"^(none|#[0-9a-f]{6})$", path)

    def test_every_text_fits_into_its_picture(self):
        for path in svg_files():
            made = xml.dom.minidom.parse(path)
            width = float(made.documentElement.getAttribute("width"))
            for text in made.getElementsByTagName("text"):
                if not text.hasAttribute("class"):
                    left, right = extent(text)
                    self.assertGreaterEqual(left, 4, text.firstChild.data)
                    self.assertLessEqual(right, width - 4, text.firstChild.data)

    def test_drawn_pictures_are_up_to_date(self):
        drawn = {f"strategy-{name}": make().svg() for name, make in sketches.STRATEGIES.items()}
        drawn |= {"layers": sketches.layers().svg(), "timeline": timeline.draw()}
        for name, svg in drawn.items():
            self.assertEqual(read(os.path.join(PICTURES, name + ".svg")), svg,
                             f"{name}.svg is out of date; run scripts/pictures {name}")

    def test_the_newest_record_of_a_row_is_drawn(self):
        row, machine = charts.record(charts.STEP)
        self.assertEqual(row["what"], charts.STEP)
        self.assertIn(row["line"], machine["lines"])
        with self.assertRaisesRegex(RuntimeError, "scripts/bench"):
            charts.record("no such row")


if __name__ == "__main__":
    unittest.main()
