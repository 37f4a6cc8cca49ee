"""What a sweep's TOML file describes: rows and columns of a table, and each cell's options of `ssn train`."""

import dataclasses
import itertools
import pathlib
import re
import string
import tomllib

TEXTS = ("title", "reproduces", "about", "paper_is", "value", "against", "plot")
SECTIONS = ("seeds", "common", "row", "rows", "column", "columns")
RESERVED = ("seed", "out", "resume", "json", "overwrite", "quiet", "trace", "config", "stop-after")
VALUES = {  # of a result, that a table can be of
    "test_error1": "Error@1 on the test set in percent",
    "test_error5": "Error@5 on the test set in percent",
    "test_loss": "Loss on the test set",
    "seconds": "Seconds, evaluations and search included",
    "search_seconds": "Seconds of the search for groups",
    "samples_per_second": "Training samples a second",
    "wire_bytes_per_step": "Bytes that a rank hands to the sum in a step",
}
REFERENCE = re.compile(r"(total|time) of (.+)")
WHERE = {"total": "budget", "time": "epochs"}


class UsageError(Exception):
    """What was expected, what was found, what to do."""


@dataclasses.dataclass(frozen=True)
class Reference:
    """`budget = "total of ROW"` or `epochs = "time of ROW"`: taken from another row, in the same column."""

    what: str
    row: str


@dataclasses.dataclass
class Cell:
    row: str
    column: str  # "" where the table has one column only
    options: dict  # of `ssn train`, without the seed, as written: with variables, and with references as text; and `ranks`
    paper: float | None = None

    @property
    def key(self):
        return self.row, self.column

    @property
    def name(self):
        return f"{self.row}, {self.column}" if self.column else self.row

    @property
    def ranks(self):
        return self.options.get("ranks", 1)

    @property
    def references(self):
        found = {
            name: REFERENCE.fullmatch(value) for name, value in self.options.items() if isinstance(value, str)
        }
        return {name: Reference(*match.groups()) for name, match in found.items() if match}


@dataclasses.dataclass
class Sweep:
    path: pathlib.Path
    title: str
    seeds: list
    rows: list  # names
    columns: list  # names; [""] if there is one
    axis: str  # the option that the columns are values of, or ""
    common: dict
    cells: dict  # (row, column) → Cell, where the table has one
    variables: dict
    reproduces: str = ""
    about: str = ""
    paper_is: str = "the paper"
    value: str = "test_error1"
    against: str = ""
    plot: str = "table"

    @property
    def name(self):
        return f"{self.path.resolve().parent.name}/{self.path.stem}"

    def substitute(self, value):
        """The value with its variables replaced."""
        if not isinstance(value, str):
            return value
        try:
            return string.Template(value).substitute(self.variables)
        except KeyError as missing:
            raise UsageError(
                f"{self.path}: '{value}' needs a value: give --set {missing.args[0]}=..."
            ) from None
        except ValueError:
            raise UsageError(
                f"{self.path}: '{value}': a $ must be followed by a name; $$ is a dollar sign"
            ) from None

    def sibling(self, cell):
        """The cell of the same column that differs in the number of epochs alone, which it has as a number."""

        def rest(options):
            return {name: value for name, value in options.items() if name != "epochs"}

        for row in self.rows:
            other = self.cells.get((row, cell.column))
            if (
                other
                and rest(other.options) == rest(cell.options)
                and not isinstance(other.options.get("epochs"), str)
            ):
                return other
        return None


def slug(name):
    return re.sub(r"[^\w.%+-]+", "_", name)


def number(text):
    """2 for "2%", 4e6 for "4M"; None if it is not a number."""
    match = re.fullmatch(r"([0-9.]+)\s*([%xKMG]?)", text.strip())
    try:
        return float(match[1]) * {"K": 1e3, "M": 1e6, "G": 1e9}.get(match[2], 1) if match else None
    except ValueError:
        return None


