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

/// Weights out of graphs of other programs.
mod weights {
    use std::path::PathBuf;

    use starling_run::Schema;
    use starling_run::manifest::schema::Entry;

    use super::super::super::read_weights;
    use super::*;

    /// A hidden layer with a normalization, and one behind it whose matrix is as wide as it is high.
    fn schema() -> Schema {
        let entries = [
            ("hidden.weight", &[2, 3][..]),
            ("hidden.bias", &[3]),
            ("norm.gamma", &[3]),
            ("norm.beta", &[3]),
            ("norm.running_mean", &[3]),
            ("norm.running_var", &[3]),
            ("output.weight", &[3, 3]),
            ("output.bias", &[3]),
        ];
        Schema::new(entries.map(|(path, shape)| Entry::trained(path, shape)).to_vec())
    }

    fn tensor(name: &str, shape: &[i64], numbers: impl IntoIterator<Item = i32>) -> messages::Tensor {
        let bytes = numbers.into_iter().flat_map(|number| (number as f32).to_le_bytes()).collect();
        messages::Tensor { shape: shape.to_vec(), kind: Kind::Float as i32, name: name.to_owned(), bytes }
    }

    fn node(operator: &str, inputs: &[&str], output: &str, attributes: Vec<Attribute>) -> Node {
        Node {
            inputs: inputs.iter().map(|&input| input.to_owned()).collect(),
            outputs: vec![output.to_owned()],
            name: String::new(),
            operator: operator.to_owned(),
            attributes,
        }
    }

    fn turned() -> Vec<Attribute> {
        vec![Attribute::of_int("transB", 1)]
    }

    /// As `torch.onnx.export` writes it: matrices are turned, a variance that equals the normalization's weight is that, and there is a side of
    /// a shape.
    fn of_torch() -> Graph {
        Graph {
            nodes: vec![
                node("Identity", &["net.norm.weight"], "net.norm.running_var", Vec::new()),
                node("Gemm", &["x", "net.hidden.weight", "net.hidden.bias"], "a", turned()),
                node(
                    "BatchNormalization",
                    &["a", "net.norm.weight", "net.norm.bias", "net.norm.running_mean", "net.norm.running_var"],
                    "b",
                    Vec::new(),
                ),
                node("Gemm", &["b", "net.output.weight", "net.output.bias"], "c", turned()),
            ],
            name: "main_graph".to_owned(),
            constants: vec![
                tensor("net.hidden.weight", &[3, 2], 0..6),
                tensor("net.hidden.bias", &[3], 10..13),
                tensor("net.norm.weight", &[3], [1; 3]),
                tensor("net.norm.bias", &[3], 20..23),
                tensor("net.norm.running_mean", &[3], 30..33),
                tensor("net.output.weight", &[3, 3], 40..49),
                tensor("net.output.bias", &[3], 50..53),
                messages::Tensor {
                    shape: vec![1],
                    kind: Kind::Int64 as i32,
                    name: "onnx::Reshape_7".to_owned(),
                    bytes: vec![0; 8],
                },
            ],
            inputs: vec![Value::of_samples("x", Kind::Float, &[2])],
            outputs: vec![Value::of_samples("c", Kind::Float, &[3])],
        }
    }

    fn encoded(graph: Graph) -> Vec<u8> {
        let file = Model { format_version: FORMAT_VERSION, graph: Some(graph), ..Model::default() };
        file.encode_to_vec()
    }

