"""Writes the expected values of `chat-templates.test.ts`: templates and what transformers' Jinja environment makes of them.

    python test/oracle/chat-templates.py

Needs transformers and jinja2; the test does not. Writes `chat-templates.json.gz`: variables, and for each template its text or the type of
the error that Python raises. `cases` are written by hand, one construct each; `generated` are random expressions and random arrangements of
tags and white space, from a fixed seed.
"""

import gzip
import json
import pathlib
import random
import warnings

import jinja2
import transformers
from transformers.utils.chat_template_utils import _compile_jinja_template

warnings.simplefilter("ignore")
SEED = 20
here = pathlib.Path(__file__).parent
rng = random.Random(SEED)

TEXTS = [
    "", " ", "abc", "  a b\t ", "\u00a0x\u2003", "\ufeffbom\ufeff", "\x1cfs\x85 y\x1f", "a\nb\r\nc\u2028d\x0be\x1cf\n", "naïve ÉCOLE", "straße ﬁn ǆ ŉ ა",
    "👍🏽 a👍b", "ΑΣ ΣΑΣ σΣ. Σ", "it's \"q\"", "x\\y\x00\x7f\u200d", "aXbXXc", "12", "-3.5", " 1e3 ", "٣٤", "<b>&'", "hello-world (foo) [bar] {baz}",
    "<think>\n  code\n</think>\n\n    indented()\n", "\t\ttabs\tand\n\tmore", "ᾳ ᾼ ﬃ ΐ", "aaaa", "Hello World", "İstanbul ıI", "1_000", "²½x", "\n\n  \n",
]
VARIABLES = {
    "s": TEXTS,
    "n": [0, 1, -1, 2, 7, -7, 10, 100, 0.5, -2.5, 1234567.25, 1e-5, 123456.789, 3.14159, 9007199254740991, 2.675],
    "l": [[], [1, 2, 3], ["b", "A", "a", "C"], [True, None, 1.5, "x", ["y", {}]], [3, 1, 2, 2.5], ["👍", "é", "z"], [[1, "a"], [2, "b"]]],
    "d": [{}, {"b": 1, "A": 2, "a": [1, None], "c": {"x": "é\"'\n"}}, {"z": True, "y": None, "x": 0.1}, {"items": 1, "get": 2, "keys": "k"}],
    "rows": [{"name": "b", "v": 2, "t": {"k": 1}}, {"name": "a", "v": 10, "t": {"k": 2}}, {"name": "B", "v": 2}, {"name": "c", "v": None, "t": {"k": 1}}],
    "none": None, "yes": True, "no": False,
    "messages": [
        {"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "Grüße 👍"},
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\n    if x:\n        y()\n", "tool_calls": [{"type": "function", "function": {
            "name": "f", "arguments": {"a": 1, "b": [True, None, 0.25], "c": "ü\"\\\n"}}}]},
        {"role": "tool", "content": "{\"r\": 1}", "name": None},
    ],
}

