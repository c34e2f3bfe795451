//! The graph of an ONNX file, as far as it says what is done with constants.

use std::collections::BTreeMap;

use starling_run::data::shorten;

use super::constant::Constant;
use super::wire::{Field, Fields, NoMessage};

/// The most operations and constants of a graph.
const MAX_PARTS: usize = 1 << 16;
/// The most inputs of all operations together.
const MAX_INPUTS: usize = 1 << 18;
/// How many operations lie between a name and its constant, at most.
const MAX_LINKS: usize = 8;
/// What normalizations are called; their scale comes behind what they normalize, and what they add behind that.
const NORMALIZATIONS: [&str; 5] =
    ["BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization", "RMSNormalization"];

/// How a matrix is used, which says how it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// Its rows are looked up: as it is.
    Table,
    /// A convolution's: as it is.
    Kernel,
    /// From the right, as a matrix of inputs by outputs; or of outputs by inputs, if it is turned.
    Right { is_turned: bool },
    /// It is multiplied in another way, with what is to be said of it.
    Other(String),
}

/// A graph as it is being read, with the graphs in its operations.
#[derive(Default)]
pub(super) struct Parts<'a> {
    /// Who wrote it.
    pub(super) producer: &'a str,
    pub(super) constants: BTreeMap<String, Constant<'a>>,
    /// What comes out of an operation that computes nothing: of what, and whether that is transposed.
    pub(super) links: BTreeMap<&'a str, (&'a str, bool)>,
    /// All other operations.
    pub(super) nodes: Vec<Node<'a>>,
    /// Of which of these something is the first output.
    producers: BTreeMap<&'a str, usize>,
}

/// An operation.
#[derive(Debug, Default, Clone)]
pub(super) struct Node<'a> {
    /// Empty, if it is none of ONNX's own: what others call so may be anything.
    pub(super) operator: &'a str,
    /// Empty where there is none.
    pub(super) inputs: Vec<&'a str>,
    output: Option<&'a str>,
    attributes: Vec<&'a [u8]>,
}

/// Why a graph can't be read.
pub(super) enum Fault {
    NoMessage,
    Other(String),
}

impl From<NoMessage> for Fault {
    fn from(_: NoMessage) -> Self {
        Self::NoMessage
    }
}

impl<'a> Parts<'a> {
    /// Those of a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn read(file: &'a [u8]) -> Result<Self, Fault> {
        let (mut parts, mut graph) = (Self::default(), None);
        for field in Fields::of(file) {
            match field? {
                (2, field) => parts.producer = field.text().unwrap_or_default(),
                (7, Field::Bytes(found)) if graph.replace(found).is_some() => {
                    return Err(Fault::Other("it has two graphs".to_owned()));
                }
                _ => {}
            }
        }
        let mut graphs = vec![graph.ok_or(Fault::NoMessage)?];
        let (mut count, mut inputs) = (0, 0);
        while let Some(graph) = graphs.pop() {
            for field in Fields::of(graph) {
                let (tag @ (1 | 5 | 15), Field::Bytes(message)) = field? else { continue };
                count += 1;
                if count > MAX_PARTS {
                    return Err(Fault::Other(format!("it has more than {MAX_PARTS} operations and constants")));
                }
                match tag {
                    1 => parts.add(Node::read(message, &mut inputs, &mut graphs)?)?,
                    5 => parts.add_constant(Constant::read(message)?)?,
                    _ => return Err(sparse()),
                }
            }
        }
        Ok(parts)
    }

    fn add_constant(&mut self, (name, constant): (String, Constant<'a>)) -> Result<(), Fault> {
        let told = shorten(&name).escape_debug().to_string();
        match self.constants.insert(name, constant) {
            Some(_) => Err(Fault::Other(format!("it has two constants that are called `{told}`"))),
            None => Ok(()),
        }
    }

    fn add(&mut self, node: Node<'a>) -> Result<(), Fault> {
        match (node.operator, node.inputs.first().copied(), node.output) {
            ("Constant", _, Some(output)) => {
                if let Some(constant) = node.constant()? {
                    self.add_constant((output.to_owned(), constant))?;
                }
            }
            ("Identity", Some(input), Some(output)) => drop(self.links.insert(output, (input, false))),
            ("Transpose", Some(input), Some(output)) if node.swaps_sides() => {
                self.links.insert(output, (input, true));
            }
            _ => {
                self.producers.extend(node.output.map(|output| (output, self.nodes.len())));
                self.nodes.push(node);
            }
        }
        Ok(())
    }

    /// The constant that this is the name of, and whether it is transposed.
    pub(super) fn origin<'n>(&'n self, name: &'n str) -> Option<(&'n str, bool)> {
        self.before(name, |name| self.constants.contains_key(name))
    }

    /// The first name that is looked for, of this one and of those that it is another name of; and whether that is transposed.
    pub(super) fn before<'n>(&'n self, name: &'n str, is_sought: impl Fn(&str) -> bool) -> Option<(&'n str, bool)> {
        let (mut name, mut is_turned) = (name, false);
        for _ in 0..=MAX_LINKS {
            if is_sought(name) {
                return Some((name, is_turned));
            }
            let (before, turns) = self.links.get(name)?;
            (name, is_turned) = (before, is_turned != *turns);
        }
        None
    }

    /// The operation that this comes out of.
    pub(super) fn producer<'n>(&'n self, name: &'n str) -> Option<&'n Node<'a>> {
        let (name, _) = self.before(name, |name| self.producers.contains_key(name))?;
        self.nodes.get(*self.producers.get(name)?)
    }

    /// How each constant that is multiplied lies.
    pub(super) fn places(&self) -> BTreeMap<String, Place> {
        let mut places: BTreeMap<String, Place> = BTreeMap::new();
        let mut add = |name: &str, place: Place| {
            let known = places.entry(name.to_owned()).or_insert_with(|| place.clone());
            if *known != place {
                *known = Place::Other("is used in two ways; save its tensors with `torch.save`".to_owned());
            }
        };
        for node in &self.nodes {
            let of = |slot: usize| self.origin(node.input(slot)?);
            match node.operator {
                "Gemm" | "MatMul" => {
                    if let Some((name, _)) = of(0) {
                        let reason =
                            "is multiplied from the left, and may lie either way; save its tensors with `torch.save`";
                        add(name, Place::Other(reason.to_owned()));
                    }
                    if let Some((name, is_turned)) = of(1) {
                        add(name, node.place(is_turned));
                    }
                }
                "Conv" => {
                    if let Some((name, false)) = of(1) {
                        add(name, Place::Kernel);
                    }
                }
                "Gather" => match of(0) {
                    Some((name, false)) => add(name, Place::Table),
                    Some((name, true)) => add(name, Place::Other("has its columns looked up".to_owned())),
                    None => {}
                },
                _ => {}
            }
        }
        places
    }
}

