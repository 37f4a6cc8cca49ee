"""The table of a sweep: Markdown and CSV, with what may be said of its differences."""

import csv
import io
import itertools
import math
import pathlib
import statistics

from sweeps.runs import flags
from sweeps.sweep import VALUES, slug

LEVEL = 0.05


def two_sided_p(t, freedom):
    """The probability of Student's t beyond ±t: the tail of the integral of cos^(ν−1), over θ = atan(t/√ν)."""
    steps, power = 2000, freedom - 1
    low, high = math.atan(abs(t) / math.sqrt(freedom)), math.pi / 2
    width = (high - low) / steps
    tail = width * sum(math.cos(low + (i + 0.5) * width) ** power for i in range(steps))
    whole = math.sqrt(math.pi) * math.gamma((power + 1) / 2) / (2 * math.gamma(power / 2 + 1))
    return min(1.0, tail / whole)


def welch(a, b):
    """mean(b) − mean(a), its standard error, and p of Welch's test (two-sided): None if a side has one value."""
    if len(a) < 2 or len(b) < 2:
        return statistics.mean(b) - statistics.mean(a), None, None
    parts = [statistics.variance(values) / len(values) for values in (a, b)]
    difference, error = statistics.mean(b) - statistics.mean(a), math.sqrt(sum(parts))
    if error == 0:
        return difference, 0.0, 1.0 if difference == 0 else 0.0
    freedom = sum(parts) ** 2 / sum(p * p / (len(v) - 1) for p, v in zip(parts, (a, b)))
    return difference, error, two_sided_p(difference / error, freedom)


class Outcome:
    """What the finished runs of a cell gave."""

    def __init__(self, sweep, cell, runs):
        self.cell = cell
        self.runs = [run for run in runs if run.state == "finished"]
        self.results = [run.result() for run in self.runs]
        self.values = [result[sweep.value] for result in self.results]

    @property
    def deviation(self):
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    def mean_of(self, *path):
        found = []
        for value in self.results:
            for key in path:
                value = value.get(key, {})
            found.append(value)
        numbers = [value for value in found if isinstance(value, (int, float))]
        return statistics.mean(numbers) if numbers else None

    def seconds(self):
        return statistics.mean(run.seconds() for run in self.runs)

    def text(self):
        """34.40 ± 0.90 (3)"""
        if not self.values:
            return "no run finished"
        deviation = f" ± {self.deviation:.2f}" if self.deviation is not None else ""
        return f"{statistics.mean(self.values):.2f}{deviation} ({len(self.values)})"


def outcomes(sweep, runs):
    return {key: Outcome(sweep, cell, runs.of(cell)) for key, cell in sweep.cells.items()}


def to_csv(sweep, table):
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "row",
            "column",
            "n",
            "mean",
            "deviation",
            "values",
            "paper",
            "budget_parameters",
            "total_parameters",
            "epochs",
            "seconds",
        ]
    )
    for (row, column), found in table.items():
        if not found.values:
            continue
        deviation = "" if found.deviation is None else f"{found.deviation:.4f}"
        paper = "" if found.cell.paper is None else found.cell.paper
        writer.writerow(
            [
                row,
                column,
                len(found.values),
                f"{statistics.mean(found.values):.4f}",
                deviation,
                ";".join(f"{value:.4f}" for value in found.values),
                paper,
                plain(found.mean_of("parameters", "budget")),
                plain(found.mean_of("parameters", "total")),
                plain(found.mean_of("epochs")),
                f"{found.seconds():.1f}",
            ]
        )
    return out.getvalue()


def plain(number, separator=""):
    if number is None:
        return ""
    text = f"{number:,.0f}" if abs(number - round(number)) < 1e-9 else f"{number:,.1f}"
    return text.replace(",", separator)


def to_markdown(sweep, runs, table, picture):
    parts = [f"# {sweep.title}", head(sweep, runs), main_table(sweep, table)]
    if picture:
        parts.append(f"![{sweep.title}]({picture})")
    parts += [differences(sweep, table), details(sweep, table), origin(sweep, runs)]
    return "\n\n".join(part for part in parts if part) + "\n"


def head(sweep, runs):
    lines = []
    if sweep.reproduces:
        lines.append(f"The paper's {sweep.reproduces}.")
    if sweep.about:
        lines.append(sweep.about.strip())
    finished, wanted = sum(run.state == "finished" for run in runs.runs), len(runs.runs)
    if finished < wanted:
        lines.append(f"**Not complete: {finished} of {wanted} runs have finished.**")
    return "\n\n".join(lines)


def markdown(rows, left=1):
    """The first row is the head; the first `left` columns are aligned to the left."""
    rule = ["---"] * left + ["---:"] * (len(rows[0]) - left)
    return "\n".join("| " + " | ".join(row) + " |" for row in [rows[0], rule, *rows[1:]])


def main_table(sweep, table):
    has_paper = any(found.cell.paper is not None for found in table.values())
    says = f"{VALUES[sweep.value]}, mean ± standard deviation (runs)"
    if has_paper:
        says += f"; in brackets {sweep.paper_is}"
    rows = [["", *(column or sweep.value.replace("_", " ") for column in sweep.columns)]]
    for row in sweep.rows:
        cells = []
        for column in sweep.columns:
            found = table.get((row, column))
            paper = f" [{found.cell.paper}]" if found and found.cell.paper is not None else ""
            cells.append(found.text() + paper if found else "")
        rows.append([row, *cells])
    return f"{says}:\n\n{markdown(rows)}"


