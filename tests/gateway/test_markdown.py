"""Markdown as the page shows it: its policy allows no style in elements."""

from steno.gateway.page.markdown import markdown

TABLE = """| name | size | state |
|:-----|-----:|:-----:|
| *a*  |   12 |  new  |
"""


def test_columns_of_a_table_stand_where_they_were_told_to_without_a_style() -> None:
    made = markdown(TABLE)
    assert "style" not in made
    for row in (
        '<th>name</th>\n<th class="right">size</th>\n<th class="centre">state</th>',
        '<td><em>a</em></td>\n<td class="right">12</td>\n<td class="centre">new</td>',
    ):
        assert row in made


def test_addresses_but_those_of_pages_and_mail_are_text() -> None:
    assert "<a" not in markdown("[x](javascript:alert(1)) [y](file:///etc/passwd) <data:x>")
    assert 'href="https://ok.example"' in markdown("[x](https://ok.example)")
