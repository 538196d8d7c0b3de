"""A terminal as SVG: a command's output under a pseudo-terminal."""
import os
import pty
import re
import struct
import subprocess
import termios
import textwrap
import fcntl
from xml.sax.saxutils import escape

COLUMN, ROW, MARGIN, BAR = 8.4, 20, 18, 34
CLEAR_LINE = "\033[K"
STYLE = r"\033\[[0-9;]*m"


def screen(text):
    """The lines on the screen of a terminal that receives this text, without styles.
    Supports carriage returns, tabs and clearing to the end of a line; raises ValueError for
    other controls."""
    lines, column = [""], 0
    for part in re.split(r"(\033\[K|[\r\n\t])", re.sub(STYLE, "", text)):
        if part == "\n":
            lines.append("")
            column = 0
        elif part == "\r":
            column = 0
        elif part == CLEAR_LINE:
            lines[-1] = lines[-1][:column]
        else:
            part = " " * (8 - column % 8) if part == "\t" else part
            if any(ord(letter) < 32 for letter in part):
                raise ValueError(f"the program sent a control sequence: {part!r}")
            lines[-1] = lines[-1][:column].ljust(column) + part + lines[-1][column + len(part):]
            column += len(part)
    return [line.rstrip() for line in lines]


def read_all(leader):
    """Yields the bytes that a terminal receives until its programs have ended."""
    while True:
        try:
            more = os.read(leader, 65536)
        except OSError:  # Linux reports a closed terminal so.
            return
        if not more:
            return
        yield more


def capture(command, directory, columns):
    """Runs the command to its end under a terminal and returns the lines of its screen.
    Raises RuntimeError if the command fails."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(command, cwd=directory, stdin=follower, stdout=follower,
                               stderr=follower, close_fds=True)
    os.close(follower)
    written = b"".join(read_all(leader)).decode("utf-8", "replace")
    os.close(leader)
    if process.wait() != 0:
        last = written.strip().splitlines() or ["no output"]
        raise RuntimeError(f"{' '.join(command)} failed: {last[-1]}")
    return screen(written.replace("\r\n", "\n").rstrip("\n"))


def text_row(row, words, kind):
    """A line of text with the width that it has in a terminal, in any font."""
    if not words:
        return ""
    return (f'<text class="{kind}" x="{MARGIN}" y="{BAR + MARGIN + row * ROW:.0f}" '
            f'textLength="{len(words) * COLUMN:.1f}" lengthAdjust="spacingAndGlyphs" '
            f'xml:space="preserve">{escape(words)}</text>\n')


def wrapped(line, columns):
    """The line in rows that end between words."""
    return textwrap.wrap(line, columns, subsequent_indent="  ", break_long_words=False,
                         break_on_hyphens=False) or [""]


def picture(prompt_line, lines, title, columns):
    """The SVG: a dark window, readable on light and on dark pages."""
    rows = [("$ " + prompt_line, "typed")]
    rows += [(part, "printed") for line in lines for part in wrapped(line, columns)]
    width = MARGIN * 2 + COLUMN * max(len(words) for words, _ in rows)
    height = BAR + MARGIN + ROW * len(rows)
    label = escape(title, {'"': "&quot;"})
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" role="img" aria-labelledby="title">\n'
        f'<title id="title">{label}</title>\n'
        "<style>text { font: 14px ui-monospace, \"DejaVu Sans Mono\", Menlo, Consolas, "
        "monospace; fill: #d7dae0; } .typed { fill: #ffffff; font-weight: 700; } "
        ".title { font: 13px system-ui, sans-serif; fill: #9aa2ad; }</style>\n"
        f'<rect width="{width:.0f}" height="{height}" rx="10" fill="#1b1e23"/>\n'
        f'<path d="M0 {BAR}H{width:.0f}" stroke="#2d3239"/>\n'
        + "".join(f'<circle cx="{MARGIN + 4 + 18 * i}" cy="17" r="5" fill="#4a515c"/>\n'
                  for i in range(3))
        + f'<text class="title" x="{width / 2:.0f}" y="22" text-anchor="middle">{label}'
        "</text>\n"
        + "".join(text_row(row + 0.35, words, kind)
                  for row, (words, kind) in enumerate(rows))
        + "</svg>\n")
