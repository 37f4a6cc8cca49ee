"""The results of perf/gpu_check as Markdown."""

AIM = 0.9  # of a copy's bandwidth, for the generation of weights


def number(value):
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def table(rows):
    """Of dictionaries; a column for each key that any has."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(number(row.get(column, "")) for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def rows_of(results, title):
    return next((part["rows"] for part in results["parts"] if part["title"] == title), [])


def comparison(results):
    """The fastest of each program's steps, model by model, in bf16."""
    ours, theirs = rows_of(results, "Training steps"), rows_of(results, "Training steps in PyTorch")
    rows = []
    for model, budget in dict.fromkeys((row["model"], row["budget"]) for row in theirs):
        def best(of):
            fitting = [row for row in of if (row["model"], row["budget"]) == (model, budget) and row.get("precision", "bf16") == "bf16"]
            return max(fitting, key=lambda row: row["samples/s"], default=None)
        mine, torch = best(ours), best(theirs)
        if mine and torch:
            rows.append({"model": model, "budget": budget, "samples/s": mine["samples/s"], "PyTorch": torch["samples/s"],
                         "times as fast": mine["samples/s"] / torch["samples/s"], "peak GB": mine["peak GB"],
                         "PyTorch's": torch["peak GB"], "its torch.compile": torch["compiled"]})
    return rows


def section(part):
    lines = [f"## {part['title']}", "", f"{part['state'].capitalize()}, {part['seconds']:.0f} s."]
    lines += ["", *(f"* {note}" for note in part["notes"])] if part["notes"] else []
    lines += ["", *(f"* **Failed**: {failure}" for failure in part["failures"])] if part["failures"] else []
    lines += ["", table(part["rows"])] if part["rows"] else []
    for command in part["commands"]:
        if "output" in command:
            lines += ["", f"`{command['command']}` (exit code {command['exit_code']}), its last lines:", "", "```", command["output"], "```"]
    return lines


def summary(results):
    rows = [{"part": part["title"], "result": part["state"], "seconds": part["seconds"]} for part in results["parts"]]
    lines = [table(rows)]
    beside = comparison(results)
    if beside:
        lines += ["", "Training steps in bf16 beside PyTorch's, each at its fastest; *budget*: the share of parameters that is left.", "",
                  table(beside)]
    return lines


def markdown(results):
    lines = [f"# GPU check: {results['card']}", "", f"{results['date']}, commit {results['commit']}, by `perf/gpu_check`."]
    if results["emulated"]:
        lines += ["", "**A rehearsal on the processor, with tiny sizes: no figure here is one of a GPU.**"]
    lines += ["", *summary(results)]
    for part in results["parts"]:
        lines += ["", *section(part)]
    return "\n".join(lines) + "\n"
