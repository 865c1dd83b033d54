#!/usr/bin/env python3
"""Prints a header with its plain comments as comments of Doxygen's, line by line.

  scripts/doxygen_filter.py HEADER

The headers' style is //: a comment documents the declaration below it, or, behind a declaration,
that declaration. The first comment of a file is the file's.
"""

import re
import sys
from pathlib import Path


def filtered(text):
    """Yields the lines of the header, each as Doxygen wants it."""
    in_first = text.startswith("//")
    code = False
    for number, line in enumerate(text.split("\n")):
        whole = re.match(r"^(\s*)//(?!/)(.*)$", line)
        if in_first and whole:
            # Examples in the file's comment are shown as they are.
            content = whole[2]
            opened = re.match(r"^ {3}\S", content) and not code
            closed = code and not content.startswith("   ") and content.strip()
            prefix = "/// @file\n" if number == 0 else ""
            if opened:
                code, prefix = True, prefix + "/// @code\n"
            if closed:
                code, prefix = False, prefix + "/// @endcode\n"
            yield f"{prefix}///{content}"
            continue
        if in_first:
            in_first = False
            if code:
                yield "/// @endcode"
        if whole:
            yield f"{whole[1]}///{whole[2]}"
        elif "NOLINT" in line or line.startswith("}"):
            yield re.sub(r"\s*//.*", "", line)
        else:
            yield re.sub(r"^(.*\S)\s+// (.*)$", r"\1  ///< \2", line)


if __name__ == "__main__":
    print("\n".join(filtered(Path(sys.argv[1]).read_text())), end="")
