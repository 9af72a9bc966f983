"""Small changes to Python and C source text that a test should detect.

Both mutators map source text to edits. A Python edit is found in the syntax tree, and kept only if
it changes the tree; a C edit is found among tokens, and counts only if a compiler accepts it.
Changes that no test should detect are left out: docstrings, type annotations, imports, decorators,
assertions, and the text of errors.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, order=True)
class Edit:
    """Replacement of the characters from ``start`` to ``end`` by ``replacement``."""

    start: int
    end: int
    replacement: str
    operator: str

    def applied_to(self, source: str) -> str:
        return source[: self.start] + self.replacement + source[self.end :]


def edits_of(source: str, suffix: str) -> list[Edit]:
    """Distinct edits of a file with suffix ``.py`` or ``.c``, in order."""
    found = python_edits(source) if suffix == ".py" else c_edits(source)
    return sorted({(e.start, e.end, e.replacement): e for e in found}.values())


# --- Python -----------------------------------------------------------------------------------

_COMPARISONS: dict[type[ast.cmpop], tuple[str, tuple[str, ...]]] = {
    ast.Lt: ("<", ("<=", ">=")),
    ast.LtE: ("<=", ("<", ">")),
    ast.Gt: (">", (">=", "<=")),
    ast.GtE: (">=", (">", "<")),
    ast.Eq: ("==", ("!=",)),
    ast.NotEq: ("!=", ("==",)),
    ast.Is: ("is", ("is not",)),
    ast.IsNot: (r"is\s+not", ("is",)),
    ast.In: ("in", ("not in",)),
    ast.NotIn: (r"not\s+in", ("in",)),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "*"),
    ast.Pow: ("**", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
    ast.BitXor: ("^", "|"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
}
_COUNTERPARTS = {"min": "max", "max": "min", "any": "all", "all": "any", "sum": "max"}
# Functions for which the order of arguments does not matter.
_SYMMETRIC = {"min", "max"}
_TYPED = {"isinstance", "cast", "TypeVar", "NewType"}


def python_edits(source: str) -> Iterator[Edit]:
    """Edits of the functions, methods and constants of a module."""
    tree = ast.parse(source)
    before = ast.dump(tree)
    for edit in _Python(source).of(tree):
        try:
            after = ast.parse(edit.applied_to(source))
        except SyntaxError:
            continue
        if ast.dump(after) != before:
            yield edit


class _Python:
    def __init__(self, source: str) -> None:
        self._source = source
        lines = source.splitlines(keepends=True)
        self._lines = lines
        self._begin = [0]
        for line in lines:
            self._begin.append(self._begin[-1] + len(line))

    def of(self, node: ast.AST) -> Iterator[Edit]:
        yield from self._statement(node)
        yield from self._expression(node)
        for child in self._mutable_children(node):
            yield from self.of(child)

    def _mutable_children(self, node: ast.AST) -> Iterator[ast.AST]:
        match node:
            case (
                ast.Import()
                | ast.ImportFrom()
                | ast.Assert()
                | ast.Raise()
                | ast.JoinedStr()
                | ast.AnnAssign(value=None)
            ):
                return
            case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
                return
            case ast.AnnAssign(value=ast.expr() as value):
                yield value
                return
            case ast.Assign(targets=[ast.Name(id="__all__")]):
                return
            case ast.Call(func=ast.Name(id=name)) if name in _TYPED or name.endswith("Error"):
                return
            case ast.FunctionDef(args=arguments, body=body):
                yield from (d for d in (*arguments.defaults, *arguments.kw_defaults) if d)
                yield from body
                return
            case ast.ClassDef(body=body):
                yield from body
                return
            case ast.Expr(value=ast.Constant()):
                return
        yield from ast.iter_child_nodes(node)

    def _statement(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Expr(value=ast.Constant() | ast.Yield() | ast.YieldFrom()):
                return
            case (
                ast.Expr()
                | ast.AugAssign()
                | ast.Delete()
                | ast.Raise()
                | ast.Continue()
                | ast.Break()
                | ast.Return(value=None)
                | ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_])
            ):
                yield self._replace(node, "pass", "statement removed")
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield self._replace(value, "None", "returns nothing")
            case ast.If(test=test) | ast.While(test=test):
                yield self._replace(test, f"not ({self._text(test)})", "condition negated")
                if isinstance(node, ast.If):
                    yield self._replace(test, "False", "condition never true")

    def _expression(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Compare(left=left, ops=operators, comparators=others):
                for operator, (one, other) in zip(
                    operators, pairwise((left, *others)), strict=True
                ):
                    pattern, replacements = _COMPARISONS[type(operator)]
                    for replacement in replacements:
                        yield from self._between(one, other, pattern, replacement, "comparison")
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _ARITHMETIC:
                sign, replacement = _ARITHMETIC[type(operator)]
                yield from self._between(left, right, re.escape(sign), replacement, "arithmetic")
            case ast.AugAssign(target=target, op=operator, value=value):
                sign, replacement = _ARITHMETIC[type(operator)]
                pattern, replacement = re.escape(sign) + "=", replacement + "="
                yield from self._between(target, value, pattern, replacement, "arithmetic")
            case ast.BoolOp(op=operator, values=values):
                pattern, replacement = (
                    ("and", "or") if isinstance(operator, ast.And) else ("or", "and")
                )
                for one, other in pairwise(values):
                    yield from self._between(one, other, pattern, replacement, "and, or")
            case ast.UnaryOp(operand=operand, op=ast.Not() | ast.USub()):
                yield self._replace(node, f"({self._text(operand)})", "sign or not removed")
            case ast.IfExp(test=test, body=body, orelse=other):
                swapped = f"({self._text(other)}) if {self._text(test)} else ({self._text(body)})"
                yield self._replace(node, swapped, "branches swapped")
            case ast.comprehension(ifs=tests):
                for test in tests:
                    yield self._replace(test, "True", "filter removed")
            case ast.Call():
                yield from self._call(node)
            case ast.Constant():
                yield from self._constant(node)

    def _call(self, node: ast.Call) -> Iterator[Edit]:
        match node.func:
            case ast.Name(id=name) if name in _TYPED or name.endswith("Error"):
                return
            case ast.Name(id=name) if name in _COUNTERPARTS:
                yield self._replace(node.func, _COUNTERPARTS[name], "counterpart called")
                if name in _SYMMETRIC:
                    return
        plain = [a for a in node.args if not isinstance(a, ast.Starred)]
        if len(plain) == len(node.args) and len(plain) > 1:
            first, second = plain[:2]
            gap = self._source[self._end(first) : self._start(second)]
            start, end = self._start(first), self._end(second)
            swapped = self._text(second) + gap + self._text(first)
            yield Edit(start, end, swapped, "arguments swapped")

    def _constant(self, node: ast.Constant) -> Iterator[Edit]:
        match node.value:
            case bool(value):
                yield self._replace(node, str(not value), "constant")
            case int(value):
                yield self._replace(node, str(value + 1), "constant")
                if value > 0:
                    yield self._replace(node, str(value - 1), "constant")
            case float(value):
                yield self._replace(node, repr(value * 2 if value else 1.0), "constant")
            case str(value) if " " not in value and value:
                yield self._replace(node, repr(value + "_"), "constant")

    def _between(
        self, one: ast.expr, other: ast.expr, pattern: str, replacement: str, operator: str
    ) -> Iterator[Edit]:
        """Replace the operator between two operands, where parentheses and space may be too."""
        start, end = self._end(one), self._start(other)
        words = pattern[0].isalpha()
        found = re.search(rf"\b{pattern}\b" if words else pattern, self._source[start:end])
        if found:
            yield Edit(start + found.start(), start + found.end(), replacement, operator)

    def _replace(self, node: ast.AST, replacement: str, operator: str) -> Edit:
        return Edit(self._start(node), self._end(node), replacement, operator)

    def _text(self, node: ast.AST) -> str:
        return self._source[self._start(node) : self._end(node)]

    def _start(self, node: ast.AST) -> int:
        return self._place(node.lineno, node.col_offset)  # type: ignore[attr-defined]

    def _end(self, node: ast.AST) -> int:
        return self._place(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def _place(self, line: int, column_bytes: int) -> int:
        before = self._lines[line - 1].encode()[:column_bytes]
        return self._begin[line - 1] + len(before.decode())


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


# --- C ----------------------------------------------------------------------------------------

_TOKENS = re.compile(
    r"""(?P<skipped>\s+|/\*.*?\*/|//[^\n]*|\#(?:\\\n|[^\n])*)
      | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
      | (?P<number>\d[\w.]*)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<sign><<=|>>=|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
    """,
    re.DOTALL | re.VERBOSE,
)
_SIGNS = {
    "<": ("<=", ">="),
    "<=": ("<", ">"),
    ">": (">=", "<="),
    ">=": (">", "<"),
    "==": ("!=",),
    "!=": ("==",),
    "&&": ("||",),
    "||": ("&&",),
    "+=": ("-=", "="),
    "-=": ("+=", "="),
    "++": ("--",),
    "--": ("++",),
    "<<": (">>",),
    ">>": ("<<",),
}
# These are also unary or part of a declaration, and so count only with space on both sides.
_SPACED_SIGNS = {
    "+": "-",
    "-": "+",
    "*": "/",
    "/": "*",
    "%": "/",
    "&": "|",
    "|": "&",
    "^": "|",
}
_NUMBER = re.compile(r"(\d+)([uUlL]*)")
_FLOAT = re.compile(r"\d+\.?\d*(e-?\d+)?f?")
_ASSIGNING = {"(", "->", ".", "[", "=", "+=", "-=", "++", "--"}
_KEYWORDS = {"return", "goto", "if", "while", "for", "switch", "case", "default", "else", "enum"}


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def c_edits(source: str) -> Iterator[Edit]:
    """Edits of the functions of a C file, including those that a compiler rejects."""
    tokens = [
        _Token(found.lastgroup or "", found.group(), found.start())
        for found in _TOKENS.finditer(source)
        if found.lastgroup != "skipped"
    ]
    depth = 0
    for at, token in enumerate(tokens):
        depth += {"{": 1, "}": -1}.get(token.text, 0)
        if depth and token.kind != "string":
            yield from _c_token_edits(source, tokens, at)


def _c_token_edits(source: str, tokens: Sequence[_Token], at: int) -> Iterator[Edit]:
    token = tokens[at]

    def replace(text: str, operator: str) -> Edit:
        return Edit(token.start, token.end, text, operator)

    text = token.text
    for sign in _SIGNS.get(text, ()):
        yield replace(sign, "sign")
    if text in _SPACED_SIGNS and source[token.start - 1] == source[token.end] == " ":
        yield replace(_SPACED_SIGNS[text], "sign")
    elif text == "!":
        yield replace("", "not removed")
    elif text in {"true", "false"}:
        yield replace("false" if text == "true" else "true", "constant")
    elif token.kind == "number":
        if whole := _NUMBER.fullmatch(text):
            value = int(whole[1])
            yield replace(f"{value + 1}{whole[2]}", "constant")
            if value:
                yield replace(f"{value - 1}{whole[2]}", "constant")
        elif _FLOAT.fullmatch(text):
            yield replace(f"2 * {text}", "constant")
    elif text in {"if", "while"} and tokens[at + 1].text == "(":
        close = _closing(tokens, at + 1)
        inner = source[tokens[at + 1].end : close.start]
        edit = Edit(tokens[at + 1].end, close.start, f"!({inner})", "condition negated")
        yield edit
    elif text == "return":
        yield from _c_return(source, tokens, at)
    elif _begins_statement(tokens, at) and text not in _KEYWORDS:
        yield from _c_statement(tokens, at)
    if token.kind == "word" and tokens[at + 1].text == "(" and text not in _KEYWORDS:
        yield from _c_swapped(source, tokens, at + 1)


def _begins_statement(tokens: Sequence[_Token], at: int) -> bool:
    return tokens[at].kind == "word" and tokens[at - 1].text in {";", "{", "}", ":", ")"}


def _c_statement(tokens: Sequence[_Token], at: int) -> Iterator[Edit]:
    """Remove an expression statement, ``break`` or ``continue``, but no declaration."""
    is_break = tokens[at].text in {"break", "continue"}
    if is_break or tokens[at + 1].text in _ASSIGNING:
        end = next(token for token in tokens[at:] if token.text == ";")
        yield Edit(tokens[at].start, end.start, "", "statement removed")


def _c_return(source: str, tokens: Sequence[_Token], at: int) -> Iterator[Edit]:
    if tokens[at + 1].text == ";":
        return
    end = next(token for token in tokens[at:] if token.text == ";")
    if source[tokens[at + 1].start : end.start] not in {"0", "NULL", "false"}:
        yield Edit(tokens[at + 1].start, end.start, "0", "returns nothing")


def _c_swapped(source: str, tokens: Sequence[_Token], at: int) -> Iterator[Edit]:
    """Swap the first two arguments of a call."""
    close = _closing(tokens, at)
    commas, depth = [], 0
    for token in tokens[at : tokens.index(close)]:
        depth += {"(": 1, ")": -1, "[": 1, "]": -1, "{": 1, "}": -1}.get(token.text, 0)
        if token.text == "," and depth == 1:
            commas.append(token)
    if not commas:
        return
    begin, end = tokens[at].end, (commas[1] if len(commas) > 1 else close).start
    first, second = source[begin : commas[0].start], source[commas[0].end : end]
    swapped = f"{second.strip()}, {first.strip()}"
    yield Edit(begin, end, swapped, "arguments swapped")


def _closing(tokens: Sequence[_Token], at: int) -> _Token:
    depth = 0
    for token in tokens[at:]:
        depth += {"(": 1, ")": -1}.get(token.text, 0)
        if not depth:
            return token
    raise ValueError("a parenthesis is not closed")
