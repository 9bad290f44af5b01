from __future__ import annotations

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from localllm.settings.locate import key_lines

TRICKY = '''\
# [server] in a comment
top = 1
[server]   # a header with a comment
host = "a # not a comment [x]"
api_keys = [
  "k = 1",  # inside: not a key
  "]",
]
port = 1

[ log ]
level = """
port = 2
[engine]
"""
engine.kv_type = 'q8_0'
"quoted" = {a = 1, b = [1,
  2]}
last = true
'''


def test_strings_arrays_and_comments_hide_no_key_and_make_none() -> None:
    assert tomllib.loads(TRICKY)
    assert key_lines(TRICKY) == {
        "top": 2,
        "server": 3,
        "server.host": 4,
        "server.api_keys": 5,
        "server.port": 9,
        "log": 11,
        "log.level": 12,
        "log.engine.kv_type": 16,
        "log.quoted": 17,
        "log.last": 19,
    }


_VALUES = st.sampled_from(
    ["1", '"a=1"', "'''x\n[y]\nz = 2\n'''", "[1,\n 2]", '"\\"]"', "true # c", '"""\nq = 1\n"""']
)


@given(
    st.lists(_VALUES, min_size=1, max_size=8), st.lists(st.sampled_from(["", "# k9 = 1", "  "]), max_size=8)
)
def test_lines_are_right_whatever_the_values(values: list[str], fillers: list[str]) -> None:
    text, expected = "", {}
    for index, value in enumerate(values):
        if index < len(fillers):
            text += fillers[index] + "\n"
        expected[f"k{index}"] = text.count("\n") + 1
        text += f"k{index} = {value}\n"
    assert set(tomllib.loads(text)) == set(expected)
    assert key_lines(text) == expected