def pairs(sweep):
    """Neighbours, and each row against the one that `against` names: (column, row, row), (row, column, column)."""
    rows = list(itertools.pairwise(sweep.rows))
    if sweep.against:
        rows += [
            (sweep.against, row)
            for row in sweep.rows
            if row != sweep.against and not {(sweep.against, row), (row, sweep.against)} & set(rows)
        ]
    for column in sweep.columns:
        for a, b in rows:
            yield column, a, b, (a, column), (b, column)
    for row in sweep.rows:
        for a, b in itertools.pairwise(sweep.columns):
            yield row, a, b, (row, a), (row, b)


def p_text(p):
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def verdict(b, difference, p):
    if p is None:
        return "one run only"
    if p >= LEVEL:
        return "within noise"
    return f"{b} is {'lower' if difference < 0 else 'higher'}"


def beside_paper(a, b, difference, p):
    if a.cell.paper is None or b.cell.paper is None:
        return ""
    paper = b.cell.paper - a.cell.paper
    text = f"{paper:+.2f}"
    if p is not None and p < LEVEL and paper != 0:
        text += ", the same order" if (paper < 0) == (difference < 0) else ", the other order"
    return text


def differences(sweep, table):
    rows = []
    for where, a, b, key_a, key_b in pairs(sweep):
        one, other = table.get(key_a), table.get(key_b)
        if not one or not other or not one.values or not other.values:
            continue
        difference, error, p = welch(one.values, other.values)
        size = f"{difference:+.2f}" + (f" ± {error:.2f}" if error is not None else "")
        rows.append(
            [
                where,
                f"{b} − {a}",
                size,
                p_text(p),
                verdict(b, difference, p),
                beside_paper(one, other, difference, p),
            ]
        )
    if not rows:
        return ""
    rows = [["in", "difference", "± standard error", "p", "says", sweep.paper_is], *rows]
    for column in (5, 0):  # what would be empty
        if all(row[column] == "" for row in rows[1:]):
            rows = [row[:column] + row[column + 1 :] for row in rows]
    says = (
        "A difference is called *within noise* unless Welch's test (two-sided, unequal variances, over the "
        f"seeds) gives p < {LEVEL}; of many such differences without a cause, one in twenty is called real by "
        "chance."
    )
    return f"## Differences\n\n{says}\n\n{markdown(rows, left=len(rows[0]))}"


def details(sweep, table):
    head = [
        "row",
        "column",
        "parameters in groups",
        "in all",
        "epochs",
        "seconds a run",
        "each seed",
        "flags",
    ]
    rows = []
    for (row, column), found in table.items():
        own = {
            name: value
            for name, value in found.cell.options.items()
            if sweep.common.get(name) != value or type(sweep.common.get(name)) is not type(value)
        }
        values = [row, column, *[""] * 5]
        if found.values:
            values[2:] = [
                plain(found.mean_of("parameters", "budget"), ","),
                plain(found.mean_of("parameters", "total"), ","),
                plain(found.mean_of("epochs")),
                f"{found.seconds():.{0 if found.seconds() >= 10 else 1}f}",
                " ".join(f"{value:.2f}" for value in found.values),
            ]
        rows.append([*values, shown(own)])
    if sweep.columns == [""]:
        head, *rows = [row[:1] + row[2:] for row in [head, *rows]]
    says = (
        f"All with `ssn train {shell(flags(sweep.common))} --seed S`, and the flags below; seconds are of "
        "training, and of the search for groups, without evaluations."
    )
    return f"## Runs\n\n{says}\n\n{markdown([head, *rows])}"


def shown(options):
    """`--flags`, 2 ranks"""
    words = [f"{options['ranks']} ranks"] if "ranks" in options else []
    rest = flags({name: value for name, value in options.items() if name != "ranks"})
    return ", ".join([f"`{shell(rest)}`"] * bool(rest) + words)


def shell(words):
    return " ".join(f'"{word}"' if " " in word else word for word in words)


def origin(sweep, runs):
    records = [run.record() for run in runs.runs if run.state == "finished"]
    if not records:
        return ""
    variables = "".join(f" --set {name}=..." for name in sweep.variables if name != "here")
    threads = sorted({str(run.result().get("threads")) for run in runs.runs if run.state == "finished"})
    dates = sorted({record["date"] for record in records})
    root, path = pathlib.Path(__file__).resolve().parents[2], sweep.path.resolve()
    shown = path.relative_to(root) if path.is_relative_to(root) else path.name
    versions = sorted({record["version"] for record in records})
    lines = [
        f"- `tools/experiments {shown}{variables}`, seeds " + ", ".join(map(str, sweep.seeds)),
        f"- {', '.join(versions)}; {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}",
        f"- {'; '.join(sorted({r['machine'] for r in records}))}; {', '.join(threads)} thread(s) a run",
    ]
    files = {}
    for record in records:
        for name, checksum in record["data_files"].items():
            files[f"{record['options'].get('data', '')}: {name}", checksum] = None
    lines += [f"- {name}: SHA-256 `{checksum}`" for name, checksum in sorted(files)]
    return "## Origin\n\n" + "\n".join(lines)


def file_names(sweep):
    stem = slug(sweep.path.stem)
    return {kind: f"{stem}.{kind}" for kind in ("md", "csv", "png")}
