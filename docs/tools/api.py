"""Writes a fragment of MyST for each public header, from Doxygen's XML.

A page of docs/reference/cpp-api includes the fragment of a header. It lists the header's
functions first, then its classes, enumerations and types, in the order of the header.
"""
import os
import re
import xml.etree.ElementTree as ElementTree

# Helpers of templates in headers, which no program calls.
HIDDEN = re.compile(
    r"tandem::(list_\w*tensors|chunk_tensors|concatenate_tensors|is_a|WrappedModule"
    r"|fail_check)\b")


def fragment_of(header):
    """The file name of a header's fragment."""
    return re.sub(r"[/.]", "-", header) + ".md"


def _line(element):
    return int(element.find("location").get("line"))


def _members(xml):
    """(header, order, directive, argument) of all that lies in the namespace."""
    names = {"function": "doxygenfunction", "enum": "doxygenenum", "typedef": "doxygentypedef"}
    order = {"function": 0, "enum": 2, "typedef": 3}
    root = ElementTree.parse(os.path.join(xml, "namespacetandem.xml")).getroot()
    for member in root.iter("memberdef"):
        kind = member.get("kind")
        if kind not in names:
            continue
        argument = "tandem::" + member.findtext("name")
        if kind == "function":
            types = ["".join(one.find("type").itertext()) for one in member.findall("param")]
            argument += "(" + ", ".join(types) + ")"
        yield (member.find("location").get("file"), (order[kind], _line(member)),
               names[kind], argument)


def _compounds(xml):
    for entry in ElementTree.parse(os.path.join(xml, "index.xml")).getroot():
        name = entry.findtext("name")
        nested = name.count("::") > 1 or "<" in name
        if entry.get("kind") not in ("class", "struct") or nested:
            continue
        path = os.path.join(xml, entry.get("refid") + ".xml")
        compound = ElementTree.parse(path).getroot().find("compounddef")
        if name.startswith("tandem::"):
            yield (compound.find("location").get("file"), (1, _line(compound)),
                   "doxygen" + entry.get("kind"), name)


def write(xml, headers, folder):
    """Writes a fragment into `folder` for each of `headers`."""
    parts = {header: [] for header in headers}
    for header, order, directive, argument in [*_members(xml), *_compounds(xml)]:
        if header in parts and not HIDDEN.match(argument):
            parts[header].append((order, directive, argument))
    os.makedirs(folder, exist_ok=True)
    for header, found in parts.items():
        text = ""
        for _, directive, argument in sorted(found):
            members = ""
            if directive in ("doxygenclass", "doxygenstruct"):
                members = ":members:\n:undoc-members:\n"
            text += f"```{{{directive}}} {argument}\n{members}```\n\n"
        with open(os.path.join(folder, fragment_of(header)), "w", encoding="utf-8") as file:
            file.write(text)


def _has_text(element):
    parts = (element.find("briefdescription"), element.find("detaileddescription"))
    return any("".join(part.itertext()).strip() for part in parts)


def _needs_summary(member):
    """False for constructors, since their class has a summary, for overrides, since the
    base class describes them, and for defaulted functions."""
    return (member.get("kind") == "function" and member.get("prot") == "public"
            and not re.search(r"(\w+)::~?\1$", member.findtext("definition"))
            and not re.search(r"(=\s*(default|delete)|override)$", member.findtext("argsstring")))


def undocumented(xml, headers):
    """The public functions and classes of `headers` without a summary sentence."""
    found = []
    for entry in ElementTree.parse(os.path.join(xml, "index.xml")).getroot():
        if entry.get("kind") not in ("class", "struct", "namespace"):
            continue
        path = os.path.join(xml, entry.get("refid") + ".xml")
        compound = ElementTree.parse(path).getroot().find("compounddef")
        owner = compound.findtext("compoundname")
        if (compound.get("prot") == "private" or HIDDEN.match(owner)
                or not owner.startswith("tandem")):
            continue
        if compound.find("location").get("file") in headers and not _has_text(compound):
            found.append(f"{compound.find('location').get('file')}: {owner}")
        for member in compound.iter("memberdef"):
            where = member.find("location").get("file")
            whole = f"{owner}::{member.findtext('name')}"
            if (where in headers and _needs_summary(member)
                    and not _has_text(member) and not HIDDEN.match(whole)):
                found.append(f"{where}: {whole}{member.findtext('argsstring')}")
    return sorted(set(found))


def missing(headers, pages):
    """The headers that no page includes."""
    text = ""
    for path in pages:
        with open(path, encoding="utf-8") as file:
            text += file.read()
    return [header for header in headers if fragment_of(header) not in text]
