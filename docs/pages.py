"""What Sphinx does to the text of a page: links, exponents and indices, examples without an end."""

import re
from collections.abc import Callable, Set
from functools import partial
from typing import Any

from docutils import nodes
from sphinx import addnodes

# A letter's index of one letter or digit, as in M_j.
INDEX = r"(?<=\b[^\W_])_(?P<index>[^\W_])\b"
# Where no formula is, and where no name is linked.
CODE = (nodes.literal, nodes.literal_block, nodes.raw, nodes.comment, nodes.math)
APART = (*CODE[1:], nodes.reference, addnodes.pending_xref, nodes.title, addnodes.desc)


def connect(
    app: Any, documented: Set[str], power: re.Pattern[str], external: re.Pattern[str]
) -> None:
    """Connect to Sphinx: names in the reference, patterns of a power and of other libraries."""
    raised_or_lowered = re.compile(f"{power.pattern}|{INDEX}")
    app.connect("source-read", trimmed)
    app.connect("doctree-read", partial(linked, documented=documented, external=external))
    app.connect("doctree-read", partial(typeset, found_in=raised_or_lowered.finditer))


def trimmed(app: Any, page: str, source: list[str]) -> None:
    """Cut the blank line that ends an example for doctest: the site would show it."""
    source[0] = source[0].replace("\n\n```\n", "\n```\n")


def linked(app: Any, page: nodes.document, documented: Set[str], external: re.Pattern[str]) -> None:
    """Link names in the text to their entries in the reference, or to other libraries."""
    for name in [x for x in page.findall(nodes.literal) if not within(x, APART)]:
        word = name.astext().removeprefix("jaxdp.").removeprefix("dp.").partition("(")[0]
        places = ("jaxdp", "jaxdp.solvers", "jaxdp.own")
        targets = [x for x in (f"{place}.{word}" for place in places) if x in documented]
        targets += [word] if external.fullmatch(word) else []
        if targets:
            link = addnodes.pending_xref("", name.deepcopy(), refdomain="py", reftype="obj")
            link["reftarget"], link["refdoc"] = targets[0], app.env.docname
            link["refexplicit"] = True
            name.parent.replace(name, link)


def typeset(app: Any, page: nodes.document, found_in: Callable[[str], Any]) -> None:
    """Raise exponents and lower indices, as e^(x + 1) and M_j have them."""
    for text in [x for x in page.findall(nodes.Text) if not within(x, CODE)]:
        whole, parts = 0, []
        for found in found_in(text):
            parts.append(nodes.Text(text[whole : found.start()]))
            kind = nodes.superscript if found["index"] is None else nodes.subscript
            shown = found["index"] or found[1] or found[2]
            parts.append(kind("", shown))
            whole = found.end()
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[whole:])])


def within(node: nodes.Node, kinds: tuple[type[nodes.Node], ...]) -> bool:
    """Whether a node stands in one of these kinds."""
    while (node := node.parent) is not None:
        if isinstance(node, kinds):
            return True
    return False
