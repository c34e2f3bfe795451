def convolution(x, name, norm):  # with zeros around the images, and the normalization behind it, if there is one
    weight = tensors[f"{name}.weight"]
    side, (height, width) = weight.shape[2], x.shape[2:]
    padded = np.pad(x, ((0, 0), (0, 0), (side // 2, side // 2), (side // 2, side // 2)))
    part = lambda y, z: np.einsum("ncyx,oc->noyx", padded[:, :, y : y + height, z : z + width], weight[:, :, y, z])
    x = sum(part(y, z) for y in range(side) for z in range(side)) + tensors[f"{name}.bias"][:, None, None]
    if f"{norm}.gamma" in tensors:
        gamma, beta, mean, variance = (tensors[f"{norm}.{name}"][:, None, None] for name in ("gamma", "beta", "running_mean", "running_var"))
        x = (x - mean) / np.sqrt(variance + np.float32(1e-5)) * gamma + beta
    return x


def halved(x):  # the largest of each 2x2 pixels
    height, width = x.shape[2] // 2, x.shape[3] // 2
    return x[:, :, : 2 * height, : 2 * width].reshape(*x.shape[:2], height, 2, width, 2).max((3, 5))


for layer in range(sum(name.startswith("convolutions.") for name in tensors) // 2):
    x = halved(np.maximum(convolution(x, f"convolutions.{layer}", f"convolution_norms.{layer}"), 0))
for block in range(sum(name.endswith(".first.weight") for name in tensors)):
    name, around = f"blocks.{block}", x
    if f"{name}.projection.weight" in tensors:  # the width changes
        x = halved(x) if block > 0 else x
        around = convolution(x, f"{name}.projection", f"{name}.projection_norm")
    x = np.maximum(convolution(x, f"{name}.first", f"{name}.first_norm"), 0)
    x = np.maximum(convolution(x, f"{name}.second", f"{name}.second_norm") + around, 0)
x = x.mean((2, 3)) @ tensors["output.weight"] + tensors["output.bias"]
names = json.loads(meta["class_names"])
print(*(names[row.argmax()] for row in x), sep="\n")
