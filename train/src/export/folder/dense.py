import csv, gzip, json, pathlib, sys
import numpy as np
from safetensors import safe_open

with safe_open(pathlib.Path(__file__).with_name("model.safetensors"), "np") as file:
    meta, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
inputs, label = int(np.prod([int(side) for side in meta["shape"].split(",")])), meta.get("label_column")
start = open(sys.argv[1], "rb").read(4)
if start == b"\0\0\10\3":  # IDX images
    x = np.fromfile(sys.argv[1], np.uint8, offset=16).reshape(-1, inputs).astype(float)
else:
    cells = {"tab": "\t", "semicolon": ";", "pipe": "|", "space": " "}.get(meta.get("delimiter"), ",")
    text = (gzip.open if start[:2] == b"\x1f\x8b" else open)(sys.argv[1], "rt", encoding="utf-8-sig")
    lines = (" ".join(line.split()) + "\n" for line in text) if cells == " " else text  # any blanks are one
    rows = [row for row in csv.reader(lines, delimiter=cells, skipinitialspace=True) if row]
    assert all(len(row) == len(rows[0]) for row in rows), "all rows have as many cells as the first one"
    names, head = json.loads(meta.get("feature_names", "[]")) or [""] * inputs, [cell.strip() for cell in rows[0]]
    columns = json.loads(meta.get("columns", "[]")) or [{"name": name, "coding": "number"} for name in names]
    names, width = [column["name"] for column in columns], len(columns)
    drop = int(label or width) if len(head) > width else width
    places = [place for place in range(len(head)) if place != drop]
    if meta.get("header") == "true" and len(set(names)) == width:  # in whatever order they come
        places = [head.index(name) if name in head or column["coding"] != "ignored" else 0 for name, column in zip(names, columns)]

    def features(cell, coding):  # numbers, 1 where there is none, 1 for the category that it is
        gap = cell == "?" or cell.lower() in ("", "na", "n/a", "nan", "null", "none")
        if isinstance(coding, dict):
            coding["category"].index(cell)  # or it is none of them
            return [float(cell == text) for text in coding["category"]]
        return {"ignored": lambda: [], "number": lambda: [np.nan if gap else float(cell)], "gaps": lambda: [np.nan if gap else float(cell), float(gap)]}[coding]()

    data = rows[meta.get("header") == "true" :]
    x = np.array([[it for place, column in zip(places, columns) for it in features(row[place].strip(), column["coding"])] for row in data], float)
if meta["scaling"] == "divide":
    x = (x / float(meta["divisor"])).astype(np.float32)
else:
    means, deviations = np.array(json.loads(meta["means"])), np.array(json.loads(meta["deviations"]))
    x = np.divide(x - means, deviations, out=np.zeros_like(x), where=(deviations > 0) & ~np.isnan(x)).astype(np.float32)
for layer in range(sum(name.startswith("hidden.") for name in tensors) // 2):
    x = x @ tensors[f"hidden.{layer}.weight"] + tensors[f"hidden.{layer}.bias"]
    if f"hidden_norms.{layer}.gamma" in tensors:
        gamma, beta, mean, variance = (tensors[f"hidden_norms.{layer}.{name}"] for name in ("gamma", "beta", "running_mean", "running_var"))
        x = (x - mean) / np.sqrt(variance + np.float32(1e-5)) * gamma + beta
    x = np.maximum(x, 0)
x = x @ tensors["output.weight"] + tensors["output.bias"]
names, mean, deviation = json.loads(meta["class_names"]), float(meta.get("label_mean", 0)), float(meta.get("label_deviation", 1))
print(*(np.float32(float(row[0]) * deviation + mean) if len(row) == 1 else names[row.argmax()] for row in x), sep="\n")
