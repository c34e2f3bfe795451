for layer in range(sum(name.startswith("convolutions.") for name in tensors) // 2):
    weight, bias = tensors[f"convolutions.{layer}.weight"], tensors[f"convolutions.{layer}.bias"]
    (height, width), padded = x.shape[2:], np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    part = lambda y, z: np.einsum("ncyx,oc->noyx", padded[:, :, y : y + height, z : z + width], weight[:, :, y, z])
    x = sum(part(y, z) for y in range(3) for z in range(3)) + bias[:, None, None]
    if f"convolution_norms.{layer}.gamma" in tensors:
        norm = [tensors[f"convolution_norms.{layer}.{name}"][:, None, None] for name in ("gamma", "beta", "running_mean", "running_var")]
        x = (x - norm[2]) / np.sqrt(norm[3] + np.float32(1e-5)) * norm[0] + norm[1]
    x = np.maximum(x, 0)
    x = x[:, :, : height // 2 * 2, : width // 2 * 2]
    x = x.reshape(*x.shape[:2], height // 2, 2, width // 2, 2).max((3, 5))
x = x.mean((2, 3)) @ tensors["output.weight"] + tensors["output.bias"]
names = json.loads(meta["class_names"])
print(*(names[row.argmax()] for row in x), sep="\n")
