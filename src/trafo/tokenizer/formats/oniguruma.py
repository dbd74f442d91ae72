r"""Does a regular expression mean the same to Oniguruma (in `tokenizers`) and to `regex`?

In: a regular expression. Out: nothing, or a FormatError that names what the two may read in
different ways. The same spelling often has two meanings: `^` and `$` match at lines or only at the
ends of the text, `\h` is a hexadecimal digit or a blank, `{1,3}+` a repetition or a possessive one,
`(?i:ss)` matches `ß` or does not, `[a[b]]` is a set of sets or not, and an empty match cuts the
text or does not. So this is a list of what is known to be the same, checked against `tokenizers` by
a test; everything else is refused.
"""

import re

from trafo.errors import FormatError

_CATEGORIES = "L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs"
_SCRIPTS = "Arabic Cyrillic Devanagari Greek Han Hangul Hebrew Hiragana Katakana Lao Latin Thai"
_PROPERTY = re.compile(rf"\\[pP]\{{(?:{'|'.join(f'{_CATEGORIES} {_SCRIPTS}'.split())})\}}")
_SET_ESCAPE = re.compile(r"\\[sSdD]")
_ONE_CHARACTER = re.compile(r"\\[tnrf]|\\x[0-7][0-9a-fA-F]|\\u[0-9a-fA-F]{4}|\\\W|[^\\]")
_GROUP = re.compile(r"\((?:\?(?:[:=!>]|<[=!]))?")
_WIDTHLESS = ("(?=", "(?!", "(?<=", "(?<!")
# Letters in any case: only ASCII, and none of the pairs that are also one character (ﬁ, ß, ...).
_ANY_CASE = re.compile(
    r"\(\?i:('?(?:\[[a-zA-Z]+\]|[a-zA-Z])*(?:\|'?(?:\[[a-zA-Z]+\]|[a-zA-Z])+)*)\)"
)
_LIGATURES = re.compile(r"f[fil]|s[st]", re.IGNORECASE)
_REPETITION = re.compile(r"([*+?])[?+]?|\{(\d+)\}|\{(\d*),\d*\}\??")
_SYNTAX = set("^$*+?{}[]()|")


def check_read_alike(expression: str, where: str) -> None:
    """Refuse an expression that Oniguruma and `regex` may read in different ways."""
    parser = _Parser(expression, where)
    least = parser.alternatives()
    if parser.position < len(expression):
        parser.refuse(expression[parser.position])
    if not least:
        parser.refuse("a match of nothing")


class _Parser:
    """Goes through an expression; each method returns the least number of characters matched."""

    def __init__(self, expression: str, where: str) -> None:
        self.position = 0
        self._expression = expression
        self._where = where

    def refuse(self, what: str) -> None:
        raise FormatError(
            f"in the expression {self._expression!r}, trafo and Oniguruma may not read {what!r} "
            "alike",
            where=self._where,
            hint="see formats/oniguruma.py for what is read alike",
        )

    def alternatives(self) -> int:
        least = self._sequence()
        while self._take("|"):
            least = min(least, self._sequence())
        return least

    def _sequence(self) -> int:
        least = 0
        while self.position < len(self._expression) and self._next() not in "|)":
            least += self._repeated(self._atom())
        return least

    def _atom(self) -> int:
        if (any_case := self._match(_ANY_CASE)) is not None:
            if _LIGATURES.search(any_case[1]):
                self.refuse(any_case[0])
            return min(len(re.sub(r"\[\w+\]", "x", word)) for word in any_case[1].split("|"))
        if (group := self._match(_GROUP)) is not None:
            if self._next() == "?":
                self.refuse(self._expression[self.position - 1 : self.position + 3])
            width = self.alternatives()
            if not self._take(")"):
                self.refuse(group[0])
            return 0 if group[0] in _WIDTHLESS else width
        if self._take("["):
            return self._set()
        if self._match(_PROPERTY) or self._match(_SET_ESCAPE):
            return 1
        if self._next() in _SYNTAX or not self._match(_ONE_CHARACTER):
            self.refuse(self._expression[self.position : self.position + 2])
        return 1

    def _repeated(self, width: int) -> int:
        """What comes before, of a width, as often as it must be there at least."""
        found = self._match(_REPETITION)
        if found is None:
            return width
        if not width or self._next() in ("*", "+", "?", "{"):
            self.refuse(found[0] + self._next())
        if found[1]:
            return width * (found[1] == "+")
        return width * int(found[2] or found[3] or 0)

    def _set(self) -> int:
        """The inside of [...]."""
        self._take("^")
        if self._next() in ("]", ""):
            self.refuse("[]")
        while not self._take("]"):
            if self._next() in ("[", "") or self._expression.startswith("&&", self.position):
                self.refuse(self._next() or "[")
            is_range_end = self._match(_PROPERTY) is None and self._match(_SET_ESCAPE) is None
            if is_range_end and not self._match(_ONE_CHARACTER):
                self.refuse(self._expression[self.position : self.position + 2])
            if self._next() == "-" and not self._expression.startswith("-]", self.position):
                self._range(is_range_end)
        return 1

    def _range(self, has_start: bool) -> None:
        self._take("-")
        if not has_start or self._next() in ("[", "") or not self._match(_ONE_CHARACTER):
            self.refuse(self._expression[self.position - 2 : self.position + 2])

    def _next(self) -> str:
        return self._expression[self.position : self.position + 1]

    def _take(self, character: str) -> bool:
        taken = self._next() == character
        self.position += taken
        return taken

    def _match(self, what: re.Pattern[str]) -> re.Match[str] | None:
        found = what.match(self._expression, self.position)
        if found is not None:
            self.position = found.end()
        return found
