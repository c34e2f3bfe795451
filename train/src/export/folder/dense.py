x = x.reshape(len(x), -1)
for layer in range(sum(name.startswith("hidden.") for name in tensors) // 2):
    x = x @ tensors[f"hidden.{layer}.weight"] + tensors[f"hidden.{layer}.bias"]
    if f"hidden_norms.{layer}.gamma" in tensors:
        gamma, beta, mean, variance = (tensors[f"hidden_norms.{layer}.{name}"] for name in ("gamma", "beta", "running_mean", "running_var"))
        x = (x - mean) / np.sqrt(variance + np.float32(1e-5)) * gamma + beta
    x = np.maximum(x, 0)
x = x @ tensors["output.weight"] + tensors["output.bias"]
names, mean, deviation = json.loads(meta["class_names"]), float(meta.get("label_mean", 0)), float(meta.get("label_deviation", 1))
print(*(np.float32(float(row[0]) * deviation + mean) if len(row) == 1 else names[row.argmax()] for row in x), sep="\n")
