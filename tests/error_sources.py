"""Finds the error texts in the sources of a tree, for error_texts.py.

A text is what a Status, an exception or a warning says, with an ellipsis for each part that is
filled in when the program runs. C++ is read as tokens, and Python as its syntax tree. A text that
is a variable or comes from another function is found where it is made (MAKERS, VARIABLES).
"""

import ast
import re

GAP = "…"

TOKEN = re.compile(
    r'//[^\n]*|#include[^\n]*|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'|\d[\w\']*|\w+|::|\S'
)
# These C++ functions and variables make an error of the text that they are given. The words on the
# right are the whole text. A name after a colon is meant in that file only.
MAKERS = {
    "abandon": "rank … {}",
    "awaitStrategy": "{} within …",
    "breakBy": "this model is no longer good: {}; start again from the last checkpoint",
    "broken": "{}: …",
    "connection.cc:ended": "{}",
    "fromErrno": "{}: …",
    "fromUcs": '{}: UCX says "…"',
    "impossible": "{}",
    "invalid": "{}",
    "launcher.cc:fail": "{}",
    "options.cc:format": "{}",
    "owed_": "{}",
    "program.cc:print": "{}",
    "protection.cc:warning": "{}",
    "remote_store.cc:why": "{}",
    "server.cc:refuse": "{}",
    "server.cc:refuseSettings": "{}",
    "session_parts.cc:why": "rank … {}",
    "sgd.cc:refuse": "{}",
    "trainer.cc:text": "{}",
    "unusable": "{}",
}
# Of these, all arguments but the first are parts of one text.
ASSERTIONS = ("TORCH_CHECK", "TORCH_CHECK_VALUE")
LOUD = ("warn", "error", "critical")
BEGIN, END = ("(", "[", "{"), (")", "]", "}")
# Parts of an expression that add nothing to its text.
SILENT = ("(", ")", "{", "}", "+", ",", "::", "std", "string", "c10", "str", "fmt", "format")
# The same in Python: methods, and variables that hold a text until it is raised.
METHODS = {"error": "{}", "exit": "{}", "fail": "… is no longer good: {}", "say": "{}"}
VARIABLES = ("_forked", "self._broken", "self._owed[key]")


def clean(text):
    """Returns the text with one ellipsis for each gap, and without the end of a line."""
    text = text.replace("\n", " ").replace('\\"', '"').replace("\\n", " ")
    return re.sub(rf"{GAP}+", GAP, " ".join(text.split()))


def isText(text):
    """Returns false for a text of gaps: its words are those of another place."""
    return len(re.findall(r"\b[a-z]{2,}\b", text, re.IGNORECASE)) > 1


def filled(format_):
    """Returns a format of fmt with an ellipsis for every argument."""
    gaps = re.sub(r"\{[^{}]*\}", GAP, format_.replace("{{", "\0").replace("}}", "\1"))
    return gaps.replace("\0", "{").replace("\1", "}")


def tokensOf(source):
    """Returns the tokens of C++, as [text, offset]; neighbouring literals are one."""
    tokens = []
    for match in TOKEN.finditer(source):
        if match[0].startswith(("//", "#include")):
            continue
        if match[0][0] == '"' and tokens and tokens[-1][0][0] == '"':
            tokens[-1][0] = tokens[-1][0][:-1] + match[0][1:]
        else:
            tokens.append([match[0], match.start()])
    return tokens


def argumentsAt(tokens, at):
    """Returns the expressions from a place to the bracket or semicolon that ends them."""
    depth, found = 0, [[]]
    for token in tokens[at:]:
        depth += (token in BEGIN) - (token in END)
        if depth < 0 or (depth == 0 and token == ";"):
            break
        if depth == 0 and token == ",":
            found.append([])
        else:
            found[-1].append(token)
    return found


def sitesOf(tokens, name):
    """Yields the places where texts become errors: the words around the text, and the expressions
    that may hold it."""
    for i, token in enumerate(tokens):
        before, after = tokens[max(i - 2, 0) : i], tokens[i + 1 : i + 4]
        words = MAKERS.get(token) or MAKERS.get(f"{name}:{token}")
        if token.startswith("k") and before == ["Code", "::"] and after[:1] == [","]:
            yield i, "{}", argumentsAt(tokens, i + 2)[:1]
        elif token == "code" and after[:1] == [","]:
            yield i, "{}", argumentsAt(tokens, i + 2)[:1]
        elif token == "code" and after == ["(", ")", ","]:
            yield i, "{}", argumentsAt(tokens, i + 4)[:1]
        elif token in LOUD and before[1:] == ["."] and after[:1] == ["("]:
            yield i, "{}", argumentsAt(tokens, i + 2)[:1]
        elif (
            token == "throw"
            and "(" in after + tokens[i + 4 : i + 6]
            and "Code" not in tokens[i : i + 6]
        ):
            yield i, "{}", argumentsAt(tokens, tokens.index("(", i) + 1)[:1]
        elif token in ASSERTIONS and after[:1] == ["("]:
            yield i, "{}", [sum(argumentsAt(tokens, i + 2)[1:], [])]
        elif words and after[:1] in (["("], ["="]):
            yield i, words, argumentsAt(tokens, i + 2)


def render(expression):
    """Returns the texts of a C++ expression; `a ? "b" : "c"` has two."""
    texts, depth, skipped = [""], 0, None
    for i, token in enumerate(expression):
        depth += (token in BEGIN) - (token in END)
        if skipped is not None:  # the arguments of a format
            skipped = None if depth < skipped else skipped
        elif token == "?":
            texts[-1] = ""
        elif token == ":":
            texts.append("")
        elif token[0] == '"':
            texts[-1] += filled(token[1:-1])
            skipped = depth if expression[max(i - 2, 0) : i] == ["format", "("] else None
        elif token not in SILENT:
            texts[-1] += GAP
    return texts


def cppTexts(path):
    """Yields (line, text) for the errors of a C++ file."""
    source = path.read_text()
    pairs = tokensOf(source)
    for i, words, expressions in sitesOf([token for token, _ in pairs], path.name):
        found = [[text for text in render(each) if isText(text)] for each in expressions]
        for text in next(filter(None, found), []):
            yield source.count("\n", 0, pairs[i][1]) + 1, clean(words.replace("{}", text))


def pythonText(node, constants):
    """Returns the text of an expression, or of a constant that has its name."""
    match node:
        case ast.Constant(value=str()):
            return node.value
        case ast.JoinedStr():
            return "".join(pythonText(part, constants) for part in node.values)
        case ast.Name():
            return constants.get(node.id, GAP)
    return GAP


def pythonTexts(path, constants):
    """Yields (line, text) for the errors of a Python file."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Raise(exc=ast.Call(args=arguments)):
                words = "{}"
            case ast.Call(func=ast.Attribute(attr=name), args=arguments) if name in METHODS:
                words = METHODS[name]
            case ast.Assign(targets=[target], value=value) if ast.unparse(target) in VARIABLES:
                arguments = value.elts if isinstance(value, ast.Tuple) else [value]
                words = "{}"
            case _:
                continue
        for text in [pythonText(argument, constants) for argument in arguments]:
            if isText(text):
                yield node.lineno, clean(words.replace("{}", text))


def constantsOf(paths):
    """Returns the texts that have a name in a module."""
    return {
        statement.targets[0].id: pythonText(statement.value, {})
        for path in paths
        for statement in ast.parse(path.read_text()).body
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)
    }


def isTest(path):
    parts = [*path.parts[:-1], path.stem]
    return "testing" in parts or path.stem.endswith(("_test", "_world")) or "mad_" in path.stem


def textsOf(root):
    """Returns {text: its places} of a tree."""
    cpp = [path for folder in ("include", "sluice", "tools") for path in (root / folder).rglob("*")]
    cpp = sorted(path for path in cpp if path.suffix in (".h", ".cc") and not isTest(path))
    python = sorted(
        [*(root / "python").rglob("*.py"), *(root / "papers/sluice_papers").rglob("*.py")]
    )
    constants, found = constantsOf(python), {}
    for path in cpp + python:
        texts = pythonTexts(path, constants) if path.suffix == ".py" else cppTexts(path)
        for line, text in texts:
            found.setdefault(text, []).append(f"{path.relative_to(root)}:{line}")
    return found
