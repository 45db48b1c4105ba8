"""Strings: the standard functions, the string extension, regular expressions and formatting."""

from __future__ import annotations

import pytest

from dralloc.cel.errors import CelError
from dralloc.cel.library.text_format import go_quoted
from tests.support.selectors import evaluate

TRUE = [
    # Positions count code points.
    "'日本語é'.size() == 4 && size(bytes('日本語é')) == 11",
    "'日本語'.charAt(1) == '本' && 'ab'.charAt(2) == ''",
    "'日本語'.substring(1) == '本語' && '日本語'.substring(0, 2) == '日本' && 'a'.substring(1, 1) == ''",
    "'abcabc'.indexOf('c') == 2 && 'abcabc'.indexOf('c', 3) == 5 && 'abc'.indexOf('z') == -1",
    "'abc'.indexOf('', 1) == 1 && ''.indexOf('a') == -1 && 'abc'.indexOf('a', 7) == -1",
    "'abcabc'.lastIndexOf('a') == 3 && 'abcabc'.lastIndexOf('a', 2) == 0 && 'ab'.lastIndexOf('') == 2",
    "'abc'.lastIndexOf('bc', 1) == 1 && 'abc'.lastIndexOf('abcd') == -1",
    # Case and space.
    "'TacoCÉ'.lowerAscii() == 'tacocÉ' && 'tacoé'.upperAscii() == 'TACOé'",
    r"' \t\n\u00a0\u2003x\u3000\v\u0085 '.trim() == 'x'",
    r"'\u200bx\u001f'.trim().size() == 3",
    # Splitting and joining.
    "'a,b,,c'.split(',') == ['a', 'b', '', 'c'] && ''.split(',') == [''] && ''.split('') == []",
    "'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'a,b'.split(',', 0) == [] && 'a,b'.split(',', -1) == ['a', 'b']",
    "'éab'.split('') == ['é', 'a', 'b'] && 'abc'.split('', 2) == ['a', 'bc']",
    "['a', 'b'].join('-') == 'a-b' && ['a', 'b'].join() == 'ab' && [].join('x') == ''",
    # Replacing.
    "'aXbX'.replace('X', '-') == 'a-b-' && 'aXbX'.replace('X', '-', 1) == 'a-bX' && 'aX'.replace('X', '-', 0) == 'aX'",
    "'ab'.replace('', '_') == '_a_b_' && 'ab'.replace('', '_', 2) == '_a_b' && 'ab'.replace('a', '', -1) == 'b'",
    r"""strings.quote("a\n\"\\é") == "\"a\\n\\\"\\\\é\"" """,
    # Order by code point, prefixes and parts.
    r"'\uffff' < '\U00010000' && 'Z' < 'a' && 'a' < 'aa'",
    "'abc'.startsWith('ab') && 'abc'.endsWith('') && 'abc'.contains('bc') && !'abc'.contains('d')",
    # Regular expressions match anywhere, and are RE2.
    "'gpu-a100'.matches('a[0-9]+$') && !'a'.matches('^$') && 'É'.matches(r'\\p{L}') && 'AB'.matches('(?i)b')",
    "'abc 123'.find('[0-9]+') == '123' && 'abc'.find('[0-9]+') == ''",
    "'123 abc 456'.findAll('[0-9]+') == ['123', '456'] && '1 2 3'.findAll('[0-9]', 2) == ['1', '2'] && '1'.findAll('1', 0) == []",
    "'baaac'.findAll('a*') == ['', 'aaa', '']",
    # Conversions.
    "string(1) == '1' && string(1u) == '1' && string(true) == 'true' && string(b'ab') == 'ab'",
    "string(1.0) == '1' && string(0.1) == '0.1' && string(1e6) == '1e+06' && string(123456.5) == '123456.5' && string(1e-5) == '1e-05'",
    "string(1.0 / 0.0) == '+Inf' && string(0.0 / 0.0) == 'NaN' && string(-0.0) == '-0'",
    "int('-007') == -7 && int('+5') == 5 && uint('18446744073709551615') == 18446744073709551615u",
    "double('5.') == 5.0 && double('.5e1') == 5.0 && double('-Infinity') < 0.0 && double('0x1p-2') == 0.25",
    "bool('t') && bool('TRUE') && !bool('0') && int(-1.9) == -1 && int(2u) == 2 && uint(2.9) == 2u",
]

