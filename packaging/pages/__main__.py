"""Generates the reference of a built `tandem`:

    python3 packaging/pages PROGRAM FOLDER
    python3 packaging/pages PROGRAM COMMANDS.md RECIPES.md

The first form writes manual pages and the shells' completion into FOLDER, the tree that
is installed below /usr/share. The second form writes two pages of the site.

The program describes its commands (`tandem COMMAND --describe`). notes.toml has
everything that no flag describes.
"""

import gzip
import pathlib
import sys

import pages
import program
import shells
import site_pages


def main():
    binary, target = sys.argv[1], pathlib.Path(sys.argv[2])
    top = program.read(binary)
    notes = pages.read_notes(pathlib.Path(__file__).with_name("notes.toml"), top)
    if target.suffix == ".md":
        target.write_text(site_pages.commands(top, notes))
        recipes = pathlib.Path(__file__).parents[2] / "recipes"
        pathlib.Path(sys.argv[3]).write_text(site_pages.recipes(recipes))
        return
    elements = pages.read(top, notes)
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
