#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the documents: every relative link points to a file, and to a heading that the file has; the navigation of the
site (mkdocs.yml) names each page of docs/ once, and none that does not exist; it or docs/README.md leads to every other
page; a translation (NAME.es.md) has the commands, code, figures and links of NAME.md.

usage: scripts/check-documents.py [ROOT]
"""
import argparse
import collections
import pathlib
import re
import sys

DOCS = pathlib.Path("docs")


def documents(root):
    files = [*root.glob("*.md"), *root.glob("ui/*.md"), *root.glob("docs/**/*.md")]
    return sorted(file.relative_to(root) for file in files)


def split(text):
    """A document's prose, and its blocks of code: those between ``` and those indented by four spaces."""
    prose, blocks, fence, previous = [], [], None, ""
    for line in text.split("\n"):
        mark = re.match(r"```+|~~~+", line)
        if fence:
            if line.startswith(fence):
                fence = None
            else:
                blocks[-1].append(line)
        elif mark:
            fence = mark[0]
            blocks.append([])
        elif line.startswith("    ") and (not previous.strip() or previous.startswith("    ")):
            if not previous.strip():
                blocks.append([])
            blocks[-1].append(line[4:])
        else:
            prose.append(line)
        previous = line
    return "\n".join(prose), blocks


def spans(prose):
    """Texts between backticks, in a paragraph or in a row of a table."""
    return [re.sub(r"\s+", " ", code) for code in re.findall(r"`((?:[^`\n]|\n(?!\n))+)`", prose)]


def links(prose):
    """The targets of links and pictures that are none of another host."""
    found = re.findall(r"\]\(([^()\s]+)\)", re.sub(r"`((?:[^`\n]|\n(?!\n))+)`", "", prose))
    return [target for target in found if not re.match(r"[a-z][a-z0-9+.-]*:", target)]


def anchors(prose):
    """The anchors that GitHub gives to headings; those of the site are the same (mkdocs.yml)."""
    found, seen = set(), collections.Counter()
    for heading in re.findall(r"^#{1,6} +(.*?) *#*$", prose, re.M):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found


def navigation(root):
    """The pages that mkdocs.yml names, in its order."""
    text = (root / "mkdocs.yml").read_text()
    return re.findall(r"^ +- .*?([^\s:]+\.md)$", text.partition("\nnav:")[2], re.M)


def commands(block):
    """A block's lines without comments."""
    lines = (re.sub(r"(^|\s)#.*", "", line).rstrip() for line in block)
    return [line for line in lines if line]


def translated(prose, blocks):
    """Parts that a translation has in common with its original, by name."""
    bare = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", prose)
    return {
        "blocks of code": [commands(block) for block in blocks],
        "code": sorted(set(spans(prose))),
        "figures": sorted(re.findall(r"\d+(?:\.\d+)*", bare)),
        "links": sorted({target.replace(".es.md", ".md") for target in links(prose)}),
    }


def difference(ours, theirs):
    for one, other in zip(ours, theirs):
        if one != other:
            return f"{one} is {other} there"
    longer = max(ours, theirs, key=len)
    return f"{longer[min(len(ours), len(theirs))]} is in one of them only"


def check(root):
    faults = []
    pages = {page: split((root / page).read_text()) for page in documents(root)}
    heads = {page: anchors(prose) for page, (prose, _) in pages.items()}
    leads = collections.defaultdict(set)
    for page, (prose, _) in pages.items():
        for link in links(prose):
            name, _, anchor = link.partition("#")
            file = (root / page.parent / name).resolve() if name else root / page
            if not file.is_file() or not file.is_relative_to(root):
                faults.append(f"{page}: no file {link}")
                continue
            target = file.relative_to(root)
            leads[page].add(target)
            if anchor and anchor not in heads.get(target, ()):
                faults.append(f"{page}: no heading {link}")

    named = navigation(root)
    made = {"man/README.md", "docs/reference-openapi.md", *(f"man/{source.stem}.md" for source in root.glob("man/*.scd"))}  # by scripts/site.py
    for name in named:
        if pathlib.Path(name) not in pages and name not in made:
            faults.append(f"mkdocs.yml: no page {name}")
    faults += [f"mkdocs.yml: {name} stands there twice" for name in dict.fromkeys(named) if named.count(name) > 1]
    faults += [f"mkdocs.yml: {page} is missing" for page in pages if page.parent == DOCS and str(page) not in named]
    reached, waiting = set(), [DOCS / "README.md", *map(pathlib.Path, named)]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += leads[page]
    faults += [f"{page}: neither docs/README.md nor mkdocs.yml leads to it" for page in pages if page not in reached]

    for page in pages:
        original = page.with_name(page.name.replace(".es.md", ".md"))
        if original != page and original not in pages:
            faults.append(f"{page}: there is no {original}")
        elif original != page:
            theirs = translated(*pages[original])
            faults += [f"{page}: other {what} than {original}: {difference(ours, theirs[what])}"
                       for what, ours in translated(*pages[page]).items() if ours != theirs[what]]
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root", nargs="?", default=pathlib.Path(__file__).parent.parent)
    faults = check(pathlib.Path(parser.parse_args().root).resolve())
    print(*faults, sep="\n", end="\n" if faults else "")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