def read_sweep(path, variables):
    path = pathlib.Path(path)
    try:
        table = tomllib.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    check_keys(path, table)
    rows, _ = read_axis(path, table, "row")
    columns, axis = read_axis(path, table, "column")
    common = read_options(path, "common", table.get("common", {}))
    cells = {}
    for row, column in itertools.product(rows, columns):
        if column["name"] in row["columns"] or not row["columns"]:
            cells[row["name"], column["name"]] = Cell(
                row["name"],
                column["name"],
                common | column["options"] | row["options"],
                paper_of(path, row, column["name"]),
            )
    sweep = Sweep(
        path,
        rows=[r["name"] for r in rows],
        columns=[c["name"] for c in columns],
        axis=axis,
        common=common,
        cells=cells,
        seeds=table["seeds"],
        variables={"here": str(path.resolve().parent)} | variables,
        **{name: table[name] for name in TEXTS if name in table},
    )
    check_sweep(path, sweep, rows)
    return sweep


def check_keys(path, table):
    for key in table:
        if key not in TEXTS + SECTIONS:
            raise UsageError(f"{path}: there is no key '{key}'; known are {', '.join(TEXTS + SECTIONS)}")
    for key in TEXTS:
        if not isinstance(table.get(key, ""), str):
            raise UsageError(f"{path}: {key} must be a text, found {table[key]!r}")
    if not table.get("title"):
        raise UsageError(f"{path}: a title is missing")
    seeds = table.get("seeds")
    if (
        not isinstance(seeds, list)
        or not seeds
        or not all(type(seed) is int and seed >= 0 for seed in seeds)
        or len(set(seeds)) < len(seeds)
    ):
        raise UsageError(
            f"{path}: seeds must be a list of different numbers, such as [0, 1, 2]; found {seeds!r}"
        )
    if table.get("value", "test_error1") not in VALUES:
        raise UsageError(f"{path}: value must be one of {', '.join(VALUES)}; found '{table['value']}'")
    if table.get("plot", "table") not in ("table", "budget"):
        raise UsageError(f"{path}: plot must be 'table' or 'budget', found '{table['plot']}'")


def read_axis(path, table, kind):
    """The rows or columns, each with name, options, columns (that it is for) and paper; and the option whose
    values they are, if it is one."""
    listed, grid = table.get(kind), table.get(kind + "s")
    if listed is not None and grid is not None:
        raise UsageError(f"{path}: give [[{kind}]] or [{kind}s], not both")
    if grid is not None:
        return read_grid(path, kind, grid)
    if listed is None:
        if kind == "row":
            raise UsageError(
                f"{path}: a table needs rows: [[row]] with a name, or [rows] with lists of values"
            )
        return [{"name": "", "options": {}, "columns": [], "paper": None}], ""
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise UsageError(f"{path}: write [[{kind}]], with two brackets, or [{kind}s] with lists of values")
    entries = []
    for entry in listed:
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            raise UsageError(f"{path}: each [[{kind}]] needs a name, found {entry}")
        extra = ("columns", "paper") if kind == "row" else ()
        options = {key: value for key, value in entry.items() if key not in ("name",) + extra}
        entries.append(
            {
                "name": name,
                "options": read_options(path, f"{kind} '{name}'", options),
                "columns": columns_of(path, entry) if extra else [],
                "paper": entry.get("paper") if extra else None,
            }
        )
    check_names(path, kind, [entry["name"] for entry in entries])
    return entries, ""


def columns_of(path, row):
    columns = row.get("columns", [])
    if not isinstance(columns, list) or not all(isinstance(column, str) for column in columns):
        raise UsageError(
            f"{path}: row '{row['name']}': columns must be a list of columns' names, found {columns!r}"
        )
    return columns


