"""A terminal at work as SVG: a command's output under a pseudo-terminal, as it stood."""
import os
import pty
import re
import struct
import subprocess
import termios
import fcntl
from xml.sax.saxutils import escape

COLUMN, ROW, MARGIN, BAR = 8.4, 20, 18, 34
CLEAR_LINE = "\033[K"


def screen(text):
    """The lines of a terminal that was sent this text. Knows what tandem sends: carriage
    returns, clearing to the end of a line, tabs; raises ValueError for other controls."""
    lines, column = [""], 0
    for part in re.split(r"(\033\[K|[\r\n\t])", text):
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


def moments(text, seen):
    """What had been written before each line that ends, or is drawn again, behind `seen`
    letters: only there is a line whole."""
    return (text[:end.start()] for end in re.finditer(r"[\r\n]", text) if end.start() > seen)


def read_all(leader):
    """What a terminal is sent until its programs have ended, as it comes."""
    while True:
        try:
            more = os.read(leader, 65536)
        except OSError:  # How Linux says that the other side is closed.
            return
        if not more:
            return
        yield more


def capture(command, directory, columns, is_enough):
    """Runs the command to its end under a terminal. Returns the lines of its screen when
    is_enough(them) was first true; raises RuntimeError when it failed, or the moment
    never came."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(command, cwd=directory, stdin=follower, stdout=follower,
                               stderr=follower, close_fds=True)
    os.close(follower)
    written, seen, taken = b"", 0, None
    for more in read_all(leader):
        written += more
        text = written.decode("utf-8", "ignore").replace("\r\n", "\n")
        for before in moments(text, seen) if taken is None else ():
            seen = len(before)
            if taken is None and is_enough(screen(before)):
                taken = screen(before)
    os.close(leader)
    if process.wait() != 0:
        last = written.decode("utf-8", "replace").strip().splitlines() or ["no output"]
        raise RuntimeError(f"{' '.join(command)} failed: {last[-1]}")
    if taken is None:
        raise RuntimeError(f"{' '.join(command)} never showed what the picture is to show")
    return taken


def text_row(row, words, kind):
    """A line with the width that it has in a terminal, in whatever font there is."""
    if not words:
        return ""
    return (f'<text class="{kind}" x="{MARGIN}" y="{BAR + MARGIN + row * ROW:.0f}" '
            f'textLength="{len(words) * COLUMN:.1f}" lengthAdjust="spacingAndGlyphs" '
            f'xml:space="preserve">{escape(words)}</text>\n')


def wrapped(line, columns):
    """As a terminal does, in the middle of a word."""
    return [line[at:at + columns] for at in range(0, max(1, len(line)), columns)]


def picture(prompt_line, lines, title, columns):
    """The SVG: a dark window that stands on light and dark pages."""
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
