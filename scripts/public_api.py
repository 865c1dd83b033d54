#!/usr/bin/env python3
"""Counts the public headers, their lines and their public members, and names each member without a
comment.

  scripts/public_api.py [FOLDER]       FOLDER is include/ by default; it may be one of an installed
                                       tree

A member is a declaration in a namespace, a class or an enumeration that is not private. It is
documented if a comment stands on its line or ends on the line before. Deleted members, destructors,
forward declarations and friends need no comment. Fails if another member has no comment, or if
there are more than 12 headers or 1,200 lines.
"""

import re
import sys
from pathlib import Path

MOST_HEADERS, MOST_LINES = 12, 1200
NEEDS_NONE = re.compile(
    r"= delete;|~\w+\(|^friend (class|struct) |^(class|struct) \w+;|"
    r"^(namespace|using namespace)\b|^#|^(public|private|protected):|^static_assert|^template\b"
)
SCOPE = re.compile(r"^(?:template <.*> )?(namespace|class|struct|enum)\b")


def members(text):
    """Yields (line, declaration, documented) for each public member. The text must have the layout
    of clang-format."""
    lines = text.splitlines()
    scopes = []  # (kind, is it public now?) of the open scopes
    depth = 0  # depth of braces inside functions and initialisers
    pending, pendingLine = "", 0
    for number, raw in enumerate(lines, 1):
        code = re.sub(r"//.*", "", re.sub(r'"(?:[^"\\]|\\.)*"', '""', raw)).strip()
        if not code:
            continue
        if depth == 0:
            if not pending:
                pendingLine = number
            pending = f"{pending} {code}".strip()
            label = re.match(r"^(public|private|protected):", pending)
            if label and scopes:
                scopes[-1][1] = label[1] == "public"
                pending = ""
                continue
            if pending.startswith("}") and scopes:
                scopes.pop()
                pending = ""
                continue
            isEnumerator = bool(scopes) and scopes[-1][0] == "enum"
            ends = (
                code.endswith((";", "{", "}"))
                or (isEnumerator and code.endswith(","))
                or code.startswith("#")
            )
            if not ends:
                continue
            isPublic = all(public for _, public in scopes)
            scope = SCOPE.match(re.sub(r"^template <[^{]*?> ?", "", pending))
            if isPublic and not NEEDS_NONE.search(re.sub(r"^template <.*?> (?=\w)", "", pending)):
                before = lines[pendingLine - 2].strip() if pendingLine > 1 else ""
                while before.startswith("template") or before.startswith("[["):
                    pendingLine -= 1
                    before = lines[pendingLine - 2].strip()
                yield (
                    number,
                    pending,
                    "//" in raw or before.startswith("//") or "//" in lines[pendingLine - 1],
                )
            if scope and code.endswith("{"):
                scopes.append([scope[1], scope[1] != "class"])
            else:
                depth = pending.count("{") - pending.count("}")
            pending = ""
        else:
            depth += code.count("{") - code.count("}")


def main():
    folder = (
        Path(sys.argv[1])
        if len(sys.argv) > 1
        else Path(__file__).resolve().parent.parent / "include"
    )
    headers = sorted(folder.rglob("*.h"))
    lines = sum(len(header.read_text().splitlines()) for header in headers)
    total, bare = 0, []
    for header in headers:
        for number, declaration, documented in members(header.read_text()):
            total += 1
            if not documented:
                bare.append(f"{header.name}:{number}: {declaration[:90]}")
    print(
        f"{len(headers)} public headers, {lines} lines, {total} public members, {len(bare)} "
        "without a comment"
    )
    print("\n".join(bare), end="\n" if bare else "")
    return 1 if bare or len(headers) > MOST_HEADERS or lines > MOST_LINES else 0


if __name__ == "__main__":
    sys.exit(main())