def read_grid(path, kind, grid):
    if not isinstance(grid, dict) or not grid:
        raise UsageError(f"{path}: [{kind}s] must have options with lists of values, found {grid!r}")
    for key, values in grid.items():
        if not isinstance(values, list) or not values:
            raise UsageError(f"{path}: [{kind}s] {key} must be a list of values, found {values!r}")
    entries = []
    for values in itertools.product(*grid.values()):
        options = read_options(path, f"{kind}s", dict(zip(grid, values)))
        entries.append(
            {"name": ", ".join(map(str, values)), "options": options, "columns": [], "paper": None}
        )
    check_names(path, kind, [entry["name"] for entry in entries])
    return entries, next(iter(grid)) if len(grid) == 1 else ""


def read_options(path, where, options):
    if not isinstance(options, dict):
        raise UsageError(f"{path}: [{where}] must have options of `ssn train`, found {options!r}")
    for name, value in options.items():
        if name in RESERVED:
            raise UsageError(
                f"{path}: {where}: '{name}' is set by this program; leave it out"
                + ("; seeds is the list of seeds" if name == "seed" else "")
            )
        if not isinstance(value, (str, int, float)):
            raise UsageError(
                f"{path}: {where}: {name} must be a text, a number, true or false; found {value!r}"
            )
        if name == "ranks" and (type(value) is not int or value < 1):
            raise UsageError(f"{path}: {where}: ranks must be a number from 1 on, found {value!r}")
    return options


def check_names(path, kind, names):
    by_slug = {}
    for name in names:
        if slug(name) in ("", ".", ".."):
            raise UsageError(
                f"{path}: {kind} '{name}': its runs' directory would be named '{slug(name)}'; "
                "choose another name"
            )
        if slug(name) in by_slug:
            raise UsageError(
                f"{path}: two {kind}s would share a directory: '{by_slug[slug(name)]}' and '{name}'"
            )
        by_slug[slug(name)] = name
    if not names:
        raise UsageError(f"{path}: there is no {kind}")


def paper_of(path, row, column):
    paper = row["paper"]
    if isinstance(paper, dict):
        paper = paper.get(column)
    if paper is not None and type(paper) not in (int, float):
        raise UsageError(
            f"{path}: row '{row['name']}': paper must be a number, or a table of column = number"
        )
    return paper


def check_sweep(path, sweep, rows):
    for row in rows:
        named = row["columns"] + (list(row["paper"]) if isinstance(row["paper"], dict) else [])
        for column in named:
            if column not in sweep.columns:
                raise UsageError(
                    f"{path}: row '{row['name']}' names column '{column}'; "
                    f"there are {', '.join(sweep.columns)}"
                )
    if sweep.against and sweep.against not in sweep.rows:
        raise UsageError(f"{path}: against names row '{sweep.against}'; there are {', '.join(sweep.rows)}")
    for cell in sweep.cells.values():
        for option, reference in cell.references.items():
            check_reference(path, sweep, cell, option, reference)


def check_reference(path, sweep, cell, option, reference):
    where = f"{path}: {cell.name}: {option} = '{cell.options[option]}'"
    if WHERE[reference.what] != option:
        raise UsageError(f"{where}: '{reference.what} of' is for {WHERE[reference.what]}")
    if (reference.row, cell.column) not in sweep.cells:
        raise UsageError(
            f"{where}: there is no row '{reference.row}' in this column; "
            f"there are {', '.join(sweep.rows)}"
        )
    other = sweep.cells[reference.row, cell.column]
    if any(found.what == reference.what for found in other.references.values()):
        raise UsageError(f"{where}: that row's {option} is taken from another row itself; name that one")
    if reference.what == "total" and cell.options.get("count", "total") != "total":
        raise UsageError(
            f"{where}: that is the number of all trained parameters, but count is "
            f"'{cell.options['count']}'; leave count out"
        )
    if reference.what == "time" and sweep.sibling(cell) is None:
        raise UsageError(
            f"{where}: how long an epoch takes is measured in a row with the same options and a "
            "number of epochs; add one"
        )
