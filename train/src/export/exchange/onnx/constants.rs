//! The weights in an ONNX file, which another program or this one wrote: its constants, by the names of a model's parameters.
//!
//! A name is that of a constant, or of what comes out of an `Identity` of one: exporters write constants of equal values once. Which way a
//! matrix lies is said by the operation that it is multiplied in. What a graph does before and behind its layers is none of the weights'
//! concern, and nothing of it becomes part of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

use starling_run::data::shorten;
use starling_run::manifest::schema::Entry;

use super::super::layout::transposed;
use super::super::{Layout, NumberFormat, source};
use super::wire::{Field, Fields, NoMessage, number};

/// The most operations and constants of a graph.
const MAX_PARTS: usize = 1 << 16;
/// The most sides of a constant.
const MAX_SIDES: usize = 8;
/// How many operations lie between a name and its constant, at most.
const MAX_LINKS: usize = 8;

/// A constant of the graph. Its numbers stay where they are until they are asked for.
#[derive(Debug)]
struct Constant<'a> {
    shape: Vec<usize>,
    kind: u64,
    message: &'a [u8],
}

/// How a matrix is used, which says how it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Its rows are looked up: as it is.
    Table,
    /// A convolution's: as it is.
    Kernel,
    /// From the right, as a matrix of inputs by outputs; or of outputs by inputs, if it is turned.
    Right { is_turned: bool },
    /// It is multiplied in another way, with what is to be said of it.
    Other(String),
}

/// The constants of a graph that are a model's parameters, in the model's own layout.
#[derive(Debug)]
pub(in crate::export::exchange) struct Constants<'a> {
    /// For external data, which lies beside the file.
    folder: PathBuf,
    all: BTreeMap<String, Constant<'a>>,
    places: BTreeMap<String, Place>,
    /// The constant of each parameter, by the parameter's path.
    found: BTreeMap<String, String>,
    /// What is none of the parameters' and could be a weight.
    others: Vec<String>,
}

/// A graph as it is being read.
#[derive(Default)]
struct Parts<'a> {
    constants: BTreeMap<String, Constant<'a>>,
    /// What comes out of an operation that computes nothing: of what, and whether that is transposed.
    links: BTreeMap<&'a str, (&'a str, bool)>,
    /// Operations that multiply, and those that look rows up.
    products: Vec<Node<'a>>,
    lookups: Vec<Node<'a>>,
    convolutions: Vec<Node<'a>>,
}

#[derive(Debug, Default, Clone)]
struct Node<'a> {
    operator: &'a str,
    inputs: [Option<&'a str>; 2],
    output: Option<&'a str>,
    attributes: Vec<&'a [u8]>,
    /// Whose operation it is; ONNX's own, if nobody is named.
    domain: &'a str,
}