CASES = """
{{ s[3].strip() }}|{{ s[3].lstrip() }}|{{ s[3].rstrip() }}|{{ s[21].strip('\\n') }}|{{ s[21].lstrip('\\n<') }}|{{ s[21].rstrip('\\n)') }}
{{ s[4].strip() }}|{{ s[5].strip() }}|{{ s[6].strip() }}|{{ s[6] | trim }}|{{ s[5] | trim }}|{{ s[14] | trim('ac') }}|{{ s[10].strip('👍a') }}
{{ s[3].split() }}{{ s[6].split() }}{{ s[5].split() }}{{ s[14].split('X') }}{{ s[14].split('X', 1) }}{{ s[3].split(none, 1) }}{{ s[0].split() }}{{ s[0].split('x') }}
{{ s[14].rsplit('X', 1) }}{{ s[3].rsplit(none, 1) }}{{ s[14].rsplit('X') }}{{ s[3].rsplit(maxsplit=1) }}{{ s[14].split(sep='X', maxsplit=2) }}{{ ' a  b c '.rsplit(none, 0) }}
{{ s[7].splitlines() }}{{ s[7].splitlines(true) }}{{ s[0].splitlines() }}{{ s[7].splitlines(keepends=True) }}
{{ s[10].find('b') }} {{ s[10].find('q') }} {{ s[10].rfind('👍') }} {{ s[24].find('a', 2) }} {{ s[24].find('a', -1, 9) }} {{ s[24].index('aa') }} {{ 'abc'.find('', 5) }}
{{ s[2].index('q') }}
{{ s[24].count('aa') }} {{ s[24].count('') }} {{ s[10].count('👍') }} {{ s[24].count('a', 1, 3) }}
{{ s[14].partition('X') }}{{ s[14].rpartition('X') }}{{ s[2].partition('q') }}{{ s[2].rpartition('q') }}
{{ s[2].partition('') }}
{{ s[14].replace('X', '-') }}{{ s[14].replace('X', '-', 1) }}{{ s[2].replace('', '.') }}{{ s[10].replace('', '.', 2) }}{{ s[14] | replace('X', '$&', 2) }}{{ 112 | replace(1, 'x') }}
{{ s[2].startswith('ab') }}{{ s[2].startswith(('x', 'a')) }}{{ s[2].endswith(('b', 'bc')) }}{{ s[2].startswith('b', 1) }}{{ s[2].endswith('b', 0, 2) }}{{ s[2].startswith('') }}
{{ s[2].startswith(['a']) }}
{{ s | map('title') | join('|') }}
{{ s | map('capitalize') | join('|') }}
{% for x in s %}{{ x.title() }}|{{ x.capitalize() }}|{{ x.swapcase() }}|{{ x.upper() }}|{{ x.lower() }}|{% endfor %}
{% for x in s %}{{ x.isdigit() }} {{ x.isalpha() }} {{ x.isspace() }} {{ x.isupper() }} {{ x.islower() }} {{ x.istitle() }} {{ x.isdecimal() }} {{ x.isascii() }} {{ x.isprintable() }}|{% endfor %}
{% for x in s %}{{ x | length }},{{ x[::-1] }},{{ x[1:-1] }},{{ x[-2:] }},{{ x[::2] }},{{ x[5:1:-2] }}|{% endfor %}
{{ s[10][0] }}{{ s[10][-1] }}{{ s[10][99] is defined }}{{ s[10][1:3] }}{{ s[10] | list }}{{ s[10] | reverse }}{{ s[10] | first }}{{ s[10] | last }}
{{ s[22] | indent }}|{{ s[22] | indent(2, true) }}|{{ s[22] | indent(width='> ', blank=true) }}|{{ s[7] | indent(2) }}|{{ '' | indent(2, first=true) }}|{{ 'a\\n\\nb\\n' | indent(1) }}
{{ d[1] | dictsort }}{{ d[1] | dictsort(true) }}{{ d[1] | dictsort(reverse=true) }}{{ {'x': 2, 'y': 1} | dictsort(by='value') }}{{ {'x': 2, 'y': 1} | dictsort(false, 'value', true) }}
{{ d[1] | dictsort(by='value') }}
{{ l[3] | join(', ') }}{{ [0.1, 1.0, 1e20, 1e-7, true, none] | join('|') }}{{ rows | join('-', attribute='name') }}{{ [] | join(',') }}{{ 'abc' | join('.') }}{{ l[2] | join }}
{{ ','.join(l[2]) }}{{ ','.join('👍b') }}
{{ ','.join(l[1]) }}
{{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e100 }} {{ 1e16 }} {{ 123456789012345680.0 }} {{ 1e-5 }} {{ -0.0 }} {{ 5e-324 }} {{ 1.5e300 * 1e10 }} {{ 3.0 * 2 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 1e3 }} {{ 1_000 }} {{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 1_0.5e-1_0 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ -7.5 // 2 }} {{ -7.5 % 2 }} {{ 7.5 % -2 }} {{ 2 ** 10 }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ 3 ** 33 }} {{ 0 ** 0 }} {{ 1 ** 10000 }} {{ true + true }} {{ 0.0 // -3 }} {{ -0.0 % 3 }}
{{ 18446744073709551616 * 1.5 }} {{ 9007199254740990 + 1 }} {{ 94906265 * 94906265 }} {{ 9007199254740991 // 3 }} {{ -9007199254740991 // 2 }} {{ -9007199254740991 % 7 }} {{ 9007199254740991 / 3 }} {{ 18446744073709551616 | string | length }} {{ -18446744073709551616 }} {{ 18446744073709551616 == 18446744073709551615 }} {{ 18446744073709551616 > 18446744073709551615 }} {{ -18446744073709551616 | abs }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.5 // 0 }}
{{ 'a' in 'abc' }} {{ 'x' not in 'abc' }} {{ 1 in [1.0] }} {{ true in [1] }} {{ 'b' in d[1] }} {{ none in [none] }} {{ nothing in [1] }} {{ 3 in range(0, 10, 3) }} {{ 4 in range(0, 10, 3) }} {{ 'a' in nothing }}
{{ 1 in 'abc' }}
{{ 'a' in 5 }}
{{ 1 < 2 < 3 }} {{ 1 < 2 > 3 }} {{ 3 > 2 == 2 }} {{ 1 == 1.0 == true }} {{ (1 < 2) < 3 }} {{ 1 < 3 in [3] }} {{ 'a' < 'b' <= 'b' }} {{ [1, 2] < [1, 3] }} {{ (1, 'a') < (1, 'b') }} {{ 1 != 2 != 1 }} {{ '\\uffff' < '👍' }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ [1] == (1,) }} {{ {'a': 1} == {'a': 1.0} }} {{ none == false }} {{ 0 == false }} {{ '' == none }} {{ nothing == nada }} {{ nothing == none }} {{ 'a' == ['a'] }}
{% for x in [1, 1.0, true, none, 'a', [1], (1,), d[1], nothing, range(3), d[1].items()] %}{{ x is string }} {{ x is mapping }} {{ x is iterable }} {{ x is sequence }} {{ x is number }} {{ x is integer }} {{ x is float }} {{ x is boolean }} {{ x is none }} {{ x is defined }} {{ x is callable }} {{ x is true }} {{ x is false }}|{% endfor %}
{{ 3 is odd }} {{ 4 is even }} {{ 9 is divisibleby 3 }} {{ 9 is divisibleby(2) }} {{ 1 is eq 1 }} {{ 'a' is equalto('a') }} {{ 1 is ne(2) }} {{ 1 is lt 2 }} {{ 3 is ge 3 }} {{ 1 is in [1] }} {{ 'abc' is lower }} {{ 'ABC' is upper }} {{ none is sameas none }} {{ 1 is not none }} {{ not 1 is none }} {{ 5 is gt(4) }} {{ yes is sameas true }}
{{ nothing }}|{{ nothing | length }}|{{ nothing | default('d') }}|{{ '' | default('d') }}|{{ '' | default('d', true) }}|{{ none | d('x') }}|{{ none | default('x', boolean=true) }}|{{ messages[0].nothing }}|{{ messages[0]['nothing'] | default(3) }}|{{ nothing | list }}|{{ nothing ~ 'a' }}|{{ nothing | upper }}|{{ [nothing] }}|{{ nothing | first is defined }}|{{ none | default }}
{{ nothing.more }}
{{ nothing['more'] }}
{{ nothing + 1 }}
{{ 'a' + nothing }}
{{ nothing() }}
{{ nothing | tojson }}
{{ nothing < 1 }}
{{ -nothing }}
{{ messages[0].nothing.more }}
{{ nothing[1:] }}
{{ 'a' + 1 }}
{{ [1] + 'a' }}
{{ none.x is defined }} {{ none['x'] is defined }} {{ (1).x is defined }} {{ 'a'.x is defined }} {{ [1].x is defined }} {{ [1]['x'] is defined }} {{ [1][5] is defined }} {{ {'a': 1}[none] is defined }} {{ [1]['1'] is defined }} {{ {'1': 2}[1] is defined }} {{ {'a': 1}.a }} {{ [1, 2].0 }} {{ [[1, 2]][0][1] }} {{ {'a': {'b': 3}}.a.b }} {{ {1: 'x', 2.0: 'y', none: 'z', true: 'w'} }}
{{ d[3].items() | list }}{{ d[3]['items'] }}{{ d[3].get('get') }}{{ d[3]['keys'] }}{{ d[1].get('q', 'other') }}{{ d[1].get('q') }}{{ d[2].get('y', 5) }}{{ d[1].keys() | list }}{{ d[1].values() | list }}{{ d[1].keys() }}{{ d[1].items() }}{{ d[1].copy() }}
{{ [1].append(2) }}
{{ d[1].update({}) }}
{{ d[1].pop('a') }}
{{ [1].append is defined }} {{ ''.__class__ is defined }} {{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }} {{ (1, 2).index(1) }} {{ [1].copy() }}
{{ l[1] | sum }} {{ rows[:3] | sum(attribute='v') }}{{ [[1], [2]] | sum(start=[]) }}{{ [0.5, 1] | sum(start=2) }}
{{ rows | sum(attribute='v') }}
{{ rows | map(attribute='name') | list }}{{ rows[:2] | map(attribute='t.k') | list }}{{ rows | map(attribute='q', default=0) | list }}{{ l[6] | map(attribute=0) | list }}{{ l[6] | map(attribute='1') | list }}{{ l[2] | map('upper') | join }}{{ l[2] | map('replace', 'a', 'b') | list }}
{{ rows | map(attribute='t.k') | list }}
{{ rows | selectattr('t') | map(attribute='name') | list }}{{ rows | selectattr('v', 'equalto', 2) | list | length }}{{ rows | rejectattr('t', 'defined') | list }}{{ rows[:2] | selectattr('t.k', 'eq', 1) | map(attribute='name') | join(',') }}{{ rows | selectattr('name', 'in', ['a', 'b']) | list | length }}
{{ l[3] | select('string') | list }}{{ l[3] | reject('none') | list }}{{ l[3] | select | list }}{{ [1, 2, 3] | select('odd') | list }}{{ [1, 2, 3] | reject('divisibleby', 2) | list }}
{% for g in rows | groupby('name') %}{{ g.grouper }}:{{ g.list | length }};{% endfor %}{% for k, v in rows | groupby('q', default=0) %}{{ k }}={{ v | map(attribute='name') | join }};{% endfor %}{% for k, v in rows | groupby('name', case_sensitive=true) %}{{ k }}{% endfor %}{{ (rows | groupby('name'))[0] }}
{{ l[2] | unique | list }}{{ l[2] | unique(true) | list }}{{ rows | unique(attribute='name') | map(attribute='name') | list }}{{ [1, 1.0, true, 2] | unique | list }}
{{ l[2] | sort }}{{ l[2] | sort(case_sensitive=true) }}{{ l[2] | sort(reverse=true) }}{{ l[4] | sort }}{{ rows | sort(attribute='name') | map(attribute='name') | list }}{{ [{'a': 1, 'b': 2}, {'a': 1, 'b': 1}] | sort(attribute='a,b') }}{{ 'bca' | sort }}
{{ l[3] | sort }}
{{ l[1] | batch(2) | list }}{{ l[1] | batch(2, 'x') | list }}{{ [1, 2, 3, 4, 5] | slice(3) | list }}{{ [1, 2, 3, 4, 5] | slice(3, 'x') | list }}{{ l[1] | max }}{{ l[1] | min }}{{ l[2] | max }}{{ rows | max(attribute='name') }}{{ [] | max is defined }}{{ l[1] | reverse | list }}{{ l[1] | last }}{{ [] | first is defined }}
{{ 2.5 | round }} {{ 3.5 | round }} {{ 2.675 | round(2) }} {{ 42 | round }} {{ 2.1 | round(method='ceil') }} {{ 2.9 | round(method='floor') }} {{ 2.123 | round(2, 'ceil') }} {{ 0.5 | round }} {{ -0.5 | round }} {{ 1234 | round(2) }} {{ 1e22 | round(1) }} {{ true | round }}
{{ '42' | int }} {{ '42.9' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ 3.9 | int }} {{ -3.9 | int }} {{ none | int }} {{ ' 12\\n' | int }} {{ '0x1f' | int(base=16) }} {{ '1f' | int(0, 16) }} {{ '0b101' | int(base=0) }} {{ '1_000' | int }} {{ '٣٤' | int }} {{ true | int }} {{ [] | int }} {{ '1e3' | int }} {{ 1e20 | int }}
{{ '1.5' | float }} {{ 'x' | float }} {{ 'x' | float(2.0) }} {{ 3 | float }} {{ '1e3' | float }} {{ 'inf' | float }} {{ ' -nan ' | float }} {{ none | float }} {{ '1_0.5' | float }} {{ '.5' | float }} {{ '5.' | float }}
{{ 'a' | string }}{{ 1.0 | string }}{{ none | string }}{{ [1] | string | length }}{{ 5 | abs }}{{ -5.0 | abs }}{{ 'ab c' | wordcount }}{{ s[10] | wordcount }}{{ 'ab' | center(7) }}|{{ 'abc'.center(6, '*') }}|{{ 'abc'.ljust(5) }}|{{ 'abc'.rjust(5, '0') }}|{{ '-42'.zfill(6) }}|{{ '👍'.center(4, '-') }}
{{ s[22].expandtabs() }}|{{ s[22].expandtabs(4) }}|{{ 'abcabc'.removeprefix('abc') }}|{{ 'abcabc'.removesuffix('bc') }}|{{ 'abc'.removesuffix('') }}
{{ s[20] | title }}|{{ s[20] | truncate(12) }}|{{ s[20] | truncate(12, true) }}|{{ s[20] | truncate(12, false, '…', 0) }}|{{ s[10] | truncate(3, true, '', 0) }}|{{ 'short' | truncate }}
{{ d[1] | tojson }}{{ d[1] | tojson(indent=2) }}{{ d[1] | tojson(ensure_ascii=true) }}{{ d[1] | tojson(separators=(',', ':')) }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}{{ d[1] | tojson(indent=4, separators=(',', ': ')) }}{{ d[1] | tojson(indent='--') }}
{{ [1, 1.0, 1e16, 0.1, true, none, 'é<>&\\u2028', (1, 2), [], {}] | tojson }}{{ [[], {}, [[]]] | tojson(indent=1) }}{{ {1: 1, 2.5: 2, true: 3, none: 4} | tojson }}{{ s | tojson }}{{ s | tojson(true) }}{{ '👍' | tojson(ensure_ascii=true) }}{{ 1180591620717411303424 | tojson }}{{ [1] | tojson(indent=0) }}
{{ range(3) | tojson }}
{{ 'inf' | float | tojson }}{{ d[1] | items | list }}{{ nothing | items | list }}{{ {'z': 1, 'a': 2}.items() | list }}
{{ 1 | items | list }}
{{ '%s|%d|%5.2f|%-5s|%05d|%x|%r|%%|%+d' % ('é', 42, 3.14159, 'ab', 7, 255, 'q', 3) }}{{ '%(a)s' % {'a': 1} }}{{ '%s' % 'x' }}{{ '%s %s' | format('a', 1.0) }}{{ '%.1f' % 0.25 }}{{ '%.0f' % 0.5 }}{{ '%s' % none }}{{ '%d' % 3.9 }}
{{ '%s %s' % 'x' }}
{{ '%s' % (1, 2) }}
{{ '{} {}'.format(1, 'b') }}{{ '{1}{0}{a}'.format(1, 2, a='x') }}{{ '{{}}{:>5}|{:<5}|{:^5}|{:05d}|{:,}|{:.2f}|{:.1%}|{:x}'.format('a', 'b', 'c', 42, 1234567, 2.675, 0.125, 255) }}{{ '{!r}'.format('a') }}
{{ '{}'.format() }}
{% set ns = namespace(a=1, b='x') %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns['a'] }}{{ ns.q is defined }}{{ ns }}{% set ns2 = namespace({'k': 1}, z=2) %}{{ ns2.k }}{{ ns2.z }}
{% set ns = namespace() %}{% set ns._x = 1 %}
{% set x = {} %}{% set x.a = 1 %}
{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = 'xy' %}{{ a }}{{ b }}{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}
{% set a, b = [1] %}
{% set a, b = [1, 2, 3] %}
{% set x %}  body {{ 1 }} {% endset %}[{{ x }}]{% set y | trim | upper %} ab {% endset %}[{{ y }}]{% set ns = namespace() %}{% set ns.t %}q{% endset %}{{ ns.t }}
{% for i in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.changed(i // 2) }}{{ loop.depth }}{{ loop }}|{% else %}none{% endfor %}{% for i in [] %}{{ i }}{% else %}empty{% endfor %}
{% for i in range(10) if i is odd %}{{ i }}{{ loop.index }}{{ loop.last }}{{ loop.length }}|{% endfor %}{% for i in range(5) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% else %}no{% endfor %}
{% for i in [1, [2, [3]]] recursive %}{% if i is iterable %}({{ loop(i) }}){% else %}{{ i }}{{ loop.depth }}{% endif %}{% endfor %}
{% for i in [1] %}{{ loop(2) }}{% endfor %}
{% for k, v in d[1].items() %}{{ k }}={{ v }};{% endfor %}{% for k in d[1] %}{{ k }}{% endfor %}{% for c in 'a👍b' %}[{{ c }}]{% endfor %}{% for x in nothing %}x{% else %}nil{% endfor %}{% for m in messages[1:] %}{{ m.role }}{% endfor %}{% for m in messages | reverse %}{{ loop.index }}{{ m.role }}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{% set g = l[1] | map('string') %}{{ g | list }}{{ g | list }}{{ 'T' if g else 'F' }}{% set g = messages | selectattr('role', 'eq', 'user') %}{% if g %}{{ (g | first).content }}{% endif %}
{{ (l[1] | map('string')) | length }}
{{ (l[1] | select) | last }}
{% macro m(a, b='B', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=2) }}{{ m('x', 'y', 'z') }}{{ m() }}{% set f = m %}{{ f(3) }}{{ m(1) | upper }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(q=2) }}
{% macro m(a) %}{{ varargs }}{{ kwargs }}{{ a }}{% endmacro %}{{ m(1, 2, 3, k=4) }}{{ m() }}
{% macro w(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call w('b') %}in{{ 1 }}{% endcall %}{% macro e(xs) %}{% for x in xs %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}{% call(x, i) e([5, 6]) %}{{ i }}:{{ x }} {% endcall %}
{% macro a() %}{{ b() }}{{ y }}{% endmacro %}{% macro b() %}b{% endmacro %}{% set y = 2 %}{{ a() }}{% macro fact(n) %}{% if n > 1 %}{{ n }}*{{ fact(n - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}
{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}{{ m(*[3, 4]) }}{{ m(**{'a': 5}) }}{{ dict(a=1, **{'b': 2}) }}{{ dict([('x', 1)]) }}{{ dict({'q': 1}, r=2) }}
{% filter upper %}abc{{ 'd' }}{% endfilter %}{% filter replace('a', 'b') | upper %}aab{% endfilter %}{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}{% set a = 5 %}{% with a = a + 1 %}{{ a }}{% endwith %}{{ a }}{% print 1, 'x' %}
{% raw %}{{ not }} {% if %}{% endraw %}{# comment {{ x }} #}{{ '{{' }}{{ '}}' }}{{ {'a': {'b': 1}}['a']['b'] }}{{ "%}" }}{#- c -#} x
a {%- raw -%}  b  {%- endraw -%} c {#- d #} e
{% generation %}x{% set q = 1 %}{% endgeneration %}{{ q is defined }}a {%- generation %} b {% endgeneration -%} c
{{ 'a' if 1 }}{{ 'a' if 0 }}{{ 'a' if 0 else 'b' if 0 else 'c' }}{{ ('x' if nothing is defined else 'y') }}{{ 1 if true else 2 + 3 }}{{ not true and false or true }}{{ 1 and 2 or 3 }}{{ 0 or '' or 'z' }}{{ [] and 1 }}
{{ 1 ~ 2 + 3 }}
{{ 1 + 2 ~ 3 }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1] ~ nothing }}{{ -1 | abs }}{{ (-1) | abs }}{{ 2 * 3 + 4 }}{{ 2 + 3 * 4 }}{{ 10 - 2 - 3 }}{{ 2 * 'ab' }}{{ 'ab' * 2 }}{{ [0] * 3 }}{{ 'ab' * -1 }}{{ (1, 2) + (3,) }}{{ () }}{{ (1,) }}{{ 1, 2 }}{{ 'a' 'b' "c" }}
{{ 'a\\tb\\x41\\u00e9\\U0001F600\\101\\q\\'' }}{{ "\\"" }}{{ 'line\
next' }}{{ '''a''' }}
{{ range(5)[1:3] }}{{ range(5) | list }}{{ range(3, 0, -1) | list }}{{ range(2) }}{{ range(0, 10, 3)[-1] }}{{ range(3) | length }}{{ range(3).start }}
{{ range(1.5) }}
{{ range(100001) }}
{{ range(0, 5, 0) }}
{{ l[1][1:] }}{{ l[1][:-1] }}{{ l[1][::-1] }}{{ l[1][-1] }}{{ l[1][5:] }}{{ l[1][none:2] }}{{ (1, 2, 3)[1:] }}{{ l[1][true] }}
{% set x = none %}{{ x[1:] }}
{{ d[1][1:] }}
{{ l[1]['a':] }}
{{ l[1][::0] }}
{{ raise_exception('no ' ~ 1) }}
{{ messages | tojson }}{{ messages }}{{ messages[2].tool_calls[0].function.arguments | tojson }}{{ messages | map(attribute='content') | list }}{{ messages | length }}{{ messages[-1]['role'] }}{{ messages[0].content | trim }}
{{ 'x' | nofilter }}
{% if false %}{{ 'x' | nofilter }}{% endif %}ok
{{ 'x' is notest }}
{% if true %}a{% elif true %}b{% else %}c{% endif %}{% if false %}a{% elif true %}b{% else %}c{% endif %}{% if false %}a{% elif false %}b{% else %}c{% endif %}{% if [] %}a{% endif %}{% if 0.0 %}a{% endif %}{% if '0' %}y{% endif %}
{% for x in [3, 1] %}{% for y in [x] %}{{ loop.index }}{{ x }}{% endfor %}{{ loop.index }}{% endfor %}{% for x in [1, 2] %}{% set outer = loop %}{% for y in [1, 2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}
{% set content = messages[2].content %}{{ content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}|{{ content.split('</think>')[-1].lstrip('\\n') }}|{{ content.strip() }}
{{ 'abc'.nomethod() }}
{{ 'abc'.nomethod is defined }}{{ 'ab'['upper']() }}{{ [['b', 1], ['a', 2]] | sort | first }}{{ {'a': 1}['a'] }}{{ 'abc'[1] }}{{ 'a,b'.split(',')[1].upper() }}{{ ('a' ~ 'b').upper() }}{{ 5 | string ~ 'x' }}
{{ '  x' | trim ~ '|' }}{{ 1 + 1 | string | length }}{{ [1, 2] | first + 1 }}{{ not 'a' in 'b' }}{{ 2 in [1, 2] and 3 not in [1] }}{{ - 3 + 5 }}{{ +3 }}{{ 3 - -2 }}{{ [-1, - 2] }}{{ 1if true else 2 }}
{% for i in [1] %}{{ yes }}{% endfor %}{% set yes = 2 %}{{ yes }}
{% macro m() %}[{{ yes }}]{% endmacro %}{{ m() }}{% set yes = 2 %}{{ m() }}{% macro k() %}{% for i in [1] %}{{ no }}{% endfor %}{% set no = 3 %}{{ no }}{% endmacro %}{{ k() }}
{% if yes %}{% set no = 1 %}{% endif %}{% for i in [1] %}{{ no }}{% endfor %}{% for i in [1] %}{{ none }}{{ s2 }}{% endfor %}{% set s2 = 1 %}
{% for i in [1, 2] %}{% for j in [1] %}{{ yes }}{% endfor %}{% set yes = i %}{% for j in [1] %}{{ yes }}{% endfor %}{% endfor %}{{ yes }}
{% if no %}{% set yes = 1 %}{% elif no %}{% set yes = 2 %}{% else %}{% for i in [1] %}{{ yes }}{% endfor %}{% set yes = 3 %}{% endif %}{{ yes }}
{% if no %}{% set yes = 1 %}{% else %}{% for i in [1] %}{{ yes }}{% endfor %}{% set yes = 3 %}{% endif %}{{ yes }}
{% set x %}{% for i in [1] %}{{ yes }}{% endfor %}{% set yes = 5 %}{{ yes }}{% endset %}{{ x }}{{ yes }}{% with q = 1 %}{% for i in [1] %}{{ no }}{% endfor %}{% set no = 5 %}{% endwith %}{{ no }}
{% for i in [1] %}{{ range(2) | list }}{% endfor %}{% for i in [1] %}{% for j in [1] %}{{ n[0] }}{% endfor %}{% set n = [7] %}{% endfor %}
a{#
a{% raw %}
{{ '<' | safe }}{{ ('<' | safe) ~ '<' }}{{ ('<' | safe) + '<&>\'"' }}{{ '<' + ('<' | safe) + '<' }}{{ '<' | safe | length }}{{ '<' | safe == '<' }}{{ '<' | safe is string }}{{ '<' | safe | tojson }}{{ ['<' | safe] }}{{ '<' | safe | replace('<', '>') }}{{ '<' | safe | string + '>' }}
{{ 1 is defined is string }}
{{ [1, 2 }}
{% if %}{% endif %}
{% for x in y %}
{% endif %}
{{ a.b. }}
{% set 1 = 2 %}
{% break %}
{% unknown %}
{% for m in messages %}{% if m.role != 'none' %}{% continue %}{% endif %}x{% else %}none{% endfor %}|{% for i in [1, 2] %}{% break %}{% else %}none{% endfor %}|{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}{% else %}none{% endfor %}|{% for i in [1, 2] %}{% if i == 2 %}{% continue %}{% endif %}{% else %}none{% endfor %}|{% for i in [1, 2] recursive %}{% break %}{% else %}none{% endfor %}|{% for i in [1, 2] if i > 1 %}{{ loop.index }}{% continue %}{% else %}none{% endfor %}
{% for a in [1, 2] %}{% for b in [] %}{% else %}{% break %}{% endfor %}{{ a }}{% endfor %}|{% for a in [1, 2] %}{% for b in [] %}{{ loop.index }}{% else %}{% if a == 1 %}{% continue %}{% endif %}{% endfor %}{{ a }}{% endfor %}|{% for a in [1, 2] %}{% for b in [3] %}{{ b }}{% else %}{% break %}{% endfor %}{{ a }}{% else %}none{% endfor %}|{% for a in [1, 2] %}{% for b in [3] %}{% continue %}{% else %}{% break %}{% endfor %}{{ a }}{% else %}none{% endfor %}
{% for a in [1, 2] %}{% set x %}q{% break %}{% endset %}{{ a }}{% endfor %}|{% for a in [1, 2] %}{% set x | upper %}q{% if a == 1 %}{% continue %}{% endif %}{% endset %}{{ a }}{{ x }}{% endfor %}|{% for a in [1, 2] %}{% set x %}{% for b in [1, 2] %}{{ b }}{% break %}{% endfor %}{% endset %}{{ x }}{% endfor %}
{% for a in [1, 2] %}[{% filter upper %}q{% if a == 1 %}{% continue %}{% endif %}w{% endfilter %}]{{ a }}{% endfor %}|{% for a in [1, 2] %}[{% filter upper %}q{% break %}{% endfilter %}]{% else %}none{% endfor %}|{% for a in [1, 2] %}[{% with b = 1 %}{% if a == 1 %}{% continue %}{% endif %}w{% endwith %}]{% endfor %}
{% for a in [1, 2] %}{% for b in [] recursive %}{% else %}{% continue %}{% endfor %}{{ a }}{% endfor %}
{% for a in [1, 2] %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{{ nothing | int }}
{{ nothing | int(5) }}
{{ messages[0].nothing | int(base=2) }}
{{ nothing | float }}
{{ nothing | float(1.5) }}
{{ 10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 }}{{ ('1' * 400) | int }}{{ ('1' * 400) | float }}
{{ 10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 | float(3) }}
{{ '%f' % 10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 }}
{{ '{:.1f}'.format(10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000) }}
{{ '{:d}'.format(10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000) | length }}{{ '%d' % 10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 | length }}
{{ 10000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000 | round(1, 'ceil') }}
{{ nothing | truncate }}|{{ [1, 2] | truncate(3) }}|{{ (1, 2) | truncate(3, leeway=0) }}|{{ d[1] | truncate(3) }}|{{ nothing | reverse | list }}
{{ [1, 2, 3, 4, 5, 6, 7, 8, 9] | truncate(3) }}
{{ 5 | truncate(3) }}
{{ dict(nothing) }}
{{ namespace(nothing) }}
{% macro m(a) %}{% endmacro %}{{ m.name }}|{{ m['name'] }}|{{ m.arguments }}|{{ m.catch_kwargs }}|{{ m.catch_varargs }}|{{ m.caller }}|{{ m.explicit_caller }}|{{ m.nope is defined }}|{{ m._func is defined }}|{{ m }}|{{ [m] | map(attribute='name') | list }}
{% macro m(a, b=2) %}{{ kwargs }}{{ varargs }}{{ caller() }}{% endmacro %}{{ m.name }}|{{ m.arguments }}|{{ m.catch_kwargs }}|{{ m.catch_varargs }}|{{ m.caller }}|{{ m.explicit_caller }}|{% set f = m %}{{ f.name }}|{{ f }}
{% macro m() %}{{ caller.name }}|{{ caller.arguments }}|{{ caller.caller }}|{{ caller }}|{{ caller.catch_varargs }}{% endmacro %}{% call(q) m() %}{{ varargs }}{% endcall %}
{% macro m(caller=none) %}{{ caller() if caller else 'no' }}{% endmacro %}{{ m.caller }}{{ m.explicit_caller }}{{ m.arguments }}{{ m() }}{% call m() %}yes{% endcall %}
{% macro m(kwargs, varargs) %}{{ kwargs }}{{ varargs }}{% endmacro %}{{ m.catch_kwargs }}{{ m.catch_varargs }}{{ m.arguments }}{{ m(1, varargs=2) }}
{% macro m(kwargs) %}{{ kwargs }}{% endmacro %}{{ m(1, q=2) }}
{% macro m(varargs) %}{{ varargs }}{% endmacro %}{{ m(1, 2) }}
{% macro m(caller) %}{{ caller }}{% endmacro %}ok
{% macro m(caller) %}{% endmacro %}{{ m.caller }}{{ m.explicit_caller }}
{{ range.name is defined }}{{ range.count is defined }}{{ dict.name is defined }}{{ dict.keys is defined }}{{ namespace.name is defined }}{{ raise_exception.name is defined }}{{ 'a'.upper.name is defined }}{% for i in [1] %}{{ loop.cycle.name is defined }}{% endfor %}
{{ 'a' | upper | lower | title | length | string ~ 'z' }}{{ yes and not no }}{{ none is none }}{{ s[1] | trim | length == 0 }}
""".strip("\n").replace("\\\nnext", "\x00next").split("\n")
CASES = [case.replace("\x00next", "\\\nnext") for case in CASES]

