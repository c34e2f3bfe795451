
cells = {"tab": "\t", "semicolon": ";", "pipe": "|", "space": " "}.get(meta.get("delimiter"), ",")
text = open(sys.argv[1], "rb").read()
text = gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text
text = io.TextIOWrapper(io.BytesIO(text), "utf-16" if text[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig").read()
if text.lstrip().startswith("{"):  # JSON lines
    objects = [json.loads(line, parse_int=str, parse_float=str) for line in text.split("\n") if line.strip()]
    keys = list(dict.fromkeys(key for row in objects for key in row))
    written = lambda value: {None: "", True: "true", False: "false"}.get(value, value)
    rows, meta["header"] = [keys] + [[written(row.get(key)) for key in keys] for row in objects], "true"
else:
    lines = io.StringIO(text)
    lines = (" ".join(line.split()) + "\n" for line in lines) if cells == " " else lines  # any blanks are one
    rows = [row for row in csv.reader(lines, delimiter=cells, skipinitialspace=True) if row]
assert all(len(row) == len(rows[0]) for row in rows), "all rows have as many cells as the first one"
names, head = json.loads(meta.get("feature_names", "[]")) or [""] * inputs, [cell.strip() for cell in rows[0]]
columns = json.loads(meta.get("columns", "[]")) or [{"name": name, "coding": "number"} for name in names]
names, width = [column["name"] for column in columns], len(columns)
drop = [int(place) for place in (meta.get("label_column") or str(width)).split(",")] if len(head) > width else []
places = [place for place in range(len(head)) if place not in drop]
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
means, deviations = np.array(json.loads(meta["means"])), np.array(json.loads(meta["deviations"]))
x = np.divide(x - means, deviations, out=np.zeros_like(x), where=(deviations > 0) & ~np.isnan(x)).astype(np.float32)