impl<'a> Constants<'a> {
    /// Those in the bytes of the file at `path` for these parameters. The bytes are a file's as a whole: beside them, little more is
    /// needed than names.
    ///
    /// # Errors
    /// What is wrong with the file, as a sentence.
    pub(in crate::export::exchange) fn read(bytes: &'a [u8], path: &Path, entries: &[Entry]) -> Result<Self, String> {
        let parts = parts(bytes).map_err(|error| match error {
            Fault::NoMessage => "it is no ONNX file, or was cut off or changed".to_owned(),
            Fault::Other(reason) => reason,
        })?;
        let places = parts.places();
        let named = |layout: Layout| entries.iter().filter_map(|entry| layout.tensor(entry)).collect::<Vec<_>>();
        // A normalization's parts are called otherwise in PyTorch; all else is called alike.
        let namings = [named(Layout::Burn), named(Layout::Torch)];
        let names: BTreeSet<&str> =
            parts.constants.keys().map(String::as_str).chain(parts.links.keys().copied()).collect();
        let mut chosen = (&namings[0], String::new());
        for naming in &namings {
            if let Some(before) = source::part(naming, &names)? {
                chosen = (naming, before);
                break;
            }
        }
        let (naming, before) = chosen;
        let constant =
            |name: &String| parts.origin(&format!("{before}{name}")).map(|(constant, _)| constant.to_owned());
        let found = entries.iter().zip(naming).filter_map(|(entry, name)| Some((entry.path.clone(), constant(name)?)));
        let found: BTreeMap<String, String> = found.collect();
        let taken: BTreeSet<&String> = found.values().collect();
        let is_other = |(name, constant): &(&String, &Constant<'_>)| !taken.contains(name) && constant.may_be_weight();
        let others = parts.constants.iter().filter(is_other).map(|(name, _)| name.clone()).collect();
        let folder = path.parent().unwrap_or_else(|| Path::new("")).to_owned();
        Ok(Self { folder, all: parts.constants, places, found, others })
    }

    /// What could be a weight: first what is none of the model's, then what is, as the model calls it.
    pub(in crate::export::exchange) fn names(&self) -> Vec<&String> {
        self.others.iter().chain(self.found.keys()).collect()
    }

    fn of(&self, path: &str) -> Option<(&Constant<'a>, Option<&Place>)> {
        let name = self.found.get(path)?;
        Some((self.all.get(name)?, self.places.get(name)))
    }

    /// The shape of the parameter of this path, in the model's layout; `None` if it is not there.
    pub(in crate::export::exchange) fn shape(&self, path: &str) -> Option<Vec<usize>> {
        let (constant, place) = self.of(path)?;
        let mut shape = constant.shape.clone();
        if is_turned(&constant.shape, place) {
            shape.reverse();
        }
        Some(shape)
    }

    /// The numbers of the parameter of this path, in the model's layout, once its shape is known to be the model's.
    ///
    /// # Errors
    /// Why there are none, as the rest of a sentence about it.
    pub(in crate::export::exchange) fn numbers(&self, path: &str) -> Result<Vec<f32>, String> {
        let (constant, place) = self.of(path).ok_or("is not there")?;
        if constant.shape.len() == 2 {
            match place {
                Some(Place::Other(reason)) => return Err(reason.clone()),
                // Taken as it is, a square one of PyTorch's would be transposed, and nobody would notice.
                None => {
                    let reason = "is no matrix that a `Gemm`, a `MatMul` or a `Gather` of its graph takes as it is, so that nothing says which way it \
                                  lies; save its tensors with `torch.save`";
                    return Err(reason.to_owned());
                }
                Some(Place::Table | Place::Right { .. } | Place::Kernel) => {}
            }
        }
        if constant.shape.len() > 2 && place != Some(&Place::Kernel) {
            return Err(
                "is no kernel that a `Conv` of its graph takes as it is; save its tensors with `torch.save`".to_owned()
            );
        }
        let numbers = constant.numbers(&self.folder)?;
        Ok(if is_turned(&constant.shape, place) { transposed(&numbers, constant.shape[0]) } else { numbers })
    }
}

fn is_turned(shape: &[usize], place: Option<&Place>) -> bool {
    shape.len() == 2 && matches!(place, Some(Place::Right { is_turned: true }))
}

impl<'a> Constant<'a> {
    fn read(message: &'a [u8]) -> Result<(String, Self), Fault> {
        let (mut name, mut kind, mut shape) = ("", 0, Vec::new());
        for field in Fields::of(message) {
            match field? {
                (1, Field::Number(side)) => shape.push(side),
                (1, Field::Bytes(mut sides)) => {
                    while !sides.is_empty() && shape.len() <= MAX_SIDES {
                        shape.push(number(&mut sides).ok_or(Fault::NoMessage)?);
                    }
                }
                (2, Field::Number(found)) => kind = found,
                (8, field) => name = field.text().ok_or(Fault::NoMessage)?,
                _ => {}
            }
            if shape.len() > MAX_SIDES {
                let name = shorten(name).escape_debug().to_string();
                return Err(Fault::Other(format!("`{name}` has more than {MAX_SIDES} sides")));
            }
        }
        let shape: Result<Vec<usize>, _> = shape.into_iter().map(usize::try_from).collect();
        let shape = shape.map_err(|_| Fault::NoMessage)?;
        Ok((name.to_owned(), Self { shape, kind, message }))
    }

    /// Of which kind its numbers are, if they are those of weights.
    fn format(&self) -> Option<NumberFormat> {
        match self.kind {
            1 => Some(NumberFormat::F32),
            10 => Some(NumberFormat::F16),
            16 => Some(NumberFormat::Bf16),
            _ => None,
        }
    }

    /// Numbers of other kinds, and single ones, are what graphs compute with: sides, places, divisors.
    fn may_be_weight(&self) -> bool {
        self.format().is_some() && !self.shape.is_empty()
    }