# Names of constructs that the engine refuses; the test expects each in its message.
UNSUPPORTED = {
    "{{ dict.fromkeys('ab') }}": "TemplateDict.fromkeys",
    "{{ 'a' | escape }}": "escape", "{{ 'a' | wordwrap }}": "wordwrap", "{{ 'a' | urlencode }}": "urlencode", "{{ 'a' | striptags }}": "striptags", "{{ 1 | filesizeformat }}": "filesizeformat",
    "{{ [1] | random }}": "random", "{{ [1] | pprint }}": "pprint", "{{ {'a': 1} | xmlattr }}": "xmlattr", "{{ 'a' | urlize }}": "urlize", "{{ 'a' | forceescape }}": "forceescape", "{{ {'a': 1} | attr('get') }}": "attr",
    "{{ 'a'.casefold() }}": "casefold", "{{ 'a'.encode() }}": "encode", "{{ 'a'.translate({}) }}": "translate", "{{ 'a'.isnumeric() }}": "isnumeric", "{{ 'a'.isidentifier() }}": "isidentifier",
    "{{ (1).bit_length() }}": "bit_length", "{{ (1.5).is_integer() }}": "is_integer", "{{ lipsum() }}": "lipsum", "{{ cycler(1) }}": "cycler", "{{ joiner() }}": "joiner", "{{ self }}": "self",
    "{{ '%e' % 1.5 }}": "%e", "{{ '%g' % 1.5 }}": "%g", "{{ '{:e}'.format(1.5) }}": "e", "{{ '{a.b}'.format(a=1) }}": "a.b", "{{ ('a' | safe) * 2 }}": "safe", "{{ ('a' | safe).upper() }}": "safe",
    "{% include 'a' %}": "include", "{% import 'a' as b %}": "import", "{% from 'a' import b %}": "from", "{% extends 'a' %}": "extends", "{% block a %}{% endblock %}": "block", "{% autoescape true %}{% endautoescape %}": "autoescape",
    "{{ 'a' | safe | upper }}": "safe", "{{ 'a' | safe | trim }}": "safe",
    "{{ strftime_now('%c') }}": "%c", "{{ 'x' is filter }}": "filter", "{{ 'x' is escaped }}": "escaped", "{{ {(1, 2): 3} }}": "tuple", "{{ [1] | map('string') }}": "generator", "{{ 'a'.upper }}": "builtin_function_or_method",
    "{{ 2 ** 53 }}": "beyond 2**53", "{{ 9007199254740991 + 1 }}": "beyond 2**53", "{{ 3 * 9007199254740991 }}": "beyond 2**53", "{{ 18446744073709551616 // 3 }}": "beyond 2**53", "{{ 1 / 18446744073709551616 }}": "beyond 2**53",
    "{{ 2 ** -1 }}": "negative exponent", "{{ 2.0 ** 3 }}": "`**` of a float", "{{ 2 ** 0.5 }}": "`**` of a float", "{{ 1234 | round(-2) }}": "fewer than 0 digits",
}


