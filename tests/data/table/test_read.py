"""CSV files as text: every kind of file that is none is refused in one line."""

import pytest

from jaxfl.core.errors import InputError, RunWarning
from jaxfl.data.table.read import check_columns, read_sheet


def write(folder, text, name="north.csv", encoding="utf-8"):
    file = folder / name
    file.write_bytes(text.encode(encoding))
    return file


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_each_separator_is_found(separator, tmp_path):
    lines = ["age,ward,note", '61,"ICU, east; 2nd | x\ty",a', "", '7,"two\nlines",b', ",,"]
    text = "\n".join(lines).replace('"ICU, east', "!").replace(",", separator)
    sheet = read_sheet(write(tmp_path, text.replace("!", '"ICU, east')))
    assert sheet.columns["age"] == ["61", "7"]
    assert sheet.columns["ward"] == ["ICU, east; 2nd | x\ty", "two\nlines"]
    assert sheet.place(1) == f"line 4 of {tmp_path / 'north.csv'}"


def test_a_name_of_several_lines_is_one_line(tmp_path):
    sheet = read_sheet(write(tmp_path, '"age\n(years)",ward\n61,ICU\n'))
    assert list(sheet.columns) == ["age (years)", "ward"]
    assert sheet.lines == [3]


def test_the_mark_of_a_spreadsheet_and_windows_lines_belong_to_no_cell(tmp_path):
    sheet = read_sheet(write(tmp_path, "\ufeffage, ward\r\n61, ICU\r\n"))
    assert sheet.columns == {"age": ["61"], "ward": ["ICU"]}


def test_other_encodings_are_read_if_they_are_named(tmp_path):
    for encoding in ("latin-1", "utf-16"):
        file = write(tmp_path, "âge,ward\n61,é\n", encoding=encoding)
        assert read_sheet(file, encoding=encoding).columns == {"âge": ["61"], "ward": ["é"]}


def test_a_decimal_comma_is_read_where_it_is_said(tmp_path):
    file = write(tmp_path, "age;ward;dose\n61,5;ICU, east;-0,25\n;1,2,3;7\n")
    columns = read_sheet(file, decimal=",").columns
    assert columns == {"age": ["61.5", ""], "ward": ["ICU, east", "1,2,3"], "dose": ["-0.25", "7"]}
    assert read_sheet(file).columns["age"] == ["61,5", ""]
    for thousands in ("1.234", "1.234.567", "-1.234,5"):
        other = write(tmp_path, f"age;y\n7;{thousands}\n", "south.csv")
        with pytest.raises(InputError, match=rf"line 2 of .* has '{thousands}', .* thousands: "):
            read_sheet(other, decimal=",")
    quoted = write(tmp_path, 'age,dose\n"61,5","1,25"\n')
    assert read_sheet(quoted, decimal=",").columns == {"age": ["61.5"], "dose": ["1.25"]}


def test_thousands_are_read_where_it_is_said_and_doubtful_commas_are_warned_of(tmp_path):
    text = 'cost,rate\n"1,234","1,5"\n"-12,345,678.5",7\n'
    read = read_sheet(write(tmp_path, text), thousands=",").columns
    assert read == {"cost": ["1234", "-12345678.5"], "rate": ["1,5", "7"]}
    file = write(tmp_path, "cost;rate\n1.234,5;1 234\n7,25;0,125\n")
    read = read_sheet(file, decimal=",", thousands=".").columns
    assert read == {"cost": ["1234.5", "7.25"], "rate": ["1 234", "0.125"]}
    with pytest.warns(RunWarning, match=r"column cost of .* as thousands have \(1,234\)"):
        read_sheet(write(tmp_path, 'cost\n"1,234"\n"5,678"\n'), decimal=",")