    fn numbers(&self, folder: &Path) -> Result<Vec<f32>, String> {
        let format = self.format().ok_or_else(|| {
            format!("holds numbers of ONNX's kind {}, where FLOAT, FLOAT16 or BFLOAT16 is expected", self.kind)
        })?;
        let elements = self.shape.iter().try_fold(1_usize, |product, side| product.checked_mul(*side));
        let elements = elements.ok_or("is too large")?;
        let bytes = elements.checked_mul(format.bytes()).ok_or("is too large")?;
        if self.first(14, Field::number)? == Some(1) {
            return Ok(format.decode(&self.external(folder, bytes)?));
        }
        if let Some(raw) = self.first(9, Field::bytes)? {
            return if raw.len() == bytes { Ok(format.decode(raw)) } else { Err("is cut off".to_owned()) };
        }
        // One by one, or several in a field.
        let mut numbers = Vec::new();
        for field in Fields::of(self.message) {
            match (format, field.map_err(|NoMessage| "is cut off")?) {
                (NumberFormat::F32, (4, Field::Bytes(floats))) => numbers.extend(format.decode(floats)),
                (NumberFormat::F16 | NumberFormat::Bf16, (5, Field::Number(bits))) => {
                    numbers.extend(format.decode(&(bits as u16).to_le_bytes()));
                }
                (NumberFormat::F16 | NumberFormat::Bf16, (5, Field::Bytes(mut several))) => {
                    while !several.is_empty() {
                        let bits = number(&mut several).ok_or("is cut off")?;
                        numbers.extend(format.decode(&(bits as u16).to_le_bytes()));
                    }
                }
                _ => {}
            }
            if numbers.len() > elements {
                return Err("has more numbers than its sides say".to_owned());
            }
        }
        if numbers.len() == elements { Ok(numbers) } else { Err("is cut off".to_owned()) }
    }

    fn first<T>(&self, tag: u64, read: impl Fn(Field<'a>) -> Option<T>) -> Result<Option<T>, String> {
        Fields::of(self.message).first(tag, read).map_err(|NoMessage| "is cut off".to_owned())
    }

    /// So many bytes of a file beside the model's. Of others, and of what a link leads to elsewhere, nothing is read.
    fn external(&self, folder: &Path, bytes: usize) -> Result<Vec<u8>, String> {
        let (mut location, mut offset, mut length) = (None, 0, None);
        for field in Fields::of(self.message) {
            let Ok((13, Field::Bytes(entry))) = field else { continue };
            let of = |tag| Fields::of(entry).first(tag, Field::text).ok().flatten();
            match (of(1), of(2)) {
                (Some("location"), text) => location = text,
                (Some("offset"), text) => offset = text.and_then(|text| text.parse().ok()).ok_or("has a bad offset")?,
                (Some("length"), text) => length = text.and_then(|text| text.parse::<u64>().ok()),
                _ => {}
            }
        }
        let location = location.ok_or("lies in another file, which is not named")?;
        let told = format!("lies in `{}`", shorten(location).escape_debug());
        let mut components = Path::new(location).components();
        let (Some(Component::Normal(name)), None) = (components.next(), components.next()) else {
            return Err(format!("{told}, which is no file beside the model's"));
        };
        if length.is_some_and(|length| length != bytes as u64) {
            return Err(format!("{told} with {} bytes, where it takes {bytes}", length.unwrap_or_default()));
        }
        let path = folder.join(name);
        if std::fs::symlink_metadata(&path).is_ok_and(|found| !found.is_file()) {
            return Err(format!("{told}, which is no file of its own; if it is a link, copy it beside the model"));
        }
        let read = || {
            let mut file = File::open(&path)?;
            file.seek(SeekFrom::Start(offset))?;
            let mut held = Vec::new();
            file.take(bytes as u64).read_to_end(&mut held)?;
            Ok(held)
        };
        let held: Vec<u8> = read().map_err(|error: std::io::Error| format!("{told}, which can't be read: {error}"))?;
        match held.len() == bytes {
            true => Ok(held),
            false => Err(format!("{told}, which ends before it does")),
        }
    }
}

impl<'a> Parts<'a> {
    /// The constant that this is the name of, and whether it is transposed.
    fn origin<'n>(&'n self, name: &'n str) -> Option<(&'n str, bool)> {
        let (mut name, mut is_turned) = (name, false);
        for _ in 0..=MAX_LINKS {
            if self.constants.contains_key(name) {
                return Some((name, is_turned));
            }
            let (before, turns) = self.links.get(name)?;
            (name, is_turned) = (before, is_turned != *turns);
        }
        None
    }

