import csv, json, pathlib, sys
import numpy as np
from safetensors import safe_open

with safe_open(pathlib.Path(__file__).with_name("model.safetensors"), "np") as file:
    meta, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}
inputs, label = int(np.prod([int(side) for side in meta["shape"].split(",")])), meta.get("label_column")
if open(sys.argv[1], "rb").read(4) == b"\0\0\10\3":  # IDX images
    x = np.fromfile(sys.argv[1], np.uint8, offset=16).reshape(-1, inputs).astype(float)
else:
    cells = {"tab": "\t", "semicolon": ";", "pipe": "|", "space": " "}.get(meta.get("delimiter"), ",")
    rows = [row for row in csv.reader(open(sys.argv[1], encoding="utf-8-sig", newline=""), delimiter=cells, skipinitialspace=True) if row]
    names, head = json.loads(meta.get("feature_names", "[]")), [cell.strip() for cell in rows[0]]
    drop = int(label or inputs) if len(head) > inputs else inputs
    places = [place for place in range(len(head)) if place != drop]
    if meta.get("header") == "true" and len(set(names)) == inputs:
        places = [head.index(name) for name in names]  # in whatever order they come
    x = np.array([[row[place] for place in places] for row in rows[meta.get("header") == "true" :]], float)
if meta["scaling"] == "divide":
    x = (x / float(meta["divisor"])).astype(np.float32)
else:
    means, deviations = np.array(json.loads(meta["means"])), np.array(json.loads(meta["deviations"]))
    x = np.divide(x - means, deviations, out=np.zeros_like(x), where=deviations > 0).astype(np.float32)
for layer in range(sum(name.startswith("hidden.") for name in tensors) // 2):
    x = np.maximum(x @ tensors[f"hidden.{layer}.weight"] + tensors[f"hidden.{layer}.bias"], 0)
x = x @ tensors["output.weight"] + tensors["output.bias"]
names = json.loads(meta["class_names"])
print(*(row[0] if len(row) == 1 else names[row.argmax()] for row in x), sep="\n")