def quote(text):
    body = "".join(c if c.isascii() and c.isprintable() and c not in "'\\" else c if ord(c) > 0xFFFF else f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}" for c in text)
    return f"'{body}'"


pick = rng.choice
short = lambda: quote(pick(["a", "X", " ", "\n", "👍", "ab", "", "é", "a\n", "-", "l", "Σ", "\u00a0", "<", "aX"]))
small = lambda: pick(["0", "1", "2", "-1", "3", "-2", "5"])
flag = lambda: pick(["true", "false"])
bound = lambda: pick(["", "", "0", "1", "2", "-1", "-2", "9"])
cut = lambda: f"[{bound()}:{bound()}{pick(['', ':', ':2', ':-1', ':-2'])}]"


def text(depth):
    if depth <= 0:
        return pick([lambda: f"s[{rng.randrange(len(TEXTS))}]", short, lambda: quote(pick(TEXTS))])()
    t, d = lambda: text(depth - 1), depth - 1
    return pick([
        lambda: f"({t()}).{pick(['strip', 'lstrip', 'rstrip'])}({pick(['', short()])})", lambda: f"({t()}).{pick(['upper', 'lower', 'title', 'capitalize', 'swapcase'])}()",
        lambda: f"({t()}).replace({short()}, {short()}{pick(['', ', 1', ', 2'])})", lambda: f"({t()}){cut()}", lambda: f"({t()}) ~ ({any_(d)})", lambda: f"(({t()}) + ({t()}))", lambda: f"(({t()}) * {small()})",
        lambda: f"({any_(d)}) | string", lambda: f"({t()}) | {pick(['trim', 'upper', 'lower', 'title', 'capitalize', 'string'])}", lambda: f"({t()}) | trim({short()})",
        lambda: f"({t()}) | indent({small()}, {flag()}, {flag()})", lambda: f"({list_(d)}) | join({short()})", lambda: f"({any_(d)}) | tojson{pick(['', '(indent=2)', '(ensure_ascii=true)'])}",
        lambda: f"({t()}).{pick(['removeprefix', 'removesuffix'])}({short()})", lambda: f"({t()}).{pick(['partition', 'rpartition'])}({short()})[{pick('012')}]", lambda: f"(({t()}) if ({boolean(d)}) else ({t()}))",
        lambda: f"({t()}).{pick(['center', 'ljust', 'rjust'])}({pick(['3', '8', '15'])}{pick(['', ', ' + quote('*')])})", lambda: f"({t()}).zfill(6)", lambda: f"({t()}).expandtabs(4)", lambda: f"({t()}) | truncate(6, {flag()}, '..', 1)",
        lambda: f"'%s/%r' % (({any_(d)}), ({t()}))", lambda: f"({t()}) | replace({short()}, {short()})", lambda: f"({t()}) | reverse", lambda: f"({t()}) | center(9)",
    ])()