    /// How each constant that is multiplied lies.
    fn places(&self) -> BTreeMap<String, Place> {
        let mut places: BTreeMap<String, Place> = BTreeMap::new();
        let mut add = |name: &str, place: Place| {
            let known = places.entry(name.to_owned()).or_insert_with(|| place.clone());
            if *known != place {
                *known = Place::Other("is used in two ways; save its tensors with `torch.save`".to_owned());
            }
        };
        for product in &self.products {
            let [left, right] = product.inputs.map(|input| self.origin(input?));
            if let Some((name, _)) = left {
                let reason = "is multiplied from the left, and may lie either way; save its tensors with `torch.save`";
                add(name, Place::Other(reason.to_owned()));
            }
            if let Some((name, is_turned)) = right {
                add(name, product.place(is_turned));
            }
        }
        for convolution in &self.convolutions {
            let [_, kernel] = convolution.inputs.map(|input| self.origin(input?));
            if let Some((name, false)) = kernel {
                add(name, Place::Kernel);
            }
        }
        for lookup in &self.lookups {
            let [table, _] = lookup.inputs.map(|input| self.origin(input?));
            match table {
                Some((name, false)) => add(name, Place::Table),
                Some((name, true)) => add(name, Place::Other("has its columns looked up".to_owned())),
                None => {}
            }
        }
        places
    }
}

impl<'a> Node<'a> {
    /// What of an operation tells where weights lie; the rest of it is left.
    fn read(message: &'a [u8]) -> Result<Self, Fault> {
        let (mut node, mut inputs) = (Self::default(), 0);
        for field in Fields::of(message) {
            match field? {
                (1, field) => {
                    if let Some(place) = node.inputs.get_mut(inputs) {
                        *place = field.text().filter(|name| !name.is_empty());
                    }
                    inputs += 1;
                }
                (2, field) if node.output.is_none() => node.output = field.text(),
                (4, field) => node.operator = field.text().unwrap_or_default(),
                (7, field) => node.domain = field.text().unwrap_or_default(),
                // A product has four at most.
                (5, Field::Bytes(attribute)) if node.attributes.len() < 4 => node.attributes.push(attribute),
                _ => {}
            }
        }
        Ok(node)
    }

    /// The attribute of this name.
    fn attribute<T>(&self, name: &str, tag: u64, read: impl Fn(Field<'a>) -> Option<T>) -> Option<T> {
        let is_named = |it: &&&[u8]| Fields::of(it).first(1, Field::text) == Ok(Some(name));
        Fields::of(self.attributes.iter().find(is_named)?).first(tag, read).ok().flatten()
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

/// Why a graph can't be read.
enum Fault {
    NoMessage,
    Other(String),
}

impl From<NoMessage> for Fault {
    fn from(_: NoMessage) -> Self {
        Self::NoMessage
    }
}

/// The constants of a file's graph, and what is done with them first.
fn parts(bytes: &[u8]) -> Result<Parts<'_>, Fault> {
    let mut graph = None;
    for field in Fields::of(bytes) {
        if let (7, Field::Bytes(found)) = field?
            && graph.replace(found).is_some()
        {
            return Err(Fault::Other("it has two graphs".to_owned()));
        }
    }
    let (mut parts, mut count) = (Parts::default(), 0);
    for field in Fields::of(graph.ok_or(Fault::NoMessage)?) {
        let (tag @ (1 | 5), Field::Bytes(message)) = field? else { continue };
        count += 1;
        if count > MAX_PARTS {
            return Err(Fault::Other(format!("it has more than {MAX_PARTS} operations and constants")));
        }
        if tag == 5 {
            let (name, constant) = Constant::read(message)?;
            let told = shorten(&name).escape_debug().to_string();
            if parts.constants.insert(name, constant).is_some() {
                return Err(Fault::Other(format!("it has two constants that are called `{told}`")));
            }
            continue;
        }
        let node = Node::read(message)?;
        // What others call so may be anything.
        if !matches!(node.domain, "" | "ai.onnx") {
            continue;
        }
        match (node.operator, node.inputs[0], node.output) {
            ("Identity", Some(input), Some(output)) => drop(parts.links.insert(output, (input, false))),
            ("Transpose", Some(input), Some(output)) if node.swaps_sides() => {
                parts.links.insert(output, (input, true));
            }
            ("Gemm" | "MatMul", ..) => parts.products.push(node),
            ("Gather", ..) => parts.lookups.push(node),
            ("Conv", ..) => parts.convolutions.push(node),
            _ => {}
        }
    }
    Ok(parts)
}