FORMATS = {
    "'%s'.format(['x'])": "x",
    "'%d and %d%%'.format([1, 2u])": "1 and 2%",
    "'%s %s %s'.format([true, 1.5, null])": "true 1.5 null",
    "'%s'.format([['a', 'b\\n'], 1].size() == 2 ? [['a', 'b\\n']] : [])": '["a", "b\\n"]',
    "'%s'.format([{'b': 1, 'a': 2.5}])": '{"a":2.500000, "b":1}',
    "'%s'.format([[b'x', null, 1u, type(1)]])": '[b"x", null, 1, int]',
    "'%s'.format([[duration('90s'), timestamp('2024-01-01T00:00:00Z')]])": '[duration("90s"), timestamp("2024-01-01T00:00:00Z")]',
    "'%.2f'.format([1234567.891])": "1,234,567.89",
    "'%f'.format([2.5])": "2.500000",
    "'%.0f'.format([0.5])": "0",
    "'%e'.format([1500.0])": "1.500000×10⁰³",
    "'%.2e'.format([0.00015])": "1.500000×10⁻⁰⁴",
    "'%.20e'.format([1.5])": "       1.500000×10⁰⁰",
    "'%f %e'.format([1.0 / 0.0, 'NaN'])": "∞ NaN",
    "'%b %b'.format([5, true])": "101 1",
    "'%x %X %x'.format([255, 255, 'ab'])": "ff FF 6162",
    "'%o'.format([-8])": "-10",
}

FAILURES = {
    "'a'.charAt(2)": "index out of range: 2",
    "'a'.charAt(-1)": "index out of range: -1",
    "'abc'.substring(2, 1)": "invalid substring range",
    "'abc'.substring(1, 4)": "index out of range: 4",
    "'abc'.indexOf('a', -1)": "index out of range: -1",
    "[dyn(1)].join('')": "no such overload: join",
    "int('1.5')": "type conversion error from 'string' to 'int'",
    "int('9223372036854775808')": "type conversion error",
    f"int('{'9' * 6000}')": "type conversion error",
    "int(' 1')": "type conversion error",
    "uint('-1')": "type conversion error",
    "uint(-1)": "unsigned integer overflow",
    "double('1e400')": "type conversion error",
    "double('1_')": "type conversion error",
    "double('٣')": "type conversion error",
    "bool('yes')": "type conversion error",
    "int(1e19)": "integer overflow",
    "int(0.0 / 0.0)": "integer overflow",
    r"string(b'\xff')": "invalid UTF-8",
    "'a'.matches('(' + '')": "error parsing regexp",
    "'%d'.format([dyn('a')])": "decimal clause can only be used on integers, was given string",
    "'%s'.format([semver('1.0.0')])": "was given kubernetes.Semver",
    "'%z'.format([dyn(1)])": "unrecognized formatting clause",
    "'%s %s'.format([dyn(1)])": "index 1 out of range",
    "'%'.format([dyn(1)])": "unexpected end",
    "'%.d'.format([dyn(1)])": "precision",
}


@pytest.mark.parametrize("sentence", TRUE)
def test_expressions_are_true(sentence: str) -> None:
    assert evaluate(sentence) is True


@pytest.mark.parametrize("expression", FORMATS)
def test_format_writes_values_in_english(expression: str) -> None:
    assert evaluate(expression) == FORMATS[expression]


@pytest.mark.parametrize("expression", FAILURES)
def test_errors_name_the_problem(expression: str) -> None:
    # Conversions of constants fail before they run; what they say is the same.
    with pytest.raises(CelError) as caught:
        evaluate(expression)
    assert FAILURES[expression] in str(caught.value)


def test_quoting_escapes_what_does_not_print() -> None:
    assert go_quoted('a"\\\n\x00\u200b\U000e0001é') == '"a\\"\\\\\\n\\x00\\u200b\\U000e0001é"'
