use super::*;

/// By onnx 1.23: a graph of an `ArgMax` and a `Conv`, an input of doubles, an output of int64, a constant of two booleans and a property.
const WRITTEN_BY_ONNX: &str = "08081208737461726c696e671a05302e312e303ac4010a420a05696e7075741205636c6173731a0c4172674d617820636c61737322064172\
                               674d61782a0b0a04617869731801a001022a0f0a086b65657064696d731800a001020a2e0a01610a01621201641a06436f6e7620642204\
                               436f6e762a150a0c6b65726e656c5f736861706540034003a0010712056d6c703a322a0b080210094201634a0200015a1e0a05696e7075\
                               7412150a13080b120f0a09120773616d706c65730a020802621a0a05636c61737312110a0f0807120b0a09120773616d706c657342040a\
                               001011720e0a056d6f64656c12056d6c703a32";

#[test]
fn messages_are_those_that_onnx_writes() {
    let node = |operator: &str, inputs: &[&str], output: &str, attributes| Node {
        inputs: inputs.iter().map(|&input| input.to_owned()).collect(),
        outputs: vec![output.to_owned()],
        name: format!("{operator} {output}"),
        operator: operator.to_owned(),
        attributes,
    };
    let graph = Graph {
        nodes: vec![
            node("ArgMax", &["input"], "class", vec![Attribute::of_int("axis", 1), Attribute::of_int("keepdims", 0)]),
            node("Conv", &["a", "b"], "d", vec![Attribute::of_ints("kernel_shape", &[3, 3])]),
        ],
        name: "mlp:2".to_owned(),
        constants: vec![messages::Tensor {
            shape: vec![2],
            kind: Kind::Bool as i32,
            name: "c".to_owned(),
            bytes: vec![0, 1],
        }],
        inputs: vec![Value::of_samples(INPUT, Kind::Double, &[2])],
        outputs: vec![Value::of_samples(CLASS, Kind::Int64, &[])],
    };
    let file = Model {
        format_version: FORMAT_VERSION,
        producer: "starling".to_owned(),
        producer_version: "0.1.0".to_owned(),
        graph: Some(graph),
        operators: vec![OperatorSet { domain: Some(String::new()), version: OPERATORS_VERSION }],
        metadata: vec![Property { key: "model".to_owned(), value: "mlp:2".to_owned() }],
    };
    let bytes = file.encode_to_vec();
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(text, WRITTEN_BY_ONNX);
}
