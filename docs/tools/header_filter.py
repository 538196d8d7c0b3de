#!/usr/bin/python3
"""Prints a header as Doxygen reads it; docs/Doxyfile names this as its filter.

Comments of members become Doxygen's, indented code in them becomes a code block, rows of a
table that continue the row before are joined to it, and a lambda as a default argument,
which Sphinx cannot parse, becomes {}.
"""
import re
import sys


def document_members(line):
    """Turns `// text` in front of a member into `/// text`; drops `// --- speed ---`."""
    if re.match(r" +// --- ", line):
        return ""
    return re.sub(r"^( +)//( |$)", r"\1///\2", line)


def filtered(lines):
    made = []
    in_code = False
    for line in map(document_members, lines):
        comment = re.match(r"( *///)( *)(.*)$", line)
        starts = made and re.match(r" *///$", made[-1])
        if comment and len(comment[2]) >= 3 and (in_code or starts):
            in_code = True
            line = comment[1] + "    " + comment[2] + comment[3]
        elif not (in_code and comment and not comment[3]):
            in_code = False
        row = re.match(r" */// \|\s+\|(.*)\|$", line)
        if row and made and made[-1].endswith("|"):
            made[-1] = made[-1][:-1].rstrip() + " " + row[1].strip() + " |"
            continue
        made.append(re.sub(r"\[\]\([^)]*\) \{\}", "{}", line))
    return made


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print("\n".join(filtered(file.read().splitlines())))
