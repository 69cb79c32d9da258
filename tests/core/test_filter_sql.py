"""What SQL filters select, rule by rule of the published documentation."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from tests.core.plain_view import PlainView, select, truth, value_of
from twinbus import limits
from twinbus.core.filter_values import DURATION_MAX
from twinbus.core.filters import SqlFilter, compile_filter
from twinbus.errors import FilterError

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


class Whole(int):
    """An integer with a type of its own, like those of AMQP."""


class Name(str):
    """A text with a type of its own."""

    __slots__ = ()


# -- the examples of the documentation -----------------------------------------------


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ("sys.label LIKE '%bus%'", True),
        ("sys.messageid = 'xxxx'", True),
        ("sys.correlationid like 'abc-%'", True),
        ("MessageProperty = 'A'", True),
        ("user.SuperHero like 'SuperMan%'", True),
        ("\"http://schemas/Claims/EntityLogicalName\" = 'account'", True),
        ("[HR-EmployeeID] = 7 AND [Property With Space] = TRUE", True),
        ("count = 1", False),
        ("count > 1", True),
        ("count > 2.08", True),
        ("count = 3 AND other = 3", False),
        ("count = 3 OR other = 3", True),
        ("StoreId IN('Store1', 'Store2', 'Store3')", True),
        ("sys.To IN ('Store5','Store6','Store7') OR StoreId = 'Store8'", False),
        ("sys.To NOT IN ('Store1','Store2') OR StoreId NOT IN ('Store1')", True),
        ("(priority = 1 OR priority = 2) AND (sys.label LIKE '%String2')", False),
        ("property('count') = 3 AND p('cou' + 'nt') = 3", True),
        ("Exists(count)", True),
        ("Exists(nothing)", False),
        ("1=1", True),
        ("1=0", False),
    ],
)
def test_examples_of_the_documentation(expression: str, *, selected: bool) -> None:
    properties = {
        "MessageProperty": "A",
        "superhero": "SuperManIsBack",
        "http://schemas/Claims/EntityLogicalName": "account",
        "HR-EmployeeID": 7,
        "Property With Space": True,
        "Count": 3,
        "StoreId": "Store2",
    }
    system = {
        "Label": "a bus stop",
        "MessageId": "xxxx",
        "CorrelationId": "abc-1",
        "To": "Store1",
    }

    assert select(expression, properties, system) is selected


def test_times_and_durations_are_compared_with_parameters() -> None:
    properties = {"started": NOON, "ended": NOON + timedelta(minutes=5)}
    parameters = {"@limit": timedelta(minutes=5), "@noon": NOON.replace(tzinfo=None)}

    assert select("ended-started <= @limit", properties, parameters=parameters)
    assert select("(ended-started) >= @limit", properties, parameters=parameters)
    assert select("started = @noon", properties, parameters=parameters)
    assert not select("ended < @noon", properties, parameters=parameters)


# -- names and scopes ------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression",
    [
        "COLOR = 'red'",
        "User.Color = 'red'",
        "[user].[color] = 'red'",
        "\"color\" = 'red'",
        "SYS.subject = 'lab'",
        "sys.[Label] = 'lab'",
        "[a]]b] = 1",
        '"a""b" = 2',
        "größe = 3",
        "set = 4 AND like = 5 AND p = 6 AND notes = 7 AND property = 8",
        "IN_order = 9",
        "[sys.Label] = 10",
    ],
)
def test_names_are_found(expression: str) -> None:
    properties = {
        "Color": "red",
        "a]b": 1,
        'a"b': 2,
        "Größe": 3,
        "set": 4,
        "like": 5,
        "P": 6,
        "notes": 7,
        "property": 8,
        "in_order": 9,
        "sys.Label": 10,
    }

    assert select(expression, properties, {"Label": "lab"})


def test_the_property_function_reads_user_properties_only() -> None:
    assert truth("property('sys.Label') = 'x'") is None
    assert truth("property(which) = 1", {"which": "a", "a": 1}) is True
    assert truth("property(1) = 1", {"1": 1}) is None


def test_values_that_are_text_are_compared_with_case() -> None:
    assert truth("color = 'RED'", {"color": "red"}) is False
    assert truth("color LIKE 'R%'", {"color": "red"}) is False


def test_system_properties_are_asked_for_by_one_name() -> None:
    view = PlainView()
    text = "sys.EnqueuedTime = sys.enqueuedtimeutc OR EXISTS(sys.SUBJECT)"

    compile_filter(SqlFilter(text)).matches(view)

    assert view.asked == ["sys.EnqueuedTimeUtc", "sys.EnqueuedTimeUtc", "sys.Label"]


def test_a_system_property_exists_when_it_is_set() -> None:
    assert select("EXISTS(sys.To) AND sys.To IS NOT NULL", system={"To": "x"})
    assert select("NOT EXISTS(sys.To) AND sys.To IS NULL")


# -- three-valued logic ----------------------------------------------------------------

CONDITIONS = {"T": "1=1", "F": "1=0", "U": "missing=1"}
ANSWERS = {"T": True, "F": False, "U": None}
# As in the documentation: left operand, right operand, result.
AND = "TTT TFF TUU FTF FFF FUF UTU UFF UUU"
OR = "TTT TFT TUT FTT FFF FUU UTT UFU UUU"
NOT = "TF FT UU"


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        *((f"{row[0]} AND {row[1]}", row[2]) for row in AND.split()),
        *((f"{row[0]} OR {row[1]}", row[2]) for row in OR.split()),
        *((f"NOT {row[0]}", row[1]) for row in NOT.split()),
    ],
)
def test_truth_tables(expression: str, answer: str) -> None:
    words = [CONDITIONS.get(word, word) for word in expression.split()]

    assert truth(" ".join(words)) is ANSWERS[answer]


@pytest.mark.parametrize(
    "expression",
    [
        "missing + 1 = 1",
        "-missing = 1",
        "+missing = 1",
        "missing <> 1",
        "null_one = 1",
        "null_one <> 1",
        "null_one = NULL",
        "missing LIKE 'a'",
        "missing NOT LIKE 'a'",
        "text LIKE missing",
        "text LIKE 'a' ESCAPE missing",
        "missing IN (1, 2)",
        "missing NOT IN (1, 2)",
        "p(missing) = 1",
    ],
)
def test_missing_and_null_properties_are_unknown(expression: str) -> None:
    assert truth(expression, {"null_one": None, "text": "a"}) is None


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("missing IS NULL", True),
        ("null_one IS NULL", True),
        ("text IS NULL", False),
        ("text IS NOT NULL", True),
        ("missing IS NOT NULL", False),
        ("EXISTS(null_one)", True),
        ("EXISTS(missing)", False),
        ("text IN (missing, 'a')", True),
        ("text NOT IN (missing, 1)", True),
    ],
)
def test_tests_for_null_and_membership_are_always_known(
    expression: str, *, answer: bool
) -> None:
    assert truth(expression, {"null_one": None, "text": "a"}) is answer


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("1=1 OR 1=0 AND 1=0", True),
        ("(1=1 OR 1=0) AND 1=0", False),
        ("NOT 1=0 AND 1=0", False),
        ("NOT (1=0 AND 1=0)", True),
        ("NOT NOT 1=1", True),
        ("1 + 2 * 3 = 7", True),
        ("(1 + 2) * 3 = 9", True),
        ("10 - 2 - 3 = 5", True),
        ("100 / 10 / 5 = 2", True),
        ("- 2 + 3 = 1", True),
        ("2 - -3 = 5", True),
    ],
)
def test_precedence(expression: str, *, answer: bool) -> None:
    assert truth(expression) is answer


# -- types ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("number = 5", True),
        ("number = 5.0", True),
        ("number < 5.5", True),
        ("number >= 5 AND number <= 5", True),
        ("number > 5", False),
        ("number != 5", False),
        ("real = 1.5", True),
        ("real = 15E-1", True),
        ("real > .5", True),
        ("text < 'b'", True),
        ("text = 'it''s'", True),
        ("flag = TRUE", True),
        ("flag <> false", True),
        ("id = @id", True),
        ("id <> @id", False),
        ("data = @data", True),
        ("number = '5'", None),
        ("number <> '5'", None),
        ("text > 1", None),
        ("flag = 1", None),
        ("flag > FALSE", None),
        ("id > @id", None),
        ("id = 'x'", None),
        ("opaque = 1", None),
        ("opaque = opaque", None),
        ("number LIKE '5'", None),
        ("text LIKE number", None),
    ],
)
def test_only_values_of_one_type_are_compared(
    expression: str, answer: bool | None
) -> None:
    properties = {
        "number": Whole(5),
        "real": 1.5,
        "text": Name("it's") if "''" in expression else "a",
        "flag": True,
        "id": UUID(int=1),
        "data": b"\x01",
        "opaque": ["a list"],
    }
    parameters = {"@id": UUID(int=1), "Data": b"\x01"}

    assert truth(expression, properties, parameters) is answer


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("7 / 2", 3),
        ("-7 / 2", -3),
        ("7 / -2", -3),
        ("7 % 3", 1),
        ("-7 % 3", -1),
        ("7 % -3", 1),
        ("7 / 2.0", 3.5),
        ("7.5 % 2", 1.5),
        ("0.5 + 1", 1.5),
        ("0.5 - 1", -0.5),
        ("0.5 * 3", 1.5),
        ("1.0 / 0", float("inf")),
        ("1e308 * 10", float("inf")),
        ("-1e308 - 1e308", float("-inf")),
        ("-1.0 / 0", float("-inf")),
        ("'a' + 'b' + 'c'", "abc"),
        ("+5", 5),
        ("-1.5", -1.5),
        ("-@day", timedelta(days=-1)),
        ("@noon + @day", NOON + timedelta(days=1)),
        ("@day + @noon", NOON + timedelta(days=1)),
        ("@noon - @day", NOON - timedelta(days=1)),
        ("@day + @day", timedelta(days=2)),
        ("@day - @day", timedelta()),
        ("-@longest", -DURATION_MAX),
        ("-@longest + @longest + @longest", DURATION_MAX),
        ("-(0 - 9223372036854775807)", 2**63 - 1),
        ("@day - @noon", None),
        ("@noon + @noon", None),
        ("@noon * 2", None),
        ("@day * @day", None),
        ("'a' - 'b'", None),
        ("'a' + 1", None),
        ("TRUE + 1", None),
        ("-TRUE", None),
        ("+'a'", None),
        ("-'a'", None),
    ],
)
def test_arithmetic(expression: str, result: object) -> None:
    parameters = {"@day": timedelta(1), "noon": NOON, "@longest": DURATION_MAX}

    assert value_of(expression, parameters=parameters) == result


@pytest.mark.parametrize(
    "expression", ["0.0 / 0", "1.0 % 0", "1e308 * 10 % 2", "(0.0 / 0) / 0"]
)
def test_a_double_may_be_no_number(expression: str) -> None:
    result = value_of(expression)

    assert result != result  # noqa: PLR0124


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("number / 0 = 1", "divided by zero"),
        ("number % 0 = 1", "divided by zero"),
        ("9223372036854775807 + number = 1", "64 bits"),
        ("number - 9223372036854775807 - 10 = 1", "64 bits"),
        ("9223372036854775807 * number = 1", "64 bits"),
        ("@noon + @forever = @noon", "out of range"),
        ("@forever + @forever = @forever", "out of range"),
        ("-@never = @forever", "does not fit in 64 bits"),
        ("@longest + @tick = @tick", "does not fit in 64 bits"),
        ("-@longest - @tick = @tick", "does not fit in 64 bits"),
        ("@day + @eve = @noon", "out of range"),
        ("@dawn - @day = @noon", "out of range"),
        ("-(0 - 9223372036854775807 - 1) = 1", "64 bits"),
        ("text + text = text", "longer than a property"),
        ("text LIKE text", "LIKE pattern has"),
        ("'a' LIKE text2 ESCAPE text", "one character"),
        ("'a' LIKE text2 ESCAPE text2", "ends with its escape"),
    ],
)
def test_a_wrong_value_fails_the_evaluation(expression: str, reason: str) -> None:
    properties = {"number": 5, "text": "x" * 20_000, "text2": "x"}
    parameters = {
        "@noon": NOON,
        "@forever": timedelta(days=999_999_999),
        "@never": timedelta.min,
        "@longest": DURATION_MAX,
        "@tick": timedelta(microseconds=1),
        "@day": timedelta(days=1),
        "@eve": datetime.max.replace(tzinfo=UTC),
        "@dawn": datetime.min.replace(tzinfo=UTC),
    }
    condition = compile_filter(SqlFilter(expression, parameters))

    with pytest.raises(FilterError, match=reason):
        condition.matches(PlainView(properties))


def test_a_failure_behind_a_decided_condition_is_not_reached() -> None:
    assert truth("1=0 AND number / 0 = 1", {"number": 1}) is False
    assert truth("1=1 OR number / 0 = 1", {"number": 1}) is True


def test_newid_gives_what_the_caller_wants() -> None:
    ids = iter([UUID(int=1), UUID(int=2)])
    condition = compile_filter(SqlFilter("NewId() <> newid()"), lambda: next(ids))

    assert condition.matches(PlainView())
    assert select("newid() <> newid()")


# -- refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "line 1, column 1: found the end, expected .*a property"),
        ("a >", "line 1, column 4: found the end, expected .*a constant"),
        ("a = 1\nAND b = ;", "line 2, column 9: found ';', expected .*a constant"),
        ("a = 1 b = 2", "line 1, column 7: found 'b', expected AND, OR"),
        ("a NOT b", "line 1, column 7: found 'b', expected IN, LIKE"),
        ("a = 'x", "line 1, column 5: found a ' that is never closed"),
        ("[a = 1", r"line 1, column 1: found a \[ that is never closed"),
        ("a ! 1", "line 1, column 3: found '!', expected .*a comparison"),
        ("a = b = c", "line 1, column 7: found '='"),
        ("a IN ()", r"line 1, column 7: found '\)'"),
        ("a IS 5", "found '5', expected NOT, NULL"),
        ("_a = 1", "line 1, column 1: found '_'"),
        ("10 = 1 " + "x" * 40, r"found 'x{32}\.\.\.'"),
        ("a", "line 1, column 1: expected a condition"),
        ("a = 1 OR TRUE", "line 1, column 10: expected a condition"),
        ("(a = 1) + 2 = 3", "line 1, column 2: expected a value"),
        ("a + 1 IS NULL", "only a property can be tested with IS NULL"),
        ("b = 1 AND a.b = 1", "column 11: 'a' is no scope; write .a.b. for a name"),
        ("sys.Nothing = 1", "column 1: there is no system property 'sys.Nothing'"),
        ("EXISTS(sys.Nothing)", "no system property"),
        ("len(a) = 1", "the functions are"),
        ("newid(1) = 1", "the functions are"),
        ("p() = 1", "the functions are"),
        ("p(1, 2) = 1", "the functions are"),
        ("a = @b", "column 5: the parameter '@b' has no value"),
        ("a = 9223372036854775808", "column 5: the number .* is out of range"),
        ("a = " + "9" * 500, "out of range"),
        ("a = 1e400", "out of range"),
        ("a LIKE 'x' ESCAPE 'xy'", "column 8: .*must be one character"),
        ("a LIKE 'x' ESCAPE ''", "must be one character"),
        ("a LIKE 'x!' ESCAPE '!'", "ends with its escape"),
        ("a LIKE 5", "must be texts"),
        ("a LIKE 'x' ESCAPE NULL", "must be texts"),
    ],
)
def test_a_bad_text_is_refused_with_its_place(expression: str, reason: str) -> None:
    with pytest.raises(FilterError, match=reason):
        compile_filter(SqlFilter(expression))


@pytest.mark.parametrize("value", [None, ["a"], 2**63])
def test_a_parameter_that_filters_cannot_use_is_refused(value: object) -> None:
    with pytest.raises(FilterError, match="@a"):
        compile_filter(SqlFilter("a = @a", {"@a": value}))


# -- bounds ----------------------------------------------------------------------------


def test_the_characters_are_bounded() -> None:
    text = "a = '" + "x" * (limits.FILTER_CHARS_MAX - 6) + "'"
    assert not select(text)

    with pytest.raises(FilterError, match="1025 characters"):
        compile_filter(SqlFilter(text + " "))


def test_the_number_of_comparisons_is_bounded() -> None:
    tests = ["a IN (1, 2, 3, 4)"] * limits.FILTER_EXPRESSIONS_MAX
    assert select(" OR ".join(tests), {"a": 4})

    with pytest.raises(FilterError, match="more than 32 tests"):
        compile_filter(SqlFilter(" OR ".join([*tests, "a = 1"])))


@pytest.mark.parametrize("text", ["NOT {}(1=1)", "1 = {}1", "1 = {}a{}"])
def test_the_depth_is_bounded(text: str) -> None:
    repeated = {"NOT {}(1=1)": "NOT ", "1 = {}1": "-", "1 = {}a{}": "p("}[text]

    def nested(count: int) -> str:
        return text.format(repeated * count, ")" * count)

    compile_filter(SqlFilter(nested(limits.FILTER_DEPTH_MAX - 3)))
    with pytest.raises(FilterError, match="nested deeper than 32 levels"):
        compile_filter(SqlFilter(nested(limits.FILTER_DEPTH_MAX)))
    with pytest.raises(FilterError, match="nested deeper than 32 levels"):
        compile_filter(SqlFilter(nested(200)))


def test_brackets_and_long_chains_do_not_count_as_depth() -> None:
    assert select("(" * 500 + "1=1" + ")" * 500)
    assert select("1" + "+1" * 500 + " = 501")


def test_the_steps_are_bounded() -> None:
    text = " OR ".join(["a LIKE '%b_b%'"] * limits.FILTER_EXPRESSIONS_MAX)
    condition = compile_filter(SqlFilter(text))

    assert not condition.matches(PlainView({"a": "b" + "a" * 4000}))
    with pytest.raises(FilterError, match="more than 262144 steps"):
        condition.matches(PlainView({"a": "a" * limits.PROPERTY_BYTES_MAX}))
