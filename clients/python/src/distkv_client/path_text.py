"""The text form of paths, as DistKV's users type it: `a.b:1.c` is "a", "b", 1, "c". Pure.

Strings are written as they are, with a dot before each but the first; everything else starts with a colon:
`:e` the empty string, `:t` `:f` `:n`, `:12`, `:1:.5`, `:vabc` and `:y00ff` byte strings, `:'t',1` an array as
Python writes a tuple. Within strings `:.` is a dot, `::` a colon, `:_` a space. `:` alone is the root.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterable

ESCAPES = {".": ".", ":": ":", "_": " "}
SHOWN_CHARS = 40
"""As much of a text as an error message repeats."""
ARRAY_CHARS_MAX = 16384
"""Longest text of an array that is read."""
ARRAY_NESTING_MAX = 17
"""Deepest nesting of parentheses in it."""
_HEX = re.compile(r"[+-]?[0-9a-fA-F]+")
_BINARY = re.compile(r"[+-]?[01]+")
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INFINITE = re.compile(r"[+-]?inf")
_STRING_ESCAPE = re.compile(r"\\(?![\\'\"nrt]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})", re.S)


class TextError(ValueError):
    """The text is no path; says at which character."""

    def __init__(self, problem: str, position: int) -> None:
        super().__init__(f"bad path: {problem} (at character {position + 1})")


def parse_elements(text: str) -> list[object]:
    """The elements of a path's text. Raises :class:`TextError`."""
    if text == ":":
        return []
    return _Parser(text).parse()


