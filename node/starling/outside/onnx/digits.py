"""Writes digits.onnx: a network for the built-in digits, of random weights, as another program might have left it. Needs numpy and onnx."""

import numpy as np
from onnx import TensorProto, checker, helper, numpy_helper, save

random = np.random.default_rng(7)
weights = []


def layer(name, features, inputs, outputs):
    """A linear layer as PyTorch exports it: its weight is [outputs, inputs], and alpha and beta are said."""
    bound = inputs**-0.5
    for leaf, shape in (("weight", (outputs, inputs)), ("bias", (outputs,))):
        values = random.uniform(-bound, bound, shape).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"{name}.{leaf}"))
    inputs = [features, f"{name}.weight", f"{name}.bias"]
    return helper.make_node("Gemm", inputs, [name], name, alpha=1.0, beta=1.0, transB=1)


nodes = [
    layer("first", "pixels", 64, 32),
    helper.make_node("Tanh", ["first"], ["hidden"]),
    layer("second", "hidden", 32, 32),
    helper.make_node("Sigmoid", ["second"], ["gate"]),
    helper.make_node("Mul", ["hidden", "gate"], ["gated"]),
    helper.make_node("Add", ["hidden", "gated"], ["sum"]),
    layer("last", "sum", 32, 10),
]
tensor = lambda name, width: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["samples", width])
graph = helper.make_graph(nodes, "digits", [tensor("pixels", 64)], [tensor("last", 10)], weights)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="digits.py")
checker.check_model(model, full_check=True)
save(model, "digits.onnx")
