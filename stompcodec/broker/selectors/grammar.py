"""The grammar of selectors, and the messages for syntax errors.

lark is imported for the first selector.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from stompcodec.broker.selectors.compile import Condition, Node, Rules, SelectorFault, as_condition
from stompcodec.errors import MissingExtraError

if TYPE_CHECKING:
    from lark import Token

_KEYWORDS = {word: f"_{word}" for word in ("AND", "OR", "LIKE", "ESCAPE", "BETWEEN", "IN", "IS", "NULL")}
_KEYWORDS |= {word: word for word in ("NOT", "TRUE", "FALSE")}

#: LETTERS stands for the characters allowed in a name after its first.
_GRAMMAR = r"""
?start: condition
?condition: any_of
?any_of: all_of (_OR all_of)*
?all_of: negation (_AND negation)*
?negation: test | NOT negation -> negated
?test: sum
    | sum COMPARE sum -> compared
    | sum [NOT] _LIKE TEXT [_ESCAPE TEXT] -> like
    | sum [NOT] _BETWEEN sum _AND sum -> between
    | sum [NOT] _IN "(" literal ("," literal)* ")" -> member
    | sum _IS [NOT] _NULL -> null
?sum: product ((PLUS | MINUS) product)*
?product: factor ((STAR | SLASH) factor)*
?factor: atom | (PLUS | MINUS) factor -> signed
?atom: literal_ | name | "(" any_of ")" -> nested
?literal_: number | text | truth
?literal: literal_ | (PLUS | MINUS) number -> signed
name: NAME | QUOTED
number: NUMBER
text: TEXT
truth: TRUE | FALSE
NAME: /(?:[^\W\d]|\$)[LETTERS]*/
QUOTED: /"(?:[^"]|"")+"/
TEXT: /'(?:[^']|'')*'/
NUMBER: /(?:0[xX][0-9a-fA-F]+[lL]?|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[lLfFdD]?)(?![\w.$])/
COMPARE: /<=|>=|<>|=|<|>/
PLUS: "+"
MINUS: "-"
STAR: "*"
SLASH: "/"
%ignore /[ \t\r\n\f]+/
"""


@lru_cache(maxsize=4)
def _parser(hyphens: bool, convert: bool) -> Callable[[str], object]:
    """Return a parser of selectors, which returns a Node. Raise MissingExtraError if lark is not installed."""
    try:
        from lark import Lark, Token
    except ImportError:
        raise MissingExtraError("broker", "lark") from None

    def word(token: Token) -> Token:
        kind = _KEYWORDS.get(token.upper())
        return token if kind is None else Token.new_borrow_pos(kind, str(token), token)

    declared = "\n%declare " + " ".join(_KEYWORDS.values())
    return Lark(
        _GRAMMAR.replace("LETTERS", r"\w.$-" if hyphens else r"\w.$") + declared,
        parser="lalr",
        lexer="basic",
        lexer_callbacks={"NAME": word},
        maybe_placeholders=True,
        transformer=Rules(convert),
    ).parse


def condition_of(text: str, hyphens: bool = False, convert: bool = False) -> Condition:
    """Return the condition that a selector compiles to. Names may contain `hyphens`. With `convert`, texts that look
    like numbers or booleans also compare as such.

    Raise SelectorFault if it is not a selector, MissingExtraError if lark is not installed.
    """
    parse = _parser(hyphens, convert)
    from lark import UnexpectedCharacters, UnexpectedToken

    try:
        node = parse(text)
    except UnexpectedCharacters as error:
        raise SelectorFault(error.pos_in_stream or 0, _odd(text[error.pos_in_stream or 0])) from None
    except UnexpectedToken as error:
        at = len(text.rstrip()) if error.token.type == "$END" else error.pos_in_stream or 0
        raise SelectorFault(at, _expected(error.accepts or error.expected, error.token)) from None
    return as_condition(cast(Node, node))


# ---- error messages ----

_ODD = {
    "'": "the text that begins here is not closed by another '",
    '"': 'the name that begins here is not closed by another ", or is empty',
    **dict.fromkeys("0123456789.", "this is not a valid number"),
    "!": "this is not an operator: 'not equal' is <>",
}
#: Words for expected tokens, in the order in which they are listed.
_WORDS = {
    "NAME": "a name",
    "NUMBER": "a number",
    "TEXT": "a text in '...'",
    "COMPARE": "a comparison",
    "_IS": "IS",
    "_IN": "IN",
    "_LIKE": "LIKE",
    "_BETWEEN": "BETWEEN",
    "_NULL": "NULL",
    "_ESCAPE": "ESCAPE",
    "NOT": "NOT",
    "_AND": "AND",
    "_OR": "OR",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": "a comma",
    "$END": "the end",
}


def _odd(letter: str) -> str:
    return _ODD.get(letter, "this character is unexpected")


def _expected(terminals: set[str], token: Token) -> str:
    words = [word for terminal, word in _WORDS.items() if terminal in terminals]
    last = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else "".join(words)
    return f"expected {last}" + ("" if token.type == "$END" else f", not {str(token)[:40]}")