    /// A message in a field of another one.
    fn framed(tag: u8, message: &[u8]) -> Vec<u8> {
        let mut field = vec![tag << 3 | 2];
        prost::encode_length_delimiter(message.len(), &mut field).expect("room");
        field.extend(message);
        field
    }

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a directory"))
        }

        fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
            let path = self.0.path().join(name);
            std::fs::write(&path, bytes).expect("written");
            path
        }

        fn read(&self, bytes: &[u8]) -> Result<Vec<f32>, String> {
            read_weights(&self.write("model.onnx", bytes), &schema()).map_err(|error| error.to_string())
        }
    }

    fn read(graph: Graph) -> Result<Vec<f32>, String> {
        Folder::new().read(&encoded(graph))
    }

    /// The values of the above, in the order of the schema and Burn's layout.
    fn expected() -> Vec<f32> {
        let numbers = [0, 2, 4, 1, 3, 5].into_iter().chain(10..13).chain([1; 3]).chain(20..23).chain(30..33);
        let numbers = numbers.chain([1; 3]).chain([40, 43, 46, 41, 44, 47, 42, 45, 48]).chain(50..53);
        numbers.map(|number| number as f32).collect()
    }

    #[test]
    fn those_of_pytorch_are_found_by_their_names_and_lie_as_its_operations_say() {
        assert_eq!(read(of_torch()), Ok(expected()));
        // A product of a transposed matrix says the same; so does one that takes it as it is, of a matrix that lies the other way.
        let adds = || node("Add", &["net.output.bias", "product"], "c", Vec::new());
        let mut graph = of_torch();
        graph.nodes[3] = node("MatMul", &["b", "swapped"], "product", Vec::new());
        graph.nodes.push(adds());
        let order = Attribute::of_ints("perm", &[1, 0]);
        graph.nodes.insert(3, node("Transpose", &["net.output.weight"], "swapped", vec![order]));
        assert_eq!(read(graph), Ok(expected()));
        let mut graph = of_torch();
        graph.nodes[3] = node("MatMul", &["b", "net.output.weight"], "product", Vec::new());
        graph.nodes.push(adds());
        graph.constants[5] = tensor("net.output.weight", &[3, 3], [40, 43, 46, 41, 44, 47, 42, 45, 48]);
        assert_eq!(read(graph), Ok(expected()));
    }

    #[test]
    fn kernels_are_those_of_convolutions() {
        let folder = Folder::new();
        let schema = Schema::new(vec![Entry::trained("conv.weight", &[2, 2, 1, 1])]);
        let graph = |operator: &str| Graph {
            nodes: vec![node(operator, &["x", "conv.weight"], "y", Vec::new())],
            constants: vec![tensor("conv.weight", &[2, 2, 1, 1], 0..4)],
            ..of_torch()
        };
        let read = |graph: Graph| {
            let path = folder.write("kernels.onnx", &encoded(graph));
            read_weights(&path, &schema).map_err(|error| error.to_string())
        };
        assert_eq!(read(graph("Conv")), Ok(vec![0.0, 1.0, 2.0, 3.0]));
        // Its kernels lie the other way.
        let error = read(graph("ConvTranspose")).expect_err("another operation");
        assert!(error.contains("`conv.weight` is no kernel that a `Conv` of its graph takes"), "{error}");
        // Of somebody else's, nobody knows what it does.
        let mut theirs = node("Conv", &["x", "conv.weight"], "y", Vec::new()).encode_to_vec();
        theirs.extend([7 << 3 | 2, 4, b'm', b'i', b'n', b'e']);
        let graph = Graph { nodes: Vec::new(), ..graph("") }.encode_to_vec();
        let path = folder.write("theirs.onnx", &framed(7, &[framed(1, &theirs), graph].concat()));
        assert!(read_weights(&path, &schema).expect_err("theirs").to_string().contains("is no kernel"));
    }

    #[test]
    fn rows_that_are_looked_up_lie_as_they_are() {
        let graph = Graph {
            nodes: vec![node("Gather", &["embedding.weight", "x"], "y", Vec::new())],
            constants: vec![tensor("embedding.weight", &[3, 3], 40..49)],
            ..of_torch()
        };
        let folder = Folder::new();
        let path = folder.write("table.onnx", &encoded(graph));
        let schema = Schema::new(vec![Entry::trained("embedding.weight", &[3, 3])]);
        let values = read_weights(&path, &schema).expect("a table");
        assert_eq!(values, (40..49).map(|number| number as f32).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_are_read_wherever_a_tensor_has_them() {
        let folder = Folder::new();
        // Of a tensor without bytes of its own, what the message has besides.
        let with = |fields: &[u8], kind: i32| {
            let mut graph = of_torch();
            graph.constants[1] = messages::Tensor { kind, bytes: Vec::new(), ..graph.constants[1].clone() };
            let mut tensor = graph.constants.remove(1).encode_to_vec();
            tensor.extend_from_slice(fields);
            framed(7, &[graph.encode_to_vec(), framed(5, &tensor)].concat())
        };
        let floats: Vec<u8> = (10..13).flat_map(|number| (number as f32).to_le_bytes()).collect();
        let packed = [&[4 << 3 | 2, 12][..], &floats].concat();
        assert_eq!(folder.read(&with(&packed, 1)), Ok(expected()));
        let single: Vec<u8> = floats.chunks(4).flat_map(|float| [&[4 << 3 | 5], float].concat()).collect();
        assert_eq!(folder.read(&with(&single, 1)), Ok(expected()));
        // 10, 11 and 12 in 16 bits: 0x4900, 0x4980, 0x4a00.
        let halves = [5 << 3 | 2, 9, 0x80, 0x92, 1, 0x80, 0x93, 1, 0x80, 0x94, 1];
        assert_eq!(folder.read(&with(&halves, 10)), Ok(expected()));

        let external = |location: &str, offset: &str, length: &str| {
            let mut fields = vec![14 << 3, 1];
            for (key, value) in [("location", location), ("offset", offset), ("length", length)] {
                let entry = Property { key: key.to_owned(), value: value.to_owned() }.encode_to_vec();
                fields.extend(framed(13, &entry));
            }
            with(&fields, 1)
        };
        folder.write("model.onnx.data", &[&[0; 4][..], &floats].concat());
        assert_eq!(folder.read(&external("model.onnx.data", "4", "12")), Ok(expected()));
        for (file, told) in [
            (
                external("model.onnx.data", "8", "12"),
                "`hidden.bias` lies in `model.onnx.data`, which ends before it does",
            ),
            (external("model.onnx.data", "4", "16"), "with 16 bytes, where it takes 12"),
            (external("model.onnx.data", "-4", "12"), "has a bad offset"),
            (external("missing.data", "0", "12"), "lies in `missing.data`, which can't be read"),
            (external("../model.onnx.data", "4", "12"), "which is no file beside the model's"),
            (external("/etc/hostname", "0", "12"), "which is no file beside the model's"),
            (external("..", "0", "12"), "which is no file beside the model's"),
            (external("", "0", "12"), "lies in another file, which is not named"),
            (with(&[], 1), "`hidden.bias` is cut off"),
            (with(&[&packed[..], &packed].concat(), 1), "`hidden.bias` has more numbers than its sides say"),
            (with(&packed, 11), "`hidden.bias` holds numbers of ONNX's kind 11"),
        ] {
            let error = folder.read(&file).expect_err("not to be read");
            assert!(error.contains(told), "{told}: {error}");
        }
    }

    #[test]
    fn what_is_none_of_the_models_or_has_no_one_meaning_is_refused_by_name() {
        let changed = |change: &dyn Fn(&mut Graph)| {
            let mut graph = of_torch();
            change(&mut graph);
            read(graph).expect_err("refused")
        };
        // What an exporter makes of the weight of a linear layer behind three sides.
        let error = changed(&|graph| {
            graph.constants[5] = tensor("onnx::MatMul_12", &[3, 3], 40..49);
            graph.nodes[3] = node("MatMul", &["b", "onnx::MatMul_12"], "c", Vec::new());
        });
        assert!(error.contains("it has no tensor `") && error.contains("it has `onnx::MatMul_12`"), "{error}");
        assert!(error.contains("save the `state_dict` with `torch.save`"), "{error}");
        let two = |graph: &mut Graph, operation: Node| graph.nodes.push(operation);
        for (error, told) in [
            (
                changed(&|graph| graph.constants.push(tensor("net.head.weight", &[3, 4], 0..12))),
                "nothing that is called `net.head.weight`",
            ),
            (
                changed(&|graph| graph.constants[0] = tensor("net.hidden.weight", &[2, 3], 0..6)),
                "`hidden.weight` is [3, 2], where the model has [2, 3]",
            ),
            (
                changed(&|graph| two(graph, node("MatMul", &["b", "net.output.weight"], "d", Vec::new()))),
                "`output.weight` is used in two ways",
            ),
            // A square one would fit either way.
            (
                changed(&|graph| {
                    graph.nodes[3] = node("Gemm", &["b", "cast", "net.output.bias"], "c", turned());
                    graph.nodes.insert(3, node("Cast", &["net.output.weight"], "cast", Vec::new()));
                }),
                "`output.weight` is no matrix that a `Gemm`, a `MatMul` or a `Gather`",
            ),
            (
                changed(&|graph| graph.nodes[3].operator = "FusedGemm".to_owned()),
                "so that nothing says which way it lies",
            ),
            (
                changed(&|graph| two(graph, node("Gather", &["net.output.weight", "places"], "d", Vec::new()))),
                "`output.weight` is used in two ways",
            ),
            (
                changed(&|graph| graph.nodes[3] = node("MatMul", &["net.output.weight", "b"], "c", Vec::new())),
                "`output.weight` is multiplied from the left",
            ),
            (
                changed(&|graph| graph.constants.push(tensor("net.output.bias", &[3], 0..3))),
                "two constants that are called `net.output.bias`",
            ),
            (
                changed(&|graph| graph.constants[6].bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes())),
                "a number of `output.bias` is not finite",
            ),
            (changed(&|graph| graph.constants[6].shape = vec![-1]), "`output.bias` is ["),
            (changed(&|graph| graph.constants[6].shape = vec![3; 9]), "more than 8 sides"),
            (changed(&|graph| graph.constants[6].shape = vec![3, 0]), "`output.bias` is [3, 0]"),
        ] {
            assert!(error.contains(told), "{told}: {error}");
        }
        let half = [&[0x0a, 5][..], b"alpha", &[0x15], &0.5_f32.to_le_bytes()].concat();
        let mut graph = of_torch();
        let scaled = [graph.nodes.pop().expect("the last").encode_to_vec(), framed(5, &half)].concat();
        let file = framed(7, &[graph.encode_to_vec(), framed(1, &scaled)].concat());
        let error = Folder::new().read(&file).expect_err("scaled");
        assert!(error.contains("`output.weight` is multiplied by a number in its graph"), "{error}");
        let both = [encoded(of_torch()), encoded(of_torch())].concat();
        assert!(Folder::new().read(&both).expect_err("two graphs").contains("it has two graphs"));
        assert!(Folder::new().read(b"").expect_err("nothing").contains("it is no ONNX file"));
    }

    /// The graph with its last layer as a product and what is done with that and the bias.
    fn behind_product(then: Vec<Node>) -> Graph {
        let mut graph = of_torch();
        graph.nodes[3] = node("MatMul", &["b", "turned"], "product", Vec::new());
        graph.nodes.insert(3, node("Transpose", &["net.output.weight"], "turned", Vec::new()));
        graph.nodes.extend(then);
        graph
    }

    #[test]
    fn a_bias_is_one_that_its_own_layer_adds() {
        let bias = "net.output.bias";
        let then = |operator: &str, inputs: &[&str]| vec![node(operator, inputs, "c", Vec::new())];
        for inputs in [["product", bias], [bias, "product"]] {
            assert_eq!(read(behind_product(then("Add", &inputs))), Ok(expected()));
        }
        // By another name of the bias, and of the product.
        let identities = ["Identity", "Identity"].into_iter().zip([(bias, "same"), ("product", "too")]);
        let mut named: Vec<Node> = identities.map(|(it, (from, to))| node(it, &[from], to, Vec::new())).collect();
        named.extend(then("Add", &["too", "same"]));
        assert_eq!(read(behind_product(named)), Ok(expected()));
        let behind = |before: Node, last: Vec<Node>| [vec![before], last].concat();
        for (nodes, told) in [
            (then("Sub", &["product", bias]), "`output.bias` is taken by `Sub` of its graph"),
            (then("Sub", &[bias, "product"]), "to be added to the product of `output`"),
            (then("Mul", &["product", bias]), "`output.bias` is taken by `Mul`"),
            (
                behind(node("Neg", &[bias], "negative", Vec::new()), then("Add", &["product", "negative"])),
                "`output.bias` is taken by `Neg`",
            ),
            (then("Relu", &["product"]), "`output.bias` is used by no operation of its graph"),
            // Of another layer's product, and of what was done to its own.
            (then("Add", &["a", bias]), "`output.bias` is taken by `Add`"),
            (
                behind(node("Relu", &["product"], "positive", Vec::new()), then("Add", &["positive", bias])),
                "`output.bias` is taken by `Add`",
            ),
            (
                behind(node("Mul", &["b", bias], "once", Vec::new()), then("Add", &["product", bias])),
                "`output.bias` is taken by `Mul`",
            ),
            (then("Concat", &["a", "b", "c", "d", "e", "f", bias]), "`output.bias` is taken by `Concat`"),
        ] {
            let error = read(behind_product(nodes)).expect_err("another model");
            assert!(error.contains(told), "{told}: {error}");
        }
        // A convolution adds its own, too.
        let folder = Folder::new();
        let entries = [("conv.weight", &[2, 1, 1, 1][..]), ("conv.bias", &[2]), ("other.bias", &[2])];
        let schema = Schema::new(entries.map(|(path, shape)| Entry::trained(path, shape)).to_vec());
        let with = |own: &str, other: &str| {
            let graph = Graph {
                nodes: vec![
                    node("Conv", &["x", "conv.weight", own], "y", Vec::new()),
                    node("Add", &["y", other], "z", Vec::new()),
                ],
                constants: vec![
                    tensor("conv.weight", &[2, 1, 1, 1], 0..2),
                    tensor("conv.bias", &[2], 2..4),
                    tensor("other.bias", &[2], 4..6),
                ],
                ..of_torch()
            };
            let path = folder.write("bias.onnx", &encoded(graph));
            read_weights(&path, &schema).expect_err("one has no layer").to_string()
        };
        assert!(with("conv.bias", "other.bias").contains("`other.bias` is taken by `Add`"));
        assert!(with("other.bias", "conv.bias").contains("`conv.bias` is taken by `Add`"));
    }

    #[test]
    fn a_normalization_has_its_parameters_in_their_places() {
        let normalization = |inputs: [&str; 4]| {
            let mut graph = of_torch();
            let inputs = inputs.map(|leaf| format!("net.norm.{leaf}"));
            let inputs: Vec<&str> = ["a"].into_iter().chain(inputs.iter().map(String::as_str)).collect();
            graph.nodes[2] = node("BatchNormalization", &inputs, "b", Vec::new());
            read(graph)
        };
        assert_eq!(normalization(["weight", "bias", "running_mean", "running_var"]), Ok(expected()));
        let error = normalization(["weight", "running_mean", "bias", "running_var"]).expect_err("exchanged");
        assert!(error.contains("`norm.beta` is taken by `BatchNormalization`"), "{error}");
        assert!(error.contains("expected in its place in a normalization"), "{error}");

        let schema = Schema::new(vec![Entry::trained("norm.gamma", &[3])]);
        let folder = Folder::new();
        let read = |nodes: Vec<Node>| {
            let graph = Graph { nodes, constants: vec![tensor("norm.weight", &[3], 0..3)], ..of_torch() };
            let path = folder.write("norm.onnx", &encoded(graph));
            read_weights(&path, &schema).map_err(|error| error.to_string())
        };
        let single = |operator: &str| vec![node(operator, &["x", "norm.weight"], "y", Vec::new())];
        // The root of the mean square, and what is divided by it.
        let root = |then: [(&str, &[&str], &str); 2]| {
            let steps: [(&str, &[&str], &str); 4] = [
                ("Mul", &["x", "x"], "square"),
                ("ReduceMean", &["square"], "mean"),
                ("Add", &["mean", "epsilon"], "more"),
                ("Sqrt", &["more"], "root"),
            ];
            let all = steps.into_iter().chain(then);
            let nodes = all.map(|(operator, inputs, output)| node(operator, inputs, output, Vec::new()));
            nodes.chain([node("Mul", &["norm.weight", "normal"], "y", Vec::new())]).collect::<Vec<_>>()
        };
        let inverse: [(&str, &[&str], &str); 2] =
            [("Reciprocal", &["root"], "inverse"), ("Mul", &["x", "inverse"], "normal")];
        let divided: [(&str, &[&str], &str); 2] = [("Div", &["x", "root"], "wide"), ("Cast", &["wide"], "normal")];
        for nodes in [single("LayerNormalization"), single("RMSNormalization"), root(inverse), root(divided)] {
            assert_eq!(read(nodes), Ok(vec![0.0, 1.0, 2.0]));
        }
        for nodes in [single("Mul"), single("Softmax"), root([inverse[0], ("Add", &["x", "inverse"], "normal")])] {
            let error = read(nodes).expect_err("no normalization");
            assert!(error.contains("`norm.gamma` is taken by `"), "{error}");
        }
    }

    /// A `Constant` that holds this tensor.
    fn constant_node(tensor: &messages::Tensor) -> Vec<u8> {
        let value = [&[0x0a, 5][..], b"value", &framed(5, &tensor.encode_to_vec())].concat();
        let operation = node("Constant", &[], &tensor.name, Vec::new()).encode_to_vec();
        framed(1, &[operation, framed(5, &value)].concat())
    }

    /// A file of a graph with more in it.
    fn with(graph: &Graph, more: &[u8]) -> Vec<u8> {
        framed(7, &[&graph.encode_to_vec()[..], more].concat())
    }

    #[test]
    fn constants_are_those_of_operations_too() {
        let folder = Folder::new();
        // A matrix and a bias of the model's, and a single number, which is none of it.
        let mut graph = of_torch();
        let mut taken = vec![graph.constants.remove(6), graph.constants.remove(5)];
        taken.push(tensor("two", &[], [2]));
        let nodes = taken.iter().flat_map(constant_node).collect::<Vec<u8>>();
        assert_eq!(folder.read(&with(&graph, &nodes)), Ok(expected()));
        // The floats of a list.
        let mut graph = of_torch();
        graph.constants.remove(6);
        let floats = (50..53).flat_map(|number| framed_float(7, number as f32)).collect::<Vec<u8>>();
        let list = [&[0x0a, 12][..], b"value_floats", &floats].concat();
        let operation = node("Constant", &[], "net.output.bias", Vec::new()).encode_to_vec();
        let listed = framed(1, &[operation, framed(5, &list)].concat());
        assert_eq!(folder.read(&with(&graph, &listed)), Ok(expected()));

        let twice = constant_node(&tensor("net.output.bias", &[3], 0..3));
        let error = folder.read(&with(&of_torch(), &twice)).expect_err("called alike");
        assert!(error.contains("two constants that are called `net.output.bias`"), "{error}");
        let layer = constant_node(&tensor("layer", &[3, 3], 0..9));
        // In a graph of an operation, as of an `If`.
        let branch =
            framed(1, &[node("If", &["x"], "y", Vec::new()).encode_to_vec(), framed(5, &framed(6, &layer))].concat());
        for more in [layer, branch] {
            let error = folder.read(&with(&of_torch(), &more)).expect_err("a layer more");
            assert!(error.contains("nothing that is called `layer`"), "{error}");
        }
        let sparse = [15 << 3 | 2, 0];
        let error = folder.read(&with(&of_torch(), &sparse)).expect_err("not read");
        assert!(error.contains("it has sparse constants"), "{error}");
    }

    /// A field of one float.
    fn framed_float(tag: u8, number: f32) -> Vec<u8> {
        [&[tag << 3 | 5][..], &number.to_le_bytes()].concat()
    }

    #[test]
    fn constants_of_other_kinds_are_weights_too_but_for_our_own_scales() {
        let with = |name: &str, shape: &[i64], kind: i32, producer: &str| {
            let mut graph = of_torch();
            let bytes = vec![0; 8 * shape.iter().product::<i64>() as usize];
            graph.constants.push(messages::Tensor { shape: shape.to_vec(), kind, name: name.to_owned(), bytes });
            let producer = producer.to_owned();
            let file = Model { format_version: FORMAT_VERSION, graph: Some(graph), producer, ..Model::default() };
            Folder::new().read(&file.encode_to_vec())
        };
        // Of 64 bits, of 8.
        for kind in [11, 3, 17] {
            let error = with("more", &[3, 3], kind, "pytorch").expect_err("a layer more");
            assert!(error.contains("nothing that is called `more`"), "{kind}: {error}");
        }
        // Places and truths, and single numbers.
        for (shape, kind) in [(&[3][..], 7), (&[3], 6), (&[3], 9), (&[], 11), (&[], 1)] {
            assert_eq!(with("more", shape, kind, "pytorch"), Ok(expected()), "{kind}");
        }
        for name in SCALES {
            assert_eq!(with(name, &[3], 11, PRODUCER), Ok(expected()));
            assert!(with(name, &[3], 11, "another").is_err_and(|error| error.contains(name)), "{name}");
        }
        assert!(with("more", &[3], 11, PRODUCER).is_err(), "of ours, too, only what scales");
    }

    /// Whatever is done to a file, nothing panics, and nothing is taken that the model can't have.
    #[test]
    fn what_is_left_of_a_file_is_refused_or_taken() {
        let (folder, whole) = (Folder::new(), encoded(of_torch()));
        let is_good = |values: &[f32]| values.len() == 33 && values.iter().all(|value| value.is_finite());
        let last = whole.len();
        assert!(folder.read(&whole).is_ok_and(|values| is_good(&values)));
        for length in 0..last {
            assert!(folder.read(&whole[..length]).is_err(), "cut at {length}");
        }
        let mut generator = starling_topology::SplitMix64Generator::new(17);
        let mut taken = 0;
        for _ in 0..3_000 {
            let mut bytes = whole.clone();
            for _ in 0..=generator.below(4) {
                let at = generator.below(bytes.len() as u32) as usize;
                bytes[at] = generator.next_u64() as u8;
            }
            if let Ok(values) = folder.read(&bytes) {
                assert!(is_good(&values));
                taken += 1;
            }
        }
        assert!(taken > 0, "changed numbers are numbers");
        // Longer than the model's values and the longest graph, though nothing of it is there.
        let path = folder.0.path().join("hole.onnx");
        std::fs::File::create(&path).expect("created").set_len(1 << 40).expect("a hole");
        let error = read_weights(&path, &schema()).expect_err("too long").to_string();
        assert!(error.contains("it has more than 67108996 bytes"), "{error}");
        // More parts than there can be, two bytes each.
        let many = (0..1 << 17).flat_map(|_| [1 << 3 | 2, 0]).collect::<Vec<u8>>();
        let file = framed(7, &many);
        let error = folder.read(&file).expect_err("too many");
        assert!(error.contains("more than 65536 operations and constants"), "{error}");
    }
}
