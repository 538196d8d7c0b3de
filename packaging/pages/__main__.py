"""Writes the manual pages and the shells' completion of a built `tandem` into FOLDER,
the tree that is installed below /usr/share, or all pages in Markdown into PAGES.md:

    python3 packaging/pages PROGRAM FOLDER|PAGES.md

The program describes its commands (`tandem COMMAND --describe`); notes.toml has the
rest.
"""

import gzip
import pathlib
import sys

import pages
import program
import shells


def main():
    binary, target = sys.argv[1], pathlib.Path(sys.argv[2])
    top = program.read(binary)
    notes = pages.read_notes(pathlib.Path(__file__).with_name("notes.toml"), top)
    elements = pages.read(top, notes)
    if target.suffix == ".md":
        target.write_text(pages.markdown(elements))
        return
    version = program.version(binary)
    files = {
        f"man/man1/{name}.1.gz": gzip.compress(
            pages.roff(name, page, version).encode(), mtime=0
        )
        for name, page in elements.items()
    }
    files["bash-completion/completions/tandem"] = shells.bash(top).encode()
    files["zsh/vendor-completions/_tandem"] = shells.zsh(top).encode()
    files["fish/vendor_completions.d/tandem.fish"] = shells.fish(top).encode()
    for name, content in files.items():
        path = target / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


main()
