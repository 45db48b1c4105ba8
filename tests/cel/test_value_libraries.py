"""Lists, sets, optionals, quantities, versions, time, addresses, URLs and named formats."""

from __future__ import annotations

import pytest

from dralloc.cel.errors import CelError
from tests.support.selectors import evaluate

TRUE = [
    # Lists.
    "lists.range(3) == [0, 1, 2] && lists.range(0) == []",
    "[1, 2, 3].slice(1, 2) == [2] && [1].slice(1, 1) == []",
    "[[1], [2, 3], []].flatten() == [1, 2, 3] && [[[1]], [[2]]].flatten(2) == [1, 2] && [[1]].flatten(0) == [[1]]",
    "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b'] && [true, false].sort() == [false, true]",
    "[1, 2].reverse() == [2, 1] && [].reverse() == []",
    "[dyn(1), dyn(1.0), dyn(1u), dyn('1')].distinct().size() == 2",
    "[semver('1.0.0+a'), semver('1.0.0+b')].distinct().size() == 1",
    "[1, 2].first() == optional.of(1) && [1, 2].last() == optional.of(2) && ![].first().hasValue()",
    "[1, 1, 2].isSorted() && ![2, 1].isSorted() && [].isSorted()",
    "[1, 2].sum() == 3 && [1.5, 1.0].sum() == 2.5 && [1u].sum() == 1u && [duration('1m'), duration('1s')].sum() == duration('61s')",
    "[].sum() == 0 && string([1.5].filter(x, x > 2.0).sum()) == '0' && [1.5].filter(x, x > 2.0).sum() / 1.0 == 0.0",
    "[2, 1, 3].min() == 1 && ['a', 'b'].max() == 'b'",
    "[1, 2, 2].indexOf(2) == 1 && [1, 2, 2].lastIndexOf(2) == 2 && [1].indexOf(5) == -1",
    "[1, 2].includes(2) && !(1).includes('1') && (1).includes(1)",
    "[1] + [2] == [1, 2] && 2 in [1, 2] && !([1] in [[2]])",
    # Sets.
    "sets.contains([1, 2, 3], [2, 2]) && !sets.contains([1], [2]) && sets.contains([], [])",
    "sets.equivalent([1, 2], [2, 1, 1]) && sets.equivalent([dyn(1)], [dyn(1.0)]) && !sets.equivalent([1], [2])",
    "sets.intersects([1, 2], [2]) && !sets.intersects([], [])",
    # Optionals.
    "optional.of(1).or(optional.of(2)).value() == 1 && optional.none().orValue(3) == 3",
    "!optional.ofNonZeroValue('').hasValue() && !optional.ofNonZeroValue(0).hasValue() && optional.ofNonZeroValue('a').hasValue()",
    "optional.ofNonZeroValue(quantity('0')).hasValue() && !optional.ofNonZeroValue(duration('0s')).hasValue()",
    "optional.unwrap([optional.of(1), optional.none()]) == [1] && [optional.of(2)].unwrapOpt() == [2]",
    "optional.of(optional.none()) != optional.none() && optional.of(1) == optional.of(1)",
    "optional.of({'a': 1}).a == optional.of(1) && optional.of({'a': 1}).?b == optional.none()",
    # Quantities.
    "quantity('1Ki') == quantity('1024') && quantity('0.5').compareTo(quantity('500m')) == 0",
    "quantity('1').add(quantity('1')) == quantity('2') && quantity('5').sub(7).compareTo(quantity('-2')) == 0",
    "quantity('1Ki').isInteger() && !quantity('1500m').isInteger() && !quantity('2.0').isInteger() && quantity('1E3').asInteger() == 1000",
    "quantity('1500m').asApproximateFloat() == 1.5 && sign(quantity('-1')) == -1 && sign(quantity('0')) == 0",
    "quantity('2').isGreaterThan(quantity('1')) && quantity('1').isLessThan(quantity('1001m'))",
    "isQuantity('10Gi') && !isQuantity('200K') && !isQuantity('')",
    # Versions.
    "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
    "semver('1.0.0-rc.1').isLessThan(semver('1.0.0')) && semver('1.0.0+a') == semver('1.0.0+b')",
    "semver('v1.02', true) == semver('1.2.0') && isSemver('1.2', true) && !isSemver('1.2') && !isSemver('1.2-rc', true)",
    "semver('18446744073709551615.0.0').major() == -1",
    # Time.
    "duration('1h30m') == duration('90m') && duration('-1.5s') < duration('0') && string(duration('90m')) == '5400s'",
    "duration('1.5h').getMinutes() == 90 && duration('-90s').getMinutes() == -1 && duration('1500ms').getMilliseconds() == 1500",
    "string(duration('1ns')) == '0.000000001s' && string(duration('100us')) == '0.0001s'",
    "timestamp('2024-02-29T12:34:56.789Z').getFullYear() == 2024 && timestamp('2024-02-29T12:34:56.789Z').getMilliseconds() == 789",
    "timestamp('2024-02-29T23:30:00Z').getDate() == 29 && timestamp('2024-02-29T23:30:00Z').getDate('+01:00') == 1",
    "timestamp('2024-01-01T00:00:00Z').getMonth() == 0 && timestamp('2024-01-01T00:00:00Z').getDayOfWeek() == 1",
    "timestamp('2024-12-31T00:00:00Z').getDayOfYear() == 365 && timestamp('2024-12-31T00:00:00Z').getDayOfMonth() == 30",
    "timestamp('2024-07-01T12:00:00Z').getHours('America/New_York') == 8 && timestamp('2024-07-01T12:00:00Z').getHours('-05:30') == 6",
    "timestamp('9999-12-31T23:59:59Z').getFullYear('+01:00') == 10000",
    "timestamp('2024-01-01T01:00:00+01:00') == timestamp('2024-01-01T00:00:00Z')",
    "string(timestamp('2024-01-01T01:00:00.5+01:00')) == '2024-01-01T01:00:00.5+01:00'",
    "timestamp('2024-01-01T00:00:00Z') + duration('24h') - timestamp('2024-01-01T00:00:00Z') == duration('1440m')",
    "int(timestamp('1970-01-01T00:01:00Z')) == 60 && timestamp(60) == timestamp('1970-01-01T00:01:00Z')",
    "string(timestamp(-1)) == '1969-12-31T23:59:59Z' && timestamp('0001-01-01T00:00:00Z').getFullYear() == 1",
    # Addresses.
    "ip('127.0.0.1').isLoopback() && ip('::1').isLoopback() && ip('::').isUnspecified() && ip('10.0.0.1').family() == 4",
    "ip('169.254.0.1').isLinkLocalUnicast() && ip('fe80::1').isLinkLocalUnicast() && ip('224.0.0.5').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast()",
    "ip('10.0.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast() && !ip('ff0e::1').isGlobalUnicast()",
    "ip('2001:DB8::0:1') == ip('2001:db8::1') && string(ip('2001:DB8::0:1')) == '2001:db8::1' && !ip.isCanonical('2001:DB8::1')",
    "!isIP('1.2.3') && !isIP('01.2.3.4') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0/08')",
    "cidr('10.1.2.3/16').masked() == cidr('10.1.0.0/16') && cidr('10.1.2.3/16').ip() == ip('10.1.2.3') && cidr('::/0').prefixLength() == 0",
    "cidr('10.0.0.0/8').containsIP('10.9.9.9') && !cidr('10.0.0.0/8').containsIP(ip('::1')) && cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
    "!cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8') && string(cidr('10.1.2.3/16')) == '10.1.2.3/16' && type(ip('::1')) == net.IP",
    # URLs.
    "url('https://u:p@h.example:8443/a b?x=1&x=2#f').getHost() == 'h.example:8443'",
    "url('https://h/a b').getEscapedPath() == '/a%20b' && url('https://h/a%2Fb').getEscapedPath() == '/a%2Fb'",
    "url('https://h?x=1&x=2&y').getQuery() == {'x': ['1', '2'], 'y': ['']} && url('https://h?a=b%20c+d').getQuery()['a'] == ['b c d']",
    "url('http://[::1]:80/').getHostname() == '::1' && url('http://[::1]:80/').getPort() == '80' && url('/p').getScheme() == ''",
    "isURL('/absolute') && isURL('HTTP://h') && !isURL('relative') && !isURL('') && !isURL('https://a:b:c/') && !isURL('http://h/%zz')",
    "url('HTTP://h/').getScheme() == 'http' && url('http://h/a') == url('http://h/a') && url('http://h/a') != url('http://h/b')",
    # Named formats.
    "!format.dns1123Label().validate('my-name').hasValue() && format.dns1123Label().validate('My').value().size() == 1",
    "!format.dns1123LabelPrefix().validate('my-').hasValue() && format.dns1035Label().validate('1a').hasValue()",
    "!format.uuid().validate('123e4567e89b12d3a456426614174000').hasValue() && !format.byte().validate('aGVsbG8=').hasValue()",
    "!format.date().validate('2024-02-29').hasValue() && format.date().validate('2023-02-29').hasValue()",
    "!format.datetime().validate('2024-01-01T00:00:00Z').hasValue() && format.datetime().validate('2024-01-01T24:00:00Z').hasValue()",
    "!format.uri().validate('/p').hasValue() && format.named('none') == optional.none() && format.named('uri').hasValue()",
    "!format.qualifiedName().validate('example.com/name').hasValue() && !format.labelValue().validate('').hasValue()",
]

