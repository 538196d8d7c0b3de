"""Writes the manual pages and the shells' completion of a built `tandem`:

    python3 packaging/pages PROGRAM FOLDER

What a command takes comes from the program (`tandem COMMAND --describe`), what no flag
says from notes.toml beside this file. FOLDER gets the tree that is installed below
/usr/share.
"""

import gzip
import pathlib
import sys

import commands
import man_page
import shells


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    top = commands.read(program)
    notes = man_page.read_notes(pathlib.Path(__file__).with_name("notes.toml"), top)
    version = commands.version(program)
    files = {
        f"man/man1/{name}.1.gz": gzip.compress(text.encode(), mtime=0)
        for name, text in man_page.pages(top, notes, version).items()
    }
    files["bash-completion/completions/tandem"] = shells.bash(top).encode()
    files["zsh/vendor-completions/_tandem"] = shells.zsh(top).encode()
    files["fish/vendor_completions.d/tandem.fish"] = shells.fish(top).encode()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


main()