class _Parser:
    """Reads one text from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.elements: list[object] = []

    def parse(self) -> list[object]:
        if not self.text:
            raise TextError("a path cannot be empty; the root is ':'", 0)
        if self.text[0] != ":":
            self.string()
        while self.at < len(self.text):
            if self.text[self.at] == ".":
                self.at += 1
                self.string()
            elif self.text[self.at] != ":":
                raise TextError("expected '.' or ':' or the end", self.at)
            elif self.at_escape():
                self.string()
            else:
                self.typed()
        return self.elements

    def at_escape(self) -> bool:
        return self.text[self.at + 1 : self.at + 2] in ESCAPES

    def string(self) -> None:
        start = self.at
        content = self.content()
        if content:
            self.elements.append(content)
            return
        if self.text[self.at : self.at + 2] in (":x", ":b", ":v", ":y"):
            return
        if self.text[self.at : self.at + 1] == ":":
            raise TextError("what starts with ':' needs no dot before it", start)
        raise TextError("expected a string (an empty one is ':e' without the dot)", start)

    def content(self) -> str:
        """Up to the next separator or the end, with the escapes taken out."""
        parts: list[str] = []
        text, at = self.text, self.at
        while at < len(text) and text[at] != ".":
            if text[at] == ":":
                following = text[at + 1 : at + 2]
                if following not in ESCAPES:
                    break
                parts.append(ESCAPES[following])
                at += 2
            else:
                parts.append(text[at])
                at += 1
        self.at = at
        return "".join(parts)

    def typed(self) -> None:
        self.at += 1
        kind = self.text[self.at : self.at + 1]
        if not kind:
            raise TextError("expected something after ':' (a colon itself is '::')", self.at)
        simple: dict[str, object] = {"e": "", "t": True, "f": False, "n": None}
        if kind in simple:
            self.at += 1
            self.elements.append(simple[kind])
            return
        is_bytes = self.text[self.at : self.at + 2] in ("b'", 'b"')
        if kind in "xbvy" and not is_bytes:
            self.at += 1
        start = self.at
        if kind not in "xbvy0123456789+-iTFN('\"":
            raise TextError(f"':{kind}' means nothing", start)
        content = self.content()
        self.elements.append(self.element(kind, content, start, is_bytes))

    def element(self, kind: str, content: str, start: int, is_bytes: bool) -> object:
        if kind == "b" and is_bytes:
            return parse_array(content, start)
        if kind in "xb":
            pattern, base, what = (_HEX, 16, "hexadecimal") if kind == "x" else (_BINARY, 2, "binary")
            if not pattern.fullmatch(content):
                raise TextError(f"expected a {what} number, found '{content[:SHOWN_CHARS]}'", start)
            return int(content, base)
        if kind == "v":
            if not content.isascii():
                raise TextError("expected ASCII after ':v'", start)
            return content.encode()
        if kind == "y":
            if not re.fullmatch(r"([0-9a-fA-F]{2})*", content):
                raise TextError("expected hexadecimal bytes, two digits each, after ':y'", start)
            return bytes.fromhex(content)
        if "," in content or content[:1] in ("(", "'", '"'):
            return parse_array(content, start)
        return parse_number(content, start)


def parse_number(text: str, start: int) -> int | float:
    """An integer, or a float if there is a dot, an exponent, or it is infinite."""
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) <= SHOWN_CHARS else 1 << 64
    if _INFINITE.fullmatch(text):
        return -math.inf if text[0] == "-" else math.inf
    has_digits = text.lstrip("+-").isdecimal()
    if has_digits or not _FLOAT.fullmatch(text):
        raise TextError(f"expected a decimal number, found '{text[:SHOWN_CHARS]}'", start)
    number = float(text)
    if math.isinf(number):
        raise TextError(f"the float '{text[:SHOWN_CHARS]}' is too great", start)
    return number


def parse_array(text: str, start: int) -> tuple[object, ...]:
    """A tuple of strings, byte strings, numbers, True, False, None and tuples, as Python writes it."""

    def bad(problem: str) -> TextError:
        return TextError(f'bad array "{text[:SHOWN_CHARS]}": {problem}', start)

    if len(text) > ARRAY_CHARS_MAX or text.count("(") > ARRAY_CHARS_MAX // 8:
        raise bad("it is too long")
    depth = deepest = 0
    for character in text:
        depth += {"(": 1, ")": -1}.get(character, 0)
        deepest = max(deepest, depth)
    if deepest > 4 * ARRAY_NESTING_MAX:
        raise bad("it is too deep")
    try:
        node = ast.parse(text.strip(" "), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        raise bad("it is not what Python writes for a tuple") from None
    if not isinstance(node, ast.Tuple):
        raise bad("an array of one item has a comma behind it, as in ('a',)")
    return tuple(_item(item, text, bad, 1, start) for item in node.elts)


def _item(node: ast.expr, text: str, bad: Callable[[str], TextError], depth: int, start: int) -> object:
    """One item; `bad` makes the error."""

    source = ast.get_source_segment(text.strip(" "), node) or ""
    if isinstance(node, ast.Tuple):
        if depth > ARRAY_NESTING_MAX:
            raise bad("it is too deep")
        return tuple(_item(item, text, bad, depth + 1, start) for item in node.elts)
    if isinstance(node, ast.Constant):
        value = node.value
        if isinstance(value, (str, bytes)):
            # One literal, with the escapes and prefixes that are written, and no others.
            body = source[1:] if isinstance(value, bytes) else source
            if body[:1] not in ("'", '"') or body[:3] in ("'''", '"""'):
                raise bad("expected a quoted string")
            if _STRING_ESCAPE.search(body.replace("\\\\", "")) or repr_like(body) is False:
                raise bad("an escape means nothing; a backslash itself is written twice")
            return value
        if value is None or isinstance(value, bool):
            return value
    if isinstance(node, ast.Constant | ast.UnaryOp | ast.Name) and re.match(r"[0-9+\-i.]", source):
        return parse_number(source, start)
    raise bad(f"expected a quoted string, a number, True, False, None or '(' at '{source[:SHOWN_CHARS]}'")


def repr_like(body: str) -> bool:
    """Whether a literal is a single one: adjacent strings are refused."""
    quote, at = body[0], 1
    while at < len(body) and body[at] != quote:
        at += 2 if body[at] == "\\" else 1
    return at == len(body) - 1


def format_elements(elements: Iterable[object]) -> str:
    """The text of these elements: each path has one."""
    parts: list[str] = []
    for element in elements:
        if isinstance(element, str):
            parts.append(("." if parts else "") + escape(element) if element else ":e")
        elif element is None:
            parts.append(":n")
        elif isinstance(element, bool):
            parts.append(":t" if element else ":f")
        elif isinstance(element, bytes):
            if all(0x20 <= byte <= 0x7E for byte in element):
                parts.append(":v" + escape(element.decode()))
            else:
                parts.append(":y" + element.hex())
        elif isinstance(element, tuple):
            items: tuple[object, ...] = element  # pyright: ignore[reportUnknownVariableType]
            is_bare = len(items) > 1 and not isinstance(items[0], bytes)
            text = ",".join(repr(item) for item in items) if is_bare else repr(items)
            parts.append(":" + escape(text))
        else:
            parts.append(":" + escape(repr(element)))
    return "".join(parts) or ":"


def escape(text: str) -> str:
    """A string within a path's text."""
    return text.replace(":", "::").replace(".", ":.").replace(" ", ":_")