def number(depth):
    if depth <= 0:
        return pick([lambda: f"n[{rng.randrange(len(VARIABLES['n']))}]", small, lambda: pick(["1.5", "0.1", "2.0", "1e3", "12345678901234567890", "7"])])()
    n, d = lambda: number(depth - 1), depth - 1
    return pick([
        lambda: f"(({n()}) {pick(['+', '-', '*', '/', '//', '%'])} ({n()}))", lambda: f"({text(d)}).{pick(['find', 'rfind', 'count'])}({short()})", lambda: f"(({text(d)}) | length)", lambda: f"(({list_(d)}) | length)",
        lambda: f"(({n()}) | round({pick(['', '1', '2'])}))", lambda: f"(({n()}) | abs)", lambda: f"(({n()}) | int)", lambda: f"(({text(d)}) | int)", lambda: f"(({text(d)}) | float)", lambda: f"(-({n()}))", lambda: f"(({n()}) ** {pick(['2', '0', '3'])})",
    ])()


def boolean(depth):
    if depth <= 0:
        return pick(["true", "false", "yes", "no", "nothing", "none"])
    d = depth - 1
    return pick([
        lambda: f"({number(d)}) {pick(['<', '<=', '==', '!=', '>', '>='])} ({number(d)})", lambda: f"({text(d)}) {pick(['<', '<=', '==', '!=', '>'])} ({text(d)})", lambda: f"({short()}) {pick(['in', 'not in'])} ({text(d)})",
        lambda: f"({text(d)}).{pick(['startswith', 'endswith'])}({short()})", lambda: f"({text(d)}).{pick(['isdigit', 'isalpha', 'isspace', 'isupper', 'islower', 'istitle', 'isascii'])}()", lambda: f"not ({boolean(d)})",
        lambda: f"({boolean(d)}) {pick(['and', 'or'])} ({boolean(d)})", lambda: f"({any_(d)}) is {pick(['', 'not '])}{pick(['string', 'mapping', 'iterable', 'sequence', 'number', 'integer', 'float', 'boolean', 'none', 'defined', 'true'])}",
        lambda: f"({any_(d)}) == ({any_(d)})", lambda: f"({any_(d)}) in ({list_(d)})", lambda: f"{small()} < ({number(d)}) <= {small()}",
    ])()


