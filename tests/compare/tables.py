"""Tables as people have them, with the defaults of `starling run`, beside scikit-learn's MLP of the same size on scaled inputs: the median of five splits.

    python tables.py path/to/starling

The label is text in the first column, there is no header, and some tables have categories and gaps. Needs numpy and scikit-learn.
"""

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.impute import SimpleImputer
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

SEEDS = range(1, 6)


def known(loaded):
    names = [str(name) for name in loaded.target_names]
    return [[names[label], *row] for row, label in zip(loaded.data.tolist(), loaded.target)]


def made(seed, rows=1500):
    """Customers who leave: numbers on unlike scales, two columns of categories, gaps in a tenth of the cells of two columns, and noise."""
    draw = np.random.default_rng(seed)
    table = []
    for _ in range(rows):
        age, income, visits = draw.integers(18, 90), draw.lognormal(10, 0.7), draw.poisson(4)
        city, plan = draw.choice(["Ulm", "Bonn", "Kiel", "Trier"]), draw.choice(["basic", "plus", "pro"], p=[0.6, 0.3, 0.1])
        score = 0.03 * (age - 50) - 0.5 * (visits - 4) + {"basic": 0.8, "plus": 0.0, "pro": -1.2}[plan]
        score += {"Ulm": 0.6, "Bonn": -0.6}.get(city, 0.0) * (1 if income > 22_000 else -1) + draw.normal(0, 0.6)
        label = "leaves" if score > 0.7 else "stays" if score < -0.2 else "wavers"
        gap = lambda value: "" if draw.random() < 0.1 else value
        table.append([label, age, gap(round(income, 2)), city, gap(visits), plan])
    return table


TABLES = {
    "iris": lambda seed: known(load_iris()),
    "wine": lambda seed: known(load_wine()),
    "breast cancer": lambda seed: known(load_breast_cancer()),
    # Other customers with each seed, so that no single draw decides.
    "customers (categories, gaps)": made,
}


def ours(starling, table, seed):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(table)
        command = [starling, "run", "--data", path, "--label", "0", "--seed", str(seed), "--data-dir", Path(folder) / "data"]
        out = subprocess.run([*command, "--min-peers", "1", "--export", f"{folder}/out/", "--json"], capture_output=True, text=True)
        if out.returncode != 0:
            raise SystemExit(out.stderr)
        finished = [json.loads(line) for line in out.stdout.splitlines() if '"finished"' in line][-1]
        return finished["measures"]["accuracy"], rows_held_out(Path(folder) / "out" / "model.safetensors")


def rows_held_out(path):
    """The same rows are held out of scikit-learn's training: the export names them."""
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return np.array(json.loads(header["__metadata__"]["held_out_rows"]))


def theirs(table, held_out, seed):
    labels = np.array([row[0] for row in table])
    cells = np.array([[np.nan if cell == "" else cell for cell in row[1:]] for row in table], dtype=object)
    is_text = [any(isinstance(cell, str) for cell in column) for column in cells.T]
    numbers, texts = np.flatnonzero(~np.array(is_text)), np.flatnonzero(is_text)
    prepare = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), numbers),
            ("texts", OneHotEncoder(handle_unknown="ignore"), texts),
        ]
    )
    model = make_pipeline(prepare, MLPClassifier((64,), max_iter=1000, random_state=seed))
    training = np.setdiff1d(np.arange(len(table)), held_out)
    model.fit(cells[training], labels[training])
    return model.score(cells[held_out], labels[held_out])


def main():
    worst = 0.0
    for name, of_seed in TABLES.items():
        pairs = []
        for seed in SEEDS:
            table = of_seed(seed)
            accuracy, held_out = ours(sys.argv[1], table, seed)
            pairs.append((100 * accuracy, 100 * theirs(table, held_out, seed)))
        we, they = (median(column) for column in zip(*pairs))
        worst = max(worst, they - we)
        print(f"{name:32} starling {we:5.1f} %   scikit-learn {they:5.1f} %", flush=True)
    print(f"at most {worst:.1f} points below")


if __name__ == "__main__":
    main()
