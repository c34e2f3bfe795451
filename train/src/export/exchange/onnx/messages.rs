//! The messages of an ONNX file, as `onnx.proto` has them: those parts that are written here.

use prost::Message;

/// The version of the format.
pub(super) const FORMAT_VERSION: i64 = 8;
/// The version of the operators.
pub(super) const OPERATORS_VERSION: i64 = 17;

/// Of which kind the numbers of a tensor are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Float = 1,
    Int64 = 7,
    Bool = 9,
    Double = 11,
}

/// Of which kind an attribute is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AttributeKind {
    Int = 2,
    Ints = 7,
}

/// A file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Model {
    #[prost(int64, tag = "1")]
    pub(super) format_version: i64,
    #[prost(string, tag = "2")]
    pub(super) producer: String,
    #[prost(string, tag = "3")]
    pub(super) producer_version: String,
    #[prost(message, optional, tag = "7")]
    pub(super) graph: Option<Graph>,
    #[prost(message, repeated, tag = "8")]
    pub(super) operators: Vec<OperatorSet>,
    #[prost(message, repeated, tag = "14")]
    pub(super) metadata: Vec<Property>,
}

/// Whose operators, and of which version.
#[derive(Clone, PartialEq, Message)]
pub(super) struct OperatorSet {
    #[prost(string, optional, tag = "1")]
    pub(super) domain: Option<String>,
    #[prost(int64, tag = "2")]
    pub(super) version: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Property {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, tag = "2")]
    pub(super) value: String,
}

/// Operations in an order in which they can be done, and what they begin with.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Graph {
    #[prost(message, repeated, tag = "1")]
    pub(super) nodes: Vec<Node>,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) constants: Vec<Tensor>,
    #[prost(message, repeated, tag = "11")]
    pub(super) inputs: Vec<Value>,
    #[prost(message, repeated, tag = "12")]
    pub(super) outputs: Vec<Value>,
}

/// An operation on tensors, which are known by their names.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(string, repeated, tag = "1")]
    pub(super) inputs: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub(super) outputs: Vec<String>,
    #[prost(string, tag = "3")]
    pub(super) name: String,
    #[prost(string, tag = "4")]
    pub(super) operator: String,
    #[prost(message, repeated, tag = "5")]
    pub(super) attributes: Vec<Attribute>,
}

/// A setting of an operation.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(int64, optional, tag = "3")]
    int: Option<i64>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    ints: Vec<i64>,
    #[prost(int32, tag = "20")]
    kind: i32,
}

impl Attribute {
    pub(super) fn of_int(name: &str, int: i64) -> Self {
        Self { name: name.to_owned(), int: Some(int), ints: Vec::new(), kind: AttributeKind::Int as i32 }
    }

    pub(super) fn of_ints(name: &str, ints: &[i64]) -> Self {
        Self { name: name.to_owned(), int: None, ints: ints.to_vec(), kind: AttributeKind::Ints as i32 }
    }
}

/// Numbers, little-endian, by rows.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Tensor {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub(super) shape: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(super) kind: i32,
    #[prost(string, tag = "8")]
    pub(super) name: String,
    #[prost(bytes = "vec", tag = "9")]
    pub(super) bytes: Vec<u8>,
}

/// What goes in, or comes out.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    kind: Option<ValueKind>,
}

impl Value {
    /// A tensor of any number of samples, whose other sides are these.
    pub(super) fn of_samples(name: &str, kind: Kind, sides: &[i64]) -> Self {
        let samples = Side { size: None, name: Some("samples".to_owned()) };
        let sides = sides.iter().map(|side| Side { size: Some(*side), name: None });
        let shape = Some(Shape { sides: [samples].into_iter().chain(sides).collect() });
        Self { name: name.to_owned(), kind: Some(ValueKind { tensor: Some(TensorKind { kind: kind as i32, shape }) }) }
    }
}

#[derive(Clone, PartialEq, Message)]
struct ValueKind {
    #[prost(message, optional, tag = "1")]
    tensor: Option<TensorKind>,
}

#[derive(Clone, PartialEq, Message)]
struct TensorKind {
    #[prost(int32, tag = "1")]
    kind: i32,
    #[prost(message, optional, tag = "2")]
    shape: Option<Shape>,
}

#[derive(Clone, PartialEq, Message)]
struct Shape {
    #[prost(message, repeated, tag = "1")]
    sides: Vec<Side>,
}

/// How long a side of a tensor is: a number, or a name for any.
#[derive(Clone, PartialEq, Message)]
struct Side {
    #[prost(int64, optional, tag = "1")]
    size: Option<i64>,
    #[prost(string, optional, tag = "2")]
    name: Option<String>,
}