def list_(depth):
    if depth <= 0:
        return pick([lambda: f"l[{rng.randrange(len(VARIABLES['l']))}]", lambda: "range(4)", lambda: "rows"])()
    x, d = lambda: list_(depth - 1), depth - 1
    return pick([
        lambda: f"({text(d)}).{pick(['split', 'rsplit'])}({pick(['', quote('X'), 'none, 1', quote('a') + ', 1', quote(' '), 'none, 2'])})", lambda: f"({text(d)}).splitlines({pick(['', 'true'])})", lambda: f"[{any_(d)}, {any_(d)}]", lambda: f"(({any_(d)}), ({any_(d)}))",
        lambda: f"({x()}){cut()}", lambda: f"(({x()}) | list + ({x()}) | list)", lambda: f"({text(d)}) | list", lambda: f"({text(d)}).split() | sort", lambda: f"({x()}) | map({quote(pick(['string', 'length', 'upper', 'tojson', 'trim']))}) | list",
        lambda: f"({x()}) | {pick(['select', 'reject'])}({pick(['', quote('string'), quote('defined'), quote('none')])}) | list", lambda: f"({text(d)}).split() | unique | list", lambda: f"({x()}) | reverse | list", lambda: f"({x()}) | batch(2) | list",
        lambda: f"({x()}) | slice(2) | list", lambda: f"({dict_(d)}) | dictsort", lambda: f"({dict_(d)}).{pick(['items', 'keys', 'values'])}() | list", lambda: f"rows | map(attribute={quote(pick(['name', 'v', 't.k']))}) | list", lambda: f"({number(d)}, {text(d)})",
    ])()