def test_the_separator_may_stand_above_the_names(tmp_path):
    sheet = read_sheet(write(tmp_path, '\n"sep=!"\nage!ward\n61!ICU, east\n'))
    assert sheet.columns == {"age": ["61"], "ward": ["ICU, east"]}
    assert sheet.lines == [4]


def test_a_decimal_comma_divides_no_columns_of_a_first_row_of_data(tmp_path):
    file = write(tmp_path, "0,5;0,25;well\n1,5;1,25;ill\n")
    sheet = read_sheet(file, ("dose", "rate", "outcome"), decimal=",")
    assert sheet.columns == {
        "dose": ["0.5", "1.5"],
        "rate": ["0.25", "1.25"],
        "outcome": ["well", "ill"],
    }


def test_columns_may_be_named_from_outside(tmp_path):
    assert read_sheet(write(tmp_path, "61,1\n7,0\n"), ["age", "y"]).columns["age"] == ["61", "7"]


BAD = {
    "": "is empty: expected a line with the names",
    "\n ,,\n": "is empty: expected a line with the names",
    "age,ward\n": "has the names of columns and no row below them",
    "age,ward\n61,ICU\n62\n": "line 3 of F has 1 cells, and the columns are 2, divided by a comma",
    'age,ward\n61,"ICU\n62,x\n': "the row at line 2 of F has a quote",
    'age,ward\n61,x\n62,"ICU"x\n': "the row at line 3 of F has a quote",
    "61,ICU\n62,x\n": "the first line of F holds numbers (61, ICU)",
    ",age\n0,61\n": "column 1 of F has no name",
    "age,age\n0,61\n": "F has two columns age: give",
    "sep=;\nage;ward\n": "has the names of columns and no row below them",
    "a\x1b[1m,b\n1,2\n": "column 'a\\x1b[1m' of F has letters that cannot be printed",
    "a\0e,b\n0,61\n": "holds bytes that are no text",
}


@pytest.mark.parametrize("text", BAD)
def test_a_file_that_is_no_table_is_refused_in_one_line(text, tmp_path):
    file = write(tmp_path, text)
    with pytest.raises(InputError) as error:
        read_sheet(file)
    assert BAD[text].replace("F", str(file)) in str(error.value)
    assert "\n" not in str(error.value)


def test_another_encoding_is_told_with_the_line_and_the_option(tmp_path):
    file = write(tmp_path, "age,ward\n61,é\n", encoding="latin-1")
    with pytest.raises(InputError, match=r"line 2 of .* is not utf-8: .*--encoding latin-1"):
        read_sheet(file)
    file = write(tmp_path, "age,ward\n61,é\n", encoding="utf-16")
    with pytest.raises(InputError, match=r"--encoding utf-16"):
        read_sheet(file)
    with pytest.raises(InputError, match="none that Python knows"):
        read_sheet(file, encoding="morse")
    file.write_bytes(b"PK\x03\x04xlsx")
    with pytest.raises(InputError, match="is a workbook"):
        read_sheet(file)
    with pytest.raises(InputError, match=r"cannot read .*\*\.csv"):
        read_sheet(tmp_path / "*.csv")


def test_files_have_the_same_columns_in_whatever_order(tmp_path):
    first = read_sheet(write(tmp_path, "age,ward,y\n61,x,1\n"))
    same = read_sheet(write(tmp_path, "y,age,ward\n1,61,x\n", "south.csv"))
    other = read_sheet(write(tmp_path, "age,wards,y\n61,x,1\n", "east.csv"))
    check_columns([first, same])
    with pytest.raises(InputError, match=r"east.csv lacks ward and has wards, unlike .*north.csv"):
        check_columns([first, same, other])
    check_columns([first, other, same], leave_out=["ward", "wards"])


def test_a_cell_may_be_a_long_text(tmp_path):
    (tmp_path / "long.csv").write_text(f"text\n{'word ' * 40_000}\n")
    assert len(read_sheet(tmp_path / "long.csv").columns["text"][0]) == 199_999