impl<'a> Node<'a> {
    /// What of an operation tells where weights lie; the rest of it is left, but for the graphs in it. `inputs` counts those of all operations.
    fn read(message: &'a [u8], inputs: &mut usize, graphs: &mut Vec<&'a [u8]>) -> Result<Self, Fault> {
        let (mut node, mut domain) = (Self::default(), "");
        for field in Fields::of(message) {
            match field? {
                (1, field) => {
                    *inputs += 1;
                    if *inputs > MAX_INPUTS {
                        return Err(Fault::Other(format!("its operations have more than {MAX_INPUTS} inputs")));
                    }
                    node.inputs.push(field.text().unwrap_or_default());
                }
                (2, field) if node.output.is_none() => node.output = field.text(),
                (4, field) => node.operator = field.text().unwrap_or_default(),
                (7, field) => domain = field.text().unwrap_or_default(),
                (5, Field::Bytes(attribute)) => {
                    for field in Fields::of(attribute) {
                        if let (6 | 11, Field::Bytes(graph)) = field? {
                            graphs.push(graph);
                        }
                    }
                    // A product has four at most.
                    if node.attributes.len() < 4 {
                        node.attributes.push(attribute);
                    }
                }
                _ => {}
            }
        }
        if !matches!(domain, "" | "ai.onnx") {
            node.operator = "";
        }
        Ok(node)
    }

    /// What goes in there; `None` if nothing does.
    pub(super) fn input(&self, slot: usize) -> Option<&'a str> {
        self.inputs.get(slot).copied().filter(|name| !name.is_empty())
    }

    /// The parameter of a normalization that belongs there, as Burn's modules call it.
    pub(super) fn leaf(&self, slot: usize) -> Option<&'static str> {
        let leaves = ["gamma", "beta", "running_mean", "running_var"];
        let most = if self.operator == "BatchNormalization" { 4 } else { 2 };
        let is_here = NORMALIZATIONS.contains(&self.operator) && slot <= most;
        leaves.get(slot.checked_sub(1)?).copied().filter(|_| is_here)
    }

    /// The attribute of this name.
    fn attribute<T>(&self, name: &str, tag: u64, read: impl Fn(Field<'a>) -> Option<T>) -> Option<T> {
        let is_named = |it: &&&[u8]| Fields::of(it).first(1, Field::text) == Ok(Some(name));
        Fields::of(self.attributes.iter().find(is_named)?).first(tag, read).ok().flatten()
    }

    /// Of a `Constant`, what it is; `None` of a single number or text, and of several that are no weights.
    fn constant(&self) -> Result<Option<Constant<'a>>, Fault> {
        if self.attribute("sparse_value", 22, Field::bytes).is_some() {
            return Err(sparse());
        }
        if let Some(tensor) = self.attribute("value", 5, Field::bytes) {
            return Ok(Some(Constant::read(tensor)?.1));
        }
        let is_list = |it: &&&[u8]| Fields::of(it).first(1, Field::text) == Ok(Some("value_floats"));
        self.attributes.iter().find(is_list).map(|list| Constant::of_list(list)).transpose()
    }

    /// How a constant on the right of this product lies.
    fn place(&self, is_turned: bool) -> Place {
        let factor = |name| self.attribute(name, 2, |field| field.bytes()?.try_into().ok().map(f32::from_le_bytes));
        if ["alpha", "beta"].into_iter().filter_map(factor).any(|factor| factor != 1.0) {
            let reason = "is multiplied by a number in its graph, which its values would lack";
            return Place::Other(reason.to_owned());
        }
        let turns = self.attribute("transB", 3, Field::number).unwrap_or(0) != 0;
        Place::Right { is_turned: is_turned != turns }
    }

    /// Whether it swaps the sides of a matrix, as it does unless it says otherwise.
    fn swaps_sides(&self) -> bool {
        let Some(order) = self.attributes.first() else { return true };
        let sides = Fields::of(order).filter_map(|field| field.ok().filter(|(tag, _)| *tag == 8));
        let sides: Vec<Field<'_>> = sides.map(|(_, field)| field).take(3).collect();
        sides == [Field::Number(1), Field::Number(0)] || sides == [Field::Bytes(&[1, 0])]
    }
}

fn sparse() -> Fault {
    Fault::Other("it has sparse constants, which may be weights and are not read; export it with dense ones".to_owned())
}