def dict_(depth):
    if depth <= 0:
        return pick([lambda: f"d[{rng.randrange(len(VARIABLES['d']))}]", lambda: f"messages[{rng.randrange(4)}]"])()
    return pick([lambda: f"{{'k': {any_(depth - 1)}, {small()}: {any_(depth - 1)}}}", lambda: f"dict(a={any_(depth - 1)}, **({dict_(depth - 1)}))", lambda: dict_(0)])()


def any_(depth):
    return pick([text, number, boolean, list_, dict_, text])(depth)


def layout():
    """Tags, text and white space in a random order, with every mark of white space control."""
    open_, close = lambda: pick(["{%", "{%", "{%-", "{%+"]), lambda: pick(["%}", "%}", "-%}", "+%}"])
    space = lambda: "".join(pick([" ", "\n", "\t", "x", "\r\n", "\r", "\u00a0", "\u2028", "\ufeff", "\x85", "  ", "\n\n", "{", "}", "#", "%"]) for _ in range(rng.randrange(5)))
    parts = []
    for _ in range(rng.randint(1, 5)):
        kind = rng.randrange(7)
        if kind == 0:
            parts.append(f"{open_()} if {flag()} {close()}{space()}{open_()} else {close()}{space()}{open_()} endif {close()}")
        elif kind == 1:
            parts.append(f"{open_()} for i in [1, 2] {close()}{space()}{pick(['{{', '{{-', '{{+'])} i {pick(['}}', '-}}'])}{space()}{open_()} endfor {close()}")
        elif kind == 2:
            parts.append(f"{pick(['{#', '{#-', '{#+'])} note {pick(['#}', '-#}', '+#}'])}")
        elif kind == 3:
            parts.append(f"{open_()} set x = 1 {close()}")
        elif kind == 4:
            parts.append(f"{open_()} raw {pick(['%}', '-%}'])}{space()}{open_()} endraw {close()}")
        elif kind == 5:
            parts.append(f"{open_()} generation {close()}{space()}g{space()}{open_()} endgeneration {close()}")
        else:
            parts.append(f"{pick(['{{', '{{-'])} {quote(pick(TEXTS))} {pick(['}}', '-}}'])}")
        parts.append(space())
    return space() + "".join(parts)


