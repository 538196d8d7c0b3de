#!/usr/bin/python3
"""Planted sentences that scripts/check-english must find, and sentences it must accept."""
import importlib.machinery
import importlib.util
import os
import sys
import unittest

sys.dont_write_bytecode = True
SCRIPT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "..", "scripts",
                      "check-english")
LOADER = importlib.machinery.SourceFileLoader("check_english", SCRIPT)
check_english = importlib.util.module_from_spec(
    importlib.util.spec_from_loader("check_english", LOADER))
LOADER.exec_module(check_english)


def found(path, *lines):
    return [(line, words) for line, words, _ in
            check_english.findings(path, "\n".join(lines) + "\n")]


class CheckEnglish(unittest.TestCase):
    def test_finds_openings_of_comments(self):
        for words in ("What", "Of", "Whether", "Where", "How", "Who", "Else"):
            with self.subTest(words):
                self.assertEqual(
                    found("a.cpp", "int x;", f"// {words} the current step has."), [(2, words)])
                if words != "Whether":
                    self.assertEqual(
                        found("a.py", f"x = 1  # {words.lower()} the current step has."),
                        [(1, words.lower())])

    def test_finds_openings_of_later_sentences(self):
        self.assertEqual(found("a.h", "/// Returns tensors.", "/// What is left stays."),
                         [(2, "What")])

    def test_finds_words_in_each_kind_of_file(self):
        for path, line in (("a.h", "/// The run goes on."),
                           ("a.cpp", 'throw Error("[data] the run goes on");'),
                           ("a.cpp", "TEST_F(Run, GoesOnAfterASignal) {"),
                           ("a.py", '"""The run goes on."""'),
                           ("a.cmake", "# The run goes on."),
                           ("a.toml", 'help = "the run goes on"'),
                           ("a.md", "The run goes on.")):
            with self.subTest(path=path, line=line):
                self.assertEqual([words.lower() for _, words in found(path, line)], ["goes on"])

    def test_finds_words_across_lines(self):
        self.assertEqual(found("a.cpp", "// The run goes", "// on."), [(2, "goes on")])
        self.assertEqual(found("a.cpp", 'f("the run goes "', '  "on");'), [(2, "goes on")])

    def test_finds_each_word_of_the_list(self):
        for text in ("reads it anew", "waits in vain", "nobody reads it", "is told so",
                     "the server wants a token", "a way on", "the step behind it",
                     "a file beside it", "mends the file", "a kernel of our own",
                     "a program of one's own", "ends by itself", "set by hand",
                     "for CPUs so far", "as the document",
                     "an address, one that is wrong", "depends on what comes",
                     "what is there is kept", "empty where there is none"):
            with self.subTest(text):
                self.assertEqual(len(found("a.md", f"It {text}.")), 1)

    def test_accepts_plain_sentences(self):
        for text in ("Returns the mean loss of the current step.",
                     "Number of ranks on this host.",
                     "How many ranks are there?", "How to add an optimizer.",
                     "Of course, ranks may differ.", "A proxy behind a NAT stands for a host.",
                     "A killed run leaves nothing behind.",
                     "The file is documented. It is a JSON document.",
                     "The bits are those of one rank.", "Prints the losses so far.",
                     "Each rank has a file of its own.", "The old table is [document].",
                     "The stand-in and the add-on differ.", "Call `goes_on()` or `what is`."):
            with self.subTest(text):
                self.assertEqual(found("a.md", text), [])
                self.assertEqual(found("a.h", f"/// {text}"), [])

    def test_accepts_code(self):
        self.assertEqual(found("a.cpp", "int goes = on + nobody;", 'f("documents");',
                               "char c = '\"'; int wants = 6'400;", "TEST(Start, ANewStart) {"),
                         [])
        self.assertEqual(found("a.md", "```", "what is told", "```"), [])
        self.assertEqual(found("a.py", "f'{stranger.sent} bytes'"), [])
        self.assertEqual(found("tests/a.cpp", 'HasSubstr("of 32 samples");',
                               "TEST(Reports, OfAHostShowItsLosses) {"), [])

    def test_accepts_marked_lines(self):
        self.assertEqual(found("a.py", "# nobody is a user (check-english: allow)"), [])


if __name__ == "__main__":
    unittest.main()
