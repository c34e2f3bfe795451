x = x.reshape(len(x), -1)
for layer in range(sum(name.startswith("hidden.") for name in tensors) // 2):
    x = x @ tensors[f"hidden.{layer}.weight"] + tensors[f"hidden.{layer}.bias"]
    if f"hidden_norms.{layer}.gamma" in tensors:
        gamma, beta, mean, variance = (tensors[f"hidden_norms.{layer}.{name}"] for name in ("gamma", "beta", "running_mean", "running_var"))
        x = (x - mean) / np.sqrt(variance + np.float32(1e-5)) * gamma + beta
    x = np.maximum(x, 0)
x = x @ tensors["output.weight"] + tensors["output.bias"]
if meta["model"].startswith(("linear", "regression")):
    x = x * np.array(json.loads(meta.get("label_deviation", "1"))) + np.array(json.loads(meta.get("label_mean", "0")))
    print(*(",".join(map(str, row)) for row in x.astype(np.float32)), sep="\n")
elif "labels" in meta:  # of several labels, which ones a row has
    print(*(",".join(map(str, row)) for row in (x > 0).astype(int)), sep="\n")
else:
    names = json.loads(meta["class_names"])
    print(*(names[row.argmax()] for row in x), sep="\n")
