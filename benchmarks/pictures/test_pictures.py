#!/usr/bin/python3
"""Tests of pictures of terminals, and of the README's pictures."""
import os
import re
import struct
import sys
import unittest
import xml.dom.minidom

HERE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.dont_write_bytecode = True
sys.path.insert(0, HERE)
import terminal  # noqa: E402

COUNTER = ("import sys, time\n"
           "print('begins', sys.stdout.isatty())\n"
           "for i in range(4):\n"
           "    print('\\r\\033[K' + str(i) * (4 - i), end='', flush=True)\n"
           "    time.sleep(0.05)\n"
           "print('\\r\\033[Kends')\n")


class Terminal(unittest.TestCase):
    def test_a_line_that_is_written_again_stands_once(self):
        self.assertEqual(terminal.screen("one\nepoch 1 ###\r\033[Kepoch 2\n"),
                         ["one", "epoch 2", ""])
        self.assertEqual(terminal.screen("abcdef\rxy\n\tz"), ["xycdef", "        z"])

    def test_what_it_does_not_know_it_does_not_leave_out(self):
        with self.assertRaisesRegex(ValueError, "control sequence"):
            terminal.screen("\033[31mred\033[0m")

    def test_a_program_is_shown_at_its_work(self):
        lines = terminal.capture([sys.executable, "-c", COUNTER], ROOT, 80,
                                 lambda lines: lines[-1].startswith("2"))
        self.assertEqual(lines, ["begins True", "22"])

    def test_a_program_that_fails_or_never_gets_there_is_an_error(self):
        for code, words in (("raise SystemExit('no data')", "failed: no data"),
                            ("print('other')", "never showed")):
            with self.assertRaisesRegex(RuntimeError, words):
                terminal.capture([sys.executable, "-c", code], ROOT, 80, lambda lines: False)

    def test_the_picture_has_every_line_as_text(self):
        svg = terminal.picture("run <x> & y", ["", "50% ███░ 1 < 2"], "a \"title\"", 9)
        texts = [node.firstChild.data
                 for node in xml.dom.minidom.parseString(svg).getElementsByTagName("text")]
        self.assertEqual(texts, ['a "title"', "$ run <x> & y", "50% ███░ ", "1 < 2"])


class Pictures(unittest.TestCase):
    def test_those_of_the_readme_are_small(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            named = re.findall(r"docs/pictures/[a-z]+\.[a-z]+", file.read())
        self.assertEqual(sorted(named), ["docs/pictures/report.png", "docs/pictures/terminal.svg"])
        for name in named:
            self.assertLess(os.path.getsize(os.path.join(ROOT, name)), 150_000, name)

    def test_the_report_is_a_picture_of_its_size(self):
        with open(os.path.join(ROOT, "docs/pictures/report.png"), "rb") as file:
            head = file.read(24)
        self.assertEqual(head[:8], b"\x89PNG\r\n\x1a\n")
        self.assertEqual(struct.unpack(">II", head[16:]), (1200, 800))

    def test_the_terminal_loads_nothing(self):
        path = os.path.join(ROOT, "docs/pictures/terminal.svg")
        picture = xml.dom.minidom.parse(path)
        self.assertFalse(picture.getElementsByTagName("script"))
        self.assertTrue(picture.getElementsByTagName("title"))
        with open(path, encoding="utf-8") as file:
            self.assertNotRegex(file.read(), r"href|url\(|@import")


if __name__ == "__main__":
    unittest.main()
