"""The text form of paths, as DistKV's users type it: `a.b:1.c` is "a", "b", 1, "c". Pure.

Strings are written as they are, with a dot before each but the first; everything else starts with a colon:
`:e` the empty string, `:t` `:f` `:n`, `:12`, `:1:.5`, `:vabc` and `:y00ff` byte strings, `:'t',1` an array as
Python writes a tuple. Within strings `:.` is a dot, `::` a colon, `:_` a space, and `:u0009` or `:u{e0041}` the
character of that number, which is only read: commands print control characters so. `:` alone is the root.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterable

ESCAPES = {".": ".", ":": ":", "_": " "}
STRING_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "r": "\r", "t": "\t"}
"""Behind a backslash in an array."""
WORDS: dict[str, object] = {"None": None, "True": True, "False": False}
UNCLOSED = "a quote or a parenthesis is not closed"
SHOWN_CHARS = 40
"""As much of a text as an error message repeats."""
ARRAY_NESTING_MAX = 17
"""Deepest nesting of parentheses in it."""
_NUMBERED = re.compile(r":u(?:([0-9a-fA-F]{4})|\{([0-9a-fA-F]{1,6})\})")
_HEX = re.compile(r"[+-]?[0-9a-fA-F]+")
_BINARY = re.compile(r"[+-]?[01]+")
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INFINITE = re.compile(r"[+-]?inf")
_BYTES_ESCAPE = re.compile(r"[\\'\"nrt]|x[0-9a-fA-F]{2}")
_STRING_ESCAPE = re.compile(_BYTES_ESCAPE.pattern + "|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}")


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
        return escape_at(self.text, self.at) is not None

    def string(self) -> None:
        start = self.at
        content = self.content()
        if content:
            self.elements.append(content)
            return
        if self.text[self.at : self.at + 2] in (":x", ":b", ":v", ":y", ":u"):
            return
        if self.text[self.at : self.at + 1] == ":":
            raise TextError("what starts with ':' needs no dot before it", start)
        raise TextError("an element is missing here; an empty string is written ':e', without the dot", start)

    def content(self) -> str:
        """Up to the next separator or the end, with the escapes taken out."""
        parts: list[str] = []
        text, at = self.text, self.at
        while at < len(text) and text[at] != ".":
            if text[at] == ":":
                escape = escape_at(text, at)
                if escape is None:
                    break
                character, length = escape
                parts.append(character)
                at += length
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
        if kind == "u":
            raise TextError(
                "expected a character's four hexadecimal digits after ':u', or up to six in braces", start + 1
            )
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


def escape_at(text: str, at: int) -> tuple[str, int] | None:
    """The character that the colon at this place escapes within a string, if it does, and the length of the escape."""
    following = text[at + 1 : at + 2]
    if following in ESCAPES:
        return ESCAPES[following], 2
    numbered = _NUMBERED.match(text, at)
    if not numbered:
        return None
    number = int(numbered[1] or numbered[2], 16)
    if 0xD800 <= number < 0xE000 or number > sys.maxunicode:
        return None
    return chr(number), len(numbered[0])


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
    """A tuple of strings, byte strings, numbers, True, False, None and tuples, as Python writes it. The parentheses
    around the outermost items may be left out, and the rest of Python's grammar is refused."""
    return _Array(text, start).parse()


class _Array:
    """Reads the text of one array from left to right."""

    def __init__(self, text: str, start: int) -> None:
        self.text = text
        self.at = 0
        self.start = start

    def bad(self, problem: str) -> TextError:
        return TextError(f'bad array "{self.text[:SHOWN_CHARS]}": {problem}', self.start)

    def one_item(self) -> TextError:
        return self.bad("an array of one item has a comma behind it, as in ('a',)")

    def next(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def skip_spaces(self) -> None:
        while self.next() == " ":
            self.at += 1

    def parse(self) -> tuple[object, ...]:
        items, has_comma = self.items(1)
        if self.next():
            raise self.bad("expected a comma or the end of the array")
        if has_comma:
            return items
        if len(items) == 1 and isinstance(items[0], tuple):
            # Parentheses around all of it.
            only: tuple[object, ...] = items[0]  # pyright: ignore[reportUnknownVariableType]
            return only
        raise self.one_item()

    def items(self, level: int) -> tuple[tuple[object, ...], bool]:
        """What stands up to a closing parenthesis, or to the end, and whether a comma is in it."""
        if level > ARRAY_NESTING_MAX:
            raise self.bad("it is too deep")
        found: list[object] = []
        has_comma = False
        self.skip_spaces()
        while self.next() not in ("", ")"):
            found.append(self.item(level))
            self.skip_spaces()
            if self.next() != ",":
                break
            has_comma = True
            self.at += 1
            self.skip_spaces()
        return tuple(found), has_comma

    def item(self, level: int) -> object:
        if self.next() == "(":
            self.at += 1
            items, has_comma = self.items(level + 1)
            if not self.next():
                raise self.bad(UNCLOSED)
            if self.next() != ")":
                raise self.bad("expected a comma or the end of the array")
            self.at += 1
            if len(items) == 1 and not has_comma:
                raise self.one_item()
            return items
        if self.next() in ("'", '"'):
            return self.quoted(is_text=True)
        if self.text[self.at : self.at + 2] in ("b'", 'b"'):
            self.at += 1
            return self.quoted(is_text=False).encode("latin-1")
        begin = self.at
        while self.next() not in ("", ",", ")", " "):
            self.at += 1
        word = self.text[begin : self.at]
        if word in WORDS:
            return WORDS[word]
        if word[:1] in tuple("0123456789+-i"):
            return parse_number(word, self.start)
        raise self.bad("expected a quoted string, a number, True, False, None or '('")

    def quoted(self, is_text: bool) -> str:
        """A text; or the bytes of a byte string, a character each."""
        quote = self.next()
        parts: list[str] = []
        self.at += 1
        while character := self.next():
            self.at += 1
            if character == quote:
                return "".join(parts)
            if character == "\\" and self.next():
                parts.append(self.escaped(is_text))
            elif is_text or character.isascii():
                parts.append(character)
            else:
                raise self.bad("a byte string holds something other than ASCII")
        raise self.bad(UNCLOSED)

    def escaped(self, is_text: bool) -> str:
        """What stands behind a backslash."""
        found = (_STRING_ESCAPE if is_text else _BYTES_ESCAPE).match(self.text, self.at)
        if found is not None:
            self.at = found.end()
            kind, digits = found[0][0], found[0][1:]
            if not digits:
                return STRING_ESCAPES[kind]
            number = int(digits, 16)
            if number <= 0x10FFFF and not 0xD800 <= number <= 0xDFFF:
                return chr(number)
        raise self.bad("an escape means nothing; a backslash itself is written twice")


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
