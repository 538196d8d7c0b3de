#!/usr/bin/python3
"""Runs the commands and code of a documentation page in an empty folder.

usage: run_page.py PAGE PREFIX

PREFIX has an installed tandem. Every block of sh runs, in the order of the page and in
one folder, which has `recipes` as a checkout does. A block of another language is a file:
the comment `<!-- file: NAME -->` before the block names it. A block with
`<!-- part of: PATH -->` before it must be a part of this file of the checkout. A block that
does not run has `<!-- not run: REASON -->` before it. Blocks of text and console are output
and need no comment.

The folder also has files that only a newer PyTorch can make: tests/docs/NAME.gz is
unpacked as NAME. network.pt2 is the network of docs/guide/networks.md, from 2.15.0.

Training sees the first 640 samples unless the page says --limit, so that a page takes
seconds. A block that needs MNIST is left out if TANDEM_DATA has none.
"""
import glob
import gzip
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
OUTPUT = ("text", "console", "")
WRAPPER = """#!/bin/sh
case "$1 $*" in
  *--limit*|*--help*) ;;
  train\\ *|compare\\ *|scaling\\ *) set -- "$@" --limit 640 ;;
esac
exec "{program}" "$@"
"""


class Block:
    def __init__(self, language, text, line, comment):
        self.language = language
        self.text = text
        self.line = line
        found = re.fullmatch(r"<!-- (file|part of|not run): (.+?) -->", comment or "")
        self.kind, self.value = found.groups() if found else (None, None)


def blocks(text):
    """The fenced blocks of a page, without the directives of Sphinx."""
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        fence = re.match(r"( *)```([\w+-]*)$", lines[at])
        if not fence:
            skipped = re.match(r" *(```+|:::+)\{", lines[at])
            at += 1
            if skipped and skipped[1].startswith("`"):
                while at < len(lines) and lines[at].strip() != skipped[1]:
                    at += 1
                at += 1
            continue
        end = at + 1
        while lines[end].strip() != "```":
            end += 1
        indent = len(fence[1])
        body = "\n".join(line[indent:] for line in lines[at + 1:end]) + "\n"
        comment = next((line.strip() for line in reversed(lines[:at]) if line.strip()), "")
        yield Block(fence[2], body, at + 1, comment)
        at = end + 1


def has_mnist():
    folder = os.path.join(os.environ.get("TANDEM_DATA", "/nonexistent"), "mnist")
    return os.path.isdir(folder)


def run(page, prefix, folder):
    """Returns the first failure, or None."""
    os.mkdir(os.path.join(folder, "bin"))
    wrapper = os.path.join(folder, "bin", "tandem")
    with open(wrapper, "w", encoding="utf-8") as file:
        file.write(WRAPPER.format(program=os.path.join(prefix, "bin", "tandem")))
    os.chmod(wrapper, 0o755)
    work = os.path.join(folder, "work")
    os.mkdir(work)
    os.symlink(os.path.join(prefix, "share/tandem/recipes"), os.path.join(work, "recipes"))
    for packed in glob.glob(os.path.join(HERE, "*.gz")):
        name = os.path.basename(packed)[:-len(".gz")]
        with gzip.open(packed) as source, open(os.path.join(work, name), "wb") as file:
            file.write(source.read())
    # Without optimization, programs of the page compile in half of the time.
    toolchain = os.path.join(folder, "unoptimized.cmake")
    with open(toolchain, "w", encoding="utf-8") as file:
        file.write('set(CMAKE_CXX_FLAGS_RELEASE "-O0" CACHE STRING "")\n')
        # The linker would take the system's NCCL instead of the one of PyPI's LibTorch
        # (cmake/TandemTorch.cmake).
        file.write('set(CMAKE_EXE_LINKER_FLAGS "-Wl,--allow-shlib-undefined" CACHE STRING "")\n')
    variables = dict(
        os.environ, PATH=os.path.join(folder, "bin") + ":" + os.environ["PATH"],
        CMAKE_PREFIX_PATH=prefix, CMAKE_TOOLCHAIN_FILE=toolchain, OMP_NUM_THREADS="1",
        PKG_CONFIG_PATH=os.path.join(prefix, "lib", "pkgconfig"))
    # A build with PyPI's LibTorch installs no tandem.pc.
    has_pc = os.path.exists(os.path.join(prefix, "lib", "pkgconfig", "tandem.pc"))
    with open(page, encoding="utf-8") as file:
        text = file.read()
    for block in blocks(text):
        where = f"{page}:{block.line}"
        if block.kind == "not run" or block.language in OUTPUT:
            continue
        if block.kind == "file":
            path = os.path.join(work, block.value)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(block.text)
        elif block.kind == "part of":
            with open(os.path.join(ROOT, block.value), encoding="utf-8") as file:
                if block.text not in file.read():
                    return f"{where}: this block is not a part of {block.value}; copy it again"
        elif block.language != "sh":
            return f"{where}: a block of {block.language} needs '<!-- file: NAME -->', " \
                   "'<!-- part of: PATH -->' or '<!-- not run: REASON -->' before it"
        elif "mnist" in block.text and not has_mnist():
            print(f"{where}: left out, since TANDEM_DATA has no mnist")
        elif "pkg-config" in block.text and not has_pc:
            print(f"{where}: left out, since this build has no tandem.pc")
        else:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block.text], cwd=work, env=variables,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, timeout=500)
            if done.returncode:
                return f"{where}: exit code {done.returncode}\n{block.text}{done.stdout}"
    return None


def main():
    page, prefix = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="tandem-page-") as folder:
        sys.exit(run(os.path.abspath(page), os.path.abspath(prefix), folder))


if __name__ == "__main__":
    main()