def expected(template):
    try:
        return {"text": _compile_jinja_template(template).render(**VARIABLES)}
    except Exception as error:
        return {"error": type(error).__name__}


def case(template):
    result = expected(template)
    # Addresses of objects are not reproducible.
    return None if " object at 0x" in result.get("text", "") or " at 0x" in result.get("text", "") or len(result.get("text", "")) > 4000 else {"template": template, **result}


generated = []
while len(generated) < 2500:
    made = case("{{ " + pick([text, number, boolean, list_, any_])(rng.randint(1, 3)) + " }}" if rng.random() < 0.75 else layout())
    # An error says little; a few are enough.
    if made is not None and ("text" in made or rng.random() < 0.1):
        generated.append(made)
# What SFT trains on: the tokens of each assistant turn, in the tokenizer and template of `tokenization/qwen`.
TRAINED = [
    [{"role": "user", "content": "write it"}, {"role": "assistant", "content": "<think>\n  plan:\n    1. x\n\n</think>\n\n    def f(x):\n        return x\n"}],
    [{"role": "user", "content": "q"}, {"role": "assistant", "reasoning_content": "\n  hm\u00a0\n", "content": "\tindented 👍\n"}],
    [{"role": "user", "content": " q "}, {"role": "assistant", "content": "  two spaces first"}],
]
tokenizer = transformers.AutoTokenizer.from_pretrained(here / "tokenization" / "qwen")
training = []
for messages in TRAINED:
    prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    whole = tokenizer.apply_chat_template(messages, tokenize=False).rstrip("\n")
    assert whole.startswith(prompt)
    completion = tokenizer.encode(whole[len(prompt):], add_special_tokens=False)
    ids = tokenizer.encode(prompt, add_special_tokens=False) + completion
    training.append({"messages": messages, "ids": ids, "trained": len(completion)})
content = {
    "training": training,
    "seed": SEED, "versions": {"jinja2": jinja2.__version__, "transformers": transformers.__version__}, "variables": VARIABLES,
    "cases": [case(template) for template in CASES], "unsupported": [{"template": t, "name": n} for t, n in UNSUPPORTED.items()], "generated": generated,
}
assert None not in content["cases"], [t for t in CASES if case(t) is None]
(here / "chat-templates.json.gz").write_bytes(gzip.compress(json.dumps(content).encode(), mtime=0))
print(len(CASES), "cases,", sum("error" in c for c in content["cases"]), "of them errors;", len(generated), "generated")
