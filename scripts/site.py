#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the documents as a site that works from its files, too: lays the pages out as in the repository, with the files
that they link to and the manual pages, and has mkdocs make a site of them (mkdocs.yml).

usage: scripts/site.py [--build build] [--to build/site]
"""
import argparse
import importlib.util
import pathlib
import re
import shutil
import subprocess
import sys

import yaml  # mkdocs needs it, too

ROOT = pathlib.Path(__file__).resolve().parent.parent


def checker():
    spec = importlib.util.spec_from_file_location("documents", ROOT / "scripts/check-documents.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def for_mkdocs(text):
    """Links to sources of the manual lead to its pages; Python-Markdown wants no backslash in a table's `a\\|b`."""
    text = re.sub(r"(\]\([^()\s]*man/[^()\s]+)\.scd\)", r"\1.md)", text)
    return re.sub(r"^\|.*", lambda row: re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row[0]), text,
                  flags=re.M)


def lay_out_documents(pages):
    documents = checker()
    for name in documents.documents(ROOT):
        text = (ROOT / name).read_text()
        for link in documents.links(documents.split(text)[0]):
            file = (ROOT / name.parent / link.partition("#")[0]).resolve()
            if file.is_file() and file.suffix not in (".md", ".scd"):
                to = pages / file.relative_to(ROOT)
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, to)
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        (pages / name).write_text(for_mkdocs(text))


def piped(command, given):
    return subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE, text=True).stdout


def manual_page(source, build, names):
    """HTML between headings of Markdown, which the site's contents and search know."""
    page = piped(["mandoc", "-Thtml", "-Ofragment"], piped(["scdoc"], piped([build / "document"], source.read_text())))
    page = re.search(r'<div class="manual-text">(.*)</div>\s*<table class="foot">', page, re.S)[1]
    page = re.sub(r"</?section[^>]*>", "", page)
    page = re.sub(r"<h([12])[^>]*><a[^>]*>(.*?)</a></h\1>",
                  lambda found: f"\n\n{'#' * (int(found[1]) + 1)} {' '.join(found[2].split())}\n\n", page, flags=re.S)
    return re.sub(r"<b>([\w.-]+)</b>\((\d)\)", lambda found: f'<a href="{found[1]}.{found[2]}.html">{found[0]}</a>'
                  if f"{found[1]}.{found[2]}" in names else found[0], page)


def lay_out_manual(pages, build):
    by_section = sorted((ROOT / "man").glob("*.scd"), key=lambda file: (file.stem[-1], file))
    sources = {source.stem: source for source in by_section}
    (pages / "man").mkdir(parents=True)
    rows = ["# Manual pages", "", "| page | |", "|---|---|"]
    for name, source in sources.items():
        title = f"{name[:-2]}({name[-1]})"
        what = re.search(r"^# NAME\s+\S+(?:, \S+)* - (.*?)\n\n", source.read_text(), re.S | re.M)[1]
        rows.append(f"| [{title}]({name}.md) | {' '.join(what.split())} |")
        (pages / f"man/{name}.md").write_text(f"# {title}\n\n{manual_page(source, build, sources)}\n")
    (pages / "man/README.md").write_text("\n".join(rows) + "\n")


def lay_out_openapi(pages):
    """A page of all paths; the files that it is made from lie beside it."""
    rows = ["# OpenAPI", ""]
    for name in ("openapi.yaml", "openapi-hub.yaml"):
        described = yaml.safe_load((ROOT / "docs" / name).read_text())
        rows += [f"## {described['info']['title']}", "", f"[{name}]({name}): {described['info']['description']}", "",
                 "| | path | |", "|---|---|---|"]
        for path, methods in described["paths"].items():
            rows += [f"| {method.upper()} | `{path}` | {what['summary']} |" for method, what in methods.items() if "summary" in what]
        rows.append("")
        shutil.copyfile(ROOT / "docs" / name, pages / "docs" / name)
    (pages / "docs/reference-openapi.md").write_text("\n".join(rows) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="the build tree")
    parser.add_argument("--to", type=pathlib.Path, help="the site (BUILD/site)")
    options = parser.parse_args()
    for tool in ("scdoc", "mandoc", "mkdocs"):
        if not shutil.which(tool):
            sys.exit(f"site: {tool} is missing: scripts/setup.sh build site")
    build = options.build.resolve()
    site = (options.to or build / "site").resolve()
    work = site.with_name(site.name + "-pages")
    shutil.rmtree(work, ignore_errors=True)
    lay_out_manual(work / "docs", build)
    lay_out_documents(work / "docs")
    lay_out_openapi(work / "docs")
    (work / "theme").mkdir()
    shutil.copyfile(ROOT / "scripts/site-theme.html", work / "theme/main.html")
    shutil.copyfile(ROOT / "mkdocs.yml", work / "mkdocs.yml")
    built = subprocess.run(["mkdocs", "build", "--strict", "--clean", "--site-dir", site], cwd=work,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if not built.returncode:
        index = (site / "search/search_index.json").read_text()
        (site / "search/search_index.js").write_text(f"var __search = {{ index: Promise.resolve({index}) }};\n")
    print(built.stdout if built.returncode else site / "index.html")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