FAILURES = {
    "lists.range(-1)": "non-negative",
    "lists.range(1000001)": "exceeds maximum",
    "[1].slice(0, 2)": "list is length 1",
    "[1].slice(-1, 1)": "negative indexes",
    "[1, 2].slice(2, 1)": "start index",
    "[[1]].flatten(-1)": "non-negative",
    "[dyn(1), dyn('a')].sort()": "same type",
    "[dyn([1])].sort()": "comparable",
    "[].min()": "min called on empty list",
    "[9223372036854775807, 1].sum()": "integer overflow",
    "[dyn(1.5)].sum()": "no such overload",
    "quantity('1x')": "not a quantity",
    "quantity('1500m').asInteger()": "cannot convert value to integer",
    "semver('1.2')": "not a semantic version",
    "duration('1x' + '')": "google.protobuf.Duration",
    "duration('300y' + '')": "google.protobuf.Duration",
    "duration('10000000h' + '')": "google.protobuf.Duration",
    "timestamp('2024-02-30T00:00:00Z' + '')": "google.protobuf.Timestamp",
    "timestamp('2024-01-01t00:00:00Z' + '')": "google.protobuf.Timestamp",
    "timestamp('9999-12-31T23:59:59Z') + duration('1s')": "timestamp overflow",
    "timestamp('9999-12-31T23:59:59Z') - timestamp('2023-07-04T01:02:03Z')": "integer overflow",
    "timestamp(1).getHours('Nowhere/Town')": "unknown time zone",
    "timestamp(1).getHours('../../etc/passwd')": "unknown time zone",
    "timestamp(1).getHours('1:x')": "time zone offset",
    "ip('::ffff:1.2.3.4')": "not allowed",
    "ip('fe80::1%eth0')": "zone",
    "cidr('10.0.0.0')": "no '/'",
    "url('../x')": "invalid URI for request",
    "url('http://h:80x/')": "invalid port",
}


@pytest.mark.parametrize("sentence", TRUE)
def test_expressions_are_true(sentence: str) -> None:
    assert evaluate(sentence) is True


@pytest.mark.parametrize("expression", FAILURES)
def test_errors_name_the_problem(expression: str) -> None:
    with pytest.raises(CelError) as caught:
        evaluate(expression)
    assert FAILURES[expression] in str(caught.value)
