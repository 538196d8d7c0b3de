"""Finds links of the built site and of Markdown pages that lead nowhere.

    python3 docs/tools/links.py HTML_FOLDER MARKDOWN...

Follows only links inside the site or the repository, never the network.
"""
import html.parser
import os
import re
import sys
import urllib.parse


class Page(html.parser.HTMLParser):
    """The ids and links of a page."""

    def __init__(self, path):
        super().__init__()
        self.ids = set()
        self.links = []
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.ids.add(value)
            elif name in ("href", "src") and value:
                self.links.append(value)


def broken_in_site(folder):
    pages = {}
    for where, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".html"):
                path = os.path.join(where, name)
                pages[path] = Page(path)
    found = []
    for path, page in pages.items():
        for link in page.links:
            parts = urllib.parse.urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = path
            if parts.path:
                target = os.path.normpath(
                    os.path.join(os.path.dirname(path), urllib.parse.unquote(parts.path)))
            anchor = urllib.parse.unquote(parts.fragment)
            if not os.path.isfile(target) or (
                    anchor and target in pages and anchor not in pages[target].ids):
                found.append(f"{os.path.relpath(path, folder)}: {link}")
    return sorted(set(found))


def anchors(markdown):
    """GitHub's anchors of the headings of a page."""
    text = re.sub(r"^```.*?^```", "", markdown, flags=re.M | re.S)
    titles = re.findall(r"^#+ (.*)", text, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken_in_markdown(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    found = []
    for link in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset)=\"([^\"]+)\"", text):
        link = link[0] or link[1]
        parts = urllib.parse.urlsplit(link)
        if parts.scheme:
            continue
        target = path
        if parts.path:
            target = os.path.normpath(os.path.join(os.path.dirname(path), parts.path))
        known = True
        if parts.fragment and target.endswith(".md") and os.path.isfile(target):
            with open(target, encoding="utf-8") as file:
                known = parts.fragment in anchors(file.read())
        if not os.path.exists(target) or not known:
            found.append(f"{os.path.relpath(path)}: {link}")
    return found


def broken(folder, markdown):
    found = broken_in_site(folder)
    for path in markdown:
        found += broken_in_markdown(path)
    return found


if __name__ == "__main__":
    lines = broken(sys.argv[1], sys.argv[2:])
    print(*lines, sep="\n")
    sys.exit(1 if lines else 0)
