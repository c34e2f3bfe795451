//! Values that a run begins with, from a file that an export or another program wrote: every byte checked before it is used.

use std::collections::BTreeSet;
use std::path::Path;

use starling_run::data::shorten;
use starling_run::{InitialOrigin, Schema};

use super::super::{ModelError, read};
use super::source::{self, Source};
use super::{Layout, llama};

/// The longest header that readers of such files take, and what says how long it is.
const MAX_HEADER_BYTES: u64 = 100_000_000 + 8;
/// What an ONNX file holds besides the numbers of weights, at most: its operations, their names, and what they compute with.
const MAX_GRAPH_BYTES: u64 = 64 << 20;
/// How exporters begin the names of constants that they made themselves.
const MADE: &str = "onnx::";
/// How many names an error repeats.
const MAX_NAMED: usize = 4;

/// The values of all parameters of `schema`, in its order, of the model in a state, or from a file: a tensor for each, by its name and in its shape in the
/// file's layout, and no other. It is a safetensors file, or a folder with such a one that was exported, whose metadata say which layout that is; where they don't, it is Burn's, or that of a
/// Llama if the tensors are called so. Or it is one that `torch.save` wrote, in PyTorch's layout, a burnpack file of Burn's, or an ONNX file, whose operations say how its
/// constants lie. Numbers of 16 bits are taken as they are.
///
/// # Errors
/// If it can't be read, is none, is cut off or changed, holds other tensors than these, others than F32, BF16 or F16, or a number that is
/// not finite. Of a safetensors or ONNX file, nothing is reserved on its word; a pickle of PyTorch's, of which a few MiB are taken, may ask for more than it
/// is long.
pub(crate) fn read_origin(origin: &InitialOrigin<'_>, schema: &Schema) -> Result<Vec<f32>, ModelError> {
    let InitialOrigin { path, state, names: renames } = *origin;
    if let Some(of) = state {
        return values(&Source::state(of, path, renames)?, Layout::Burn, path, schema);
    }
    if source::is_pytorch(path) {
        let names: Vec<String> = schema.entries().iter().filter_map(|entry| Layout::Torch.tensor(entry)).collect();
        return values(&Source::pytorch(path, &names, renames)?, Layout::Torch, path, schema);
    }
    let numbers = 4 * schema.parameters() as u64;
    if source::is_burnpack(path) {
        let names: Vec<String> = schema.entries().iter().filter_map(|entry| Layout::Burn.tensor(entry)).collect();
        let bytes = read::read(path, numbers + MAX_HEADER_BYTES)?;
        return values(&Source::burnpack(bytes, path, &names, renames)?, Layout::Burn, path, schema);
    }
    if source::is_onnx(path) {
        if !renames.is_empty() {
            let reason = "the tensors of an ONNX file are known by what its graph calls them; leave --init-map out, or save the `state_dict` with \
                          `torch.save`, and begin with that";
            return Err(ModelError::OtherWeights { path: path.to_owned(), reason: reason.to_owned() });
        }
        let bytes = read::read(path, numbers + MAX_GRAPH_BYTES)?;
        return values(&Source::onnx(&bytes, path, schema.entries())?, Layout::Burn, path, schema);
    }
    let (file, bytes) = read::file_of(path, numbers + MAX_HEADER_BYTES)?;
    read::check(path, &bytes)?;
    let source = Source::safetensors(&bytes, &file, renames)?;
    let Source::Safetensors(file) = &source else { unreachable!("invariant: it was opened as one") };
    let layout = match file.metadata.get("layout") {
        Some(name) => Layout::named(name).ok_or_else(|| ModelError::OtherWeights {
            path: path.to_owned(),
            reason: "its metadata name a `layout` that is none of `burn`, `torch` and `hf`".to_owned(),
        })?,
        None if file.tensors.iter().any(|(name, _)| name == llama::EMBEDDING) => Layout::Hf,
        None => Layout::Burn,
    };
    values(&source, layout, path, schema)
}

/// The same of a file whose tensors are called as the model's.
#[cfg(test)]
pub(super) fn read_weights(path: &Path, schema: &Schema) -> Result<Vec<f32>, ModelError> {
    read_origin(&InitialOrigin::file(path), schema)
}

/// The values of all parameters, of the tensors of a file in this layout.
fn values(source: &Source<'_>, layout: Layout, path: &Path, schema: &Schema) -> Result<Vec<f32>, ModelError> {
    let unfit = |reason: String| ModelError::OtherWeights { path: path.to_owned(), reason };
    let mut values = Vec::new();
    let mut taken = BTreeSet::new();
    for entry in schema.entries() {
        let name = layout.tensor(entry).ok_or_else(|| {
            unfit(format!("it is laid out as a Llama, in which the model's `{}` has no place", entry.path))
        })?;
        let Some(found) = source.shape(&name) else {
            let mut names = source.names();
            names.sort_by_key(|name| !name.starts_with(MADE));
            let hint = match source {
                Source::Onnx(_) if names.iter().any(|name| name.starts_with(MADE)) => {
                    "; an exporter made those that begin with `onnx::` of others: save the `state_dict` with `torch.save`, and begin with that"
                }
                Source::Onnx(_)
                    if names
                        .iter()
                        .any(|name| is_numbered(name) && schema.entries().iter().all(|it| it.path != **name)) =>
                {
                    "; its tensors are called otherwise, as a `torch.nn.Sequential` calls its layers by numbers: call the layers as the model does"
                }
                Source::Onnx(_) => {
                    "; exporters fold some tensors into others: save the `state_dict` with `torch.save`, and begin with that"
                }
                _ if name == llama::OUTPUT => "; its output is tied to its embeddings: take --tied-output true",
                _ => "",
            };
            return Err(unfit(format!("it has no tensor `{name}`; it has {}{hint}", named(names.into_iter()))));
        };
        let expected = layout.shape(entry);
        if found != expected {
            let is_turned = entry.shape.len() == 2 && found.iter().rev().eq(&expected);
            let hint = match is_turned && layout == Layout::Burn && matches!(source, Source::Safetensors(_)) {
                true => "; it is transposed: say in the file's metadata that `layout` is `torch`",
                false => "",
            };
            return Err(unfit(format!("`{name}` is {found:?}, where the model has {expected:?}{hint}")));
        }
        let numbers = source.numbers(&name).map_err(|reason| unfit(format!("`{name}` {reason}")))?;
        if numbers.len() != entry.elements() {
            return Err(unfit(format!("`{name}` is cut off")));
        }
        if numbers.iter().any(|number| !number.is_finite()) {
            return Err(unfit(format!("a number of `{name}` is not finite")));
        }
        values.extend(layout.taken(entry, numbers));
        taken.insert(name);
    }
    // What a normalization of PyTorch counts, and nothing here needs.
    let is_count = |name: &&String| layout == Layout::Torch && name.ends_with(".num_batches_tracked");
    let mut others = source.names().into_iter().filter(|name| !taken.contains(*name) && !is_count(name)).peekable();
    if others.peek().is_some() {
        let hint = match others.peek().is_some_and(|name| *name == llama::OUTPUT) {
            true => "; its output has weights of its own: leave --tied-output out",
            false => "",
        };
        return Err(unfit(format!("the model has nothing that is called {}{hint}", named(others))));
    }
    Ok(values)
}

/// Whether it is the name of a tensor of a layer that is called by a number.
fn is_numbered(name: &str) -> bool {
    name.rsplit('.').nth(1).is_some_and(|layer| layer.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Some names, as people read them. They may be a stranger's.
fn named<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let (mut told, mut more) = (Vec::new(), 0_usize);
    for name in names {
        match told.len() < MAX_NAMED {
            true => told.push(format!("`{}`", shorten(name).escape_debug())),
            false => more += 1,
        }
    }
    match (told.is_empty(), more) {
        (true, _) => "none".to_owned(),
        (false, 0) => told.join(", "),
        (false, more) => format!("{} and {more} more", told.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use safetensors::tensor::{Dtype, TensorView, serialize};
    use starling_run::manifest::schema::Entry;

    use super::*;

    fn entry(path: &str, shape: &[usize]) -> Entry {
        Entry::trained(path, shape)
    }

    fn schema() -> Schema {
        Schema::new(vec![
            entry("embedding.weight", &[2, 3]),
            entry("norm.gamma", &[2]),
            entry("output.weight", &[3, 2]),
        ])
    }

    /// A file with these tensors: their names, types, shapes and the numbers from 0 on.
    fn file(tensors: &[(&str, Dtype, &[usize])], layout: Option<&str>) -> Vec<u8> {
        let bytes: Vec<Vec<u8>> = tensors
            .iter()
            .map(|(_, dtype, shape)| {
                let count = shape.iter().product::<usize>();
                match dtype {
                    Dtype::F32 => (0..count).flat_map(|at| (at as f32).to_le_bytes()).collect(),
                    _ => vec![0; 8 * count],
                }
            })
            .collect();
        let view = |((name, dtype, shape), bytes): (&(&str, Dtype, &[usize]), &'_ Vec<u8>)| -> (String, Vec<u8>, Dtype, Vec<usize>) {
            ((*name).to_owned(), bytes.clone(), *dtype, shape.to_vec())
        };
        let owned: Vec<_> = tensors.iter().zip(&bytes).map(view).collect();
        let views = owned.iter().map(|(name, bytes, dtype, shape)| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), bytes).expect("a tensor"))
        });
        let metadata = layout.map(|layout| HashMap::from([("layout".to_owned(), layout.to_owned())]));
        serialize(views, metadata).expect("a file")
    }

    fn read(bytes: &[u8]) -> Result<Vec<f32>, String> {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("weights.safetensors");
        std::fs::write(&path, bytes).expect("written");
        read_weights(&path, &schema()).map_err(|error| error.to_string())
    }

    const F32: Dtype = Dtype::F32;
    const OURS: [(&str, Dtype, &[usize]); 3] =
        [("output.weight", F32, &[3, 2]), ("norm.gamma", F32, &[2]), ("embedding.weight", F32, &[2, 3])];

    #[test]
    fn tensors_are_taken_by_name_in_the_order_of_the_model() {
        let expected = vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(read(&file(&OURS, None)), Ok(expected.clone()));
        assert_eq!(read(&file(&OURS, Some("burn"))), Ok(expected));
    }

    #[test]
    fn linear_weights_of_pytorch_are_transposed_and_its_norms_found() {
        let theirs: [(&str, Dtype, &[usize]); 3] =
            [("embedding.weight", F32, &[2, 3]), ("norm.weight", F32, &[2]), ("output.weight", F32, &[2, 3])];
        let values = read(&file(&theirs, Some("torch"))).expect("PyTorch's");
        assert_eq!(values[..8], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 1.0]);
        assert_eq!(values[8..], [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
    }

    /// `torch.save({"epoch": 3, "state_dict": {..}}, "state_dict.pt")` of a linear weight that is a transposed view, and a counter besides.
    const OF_PYTORCH: &[u8] = include_bytes!("state_dict.pt");

    #[test]
    fn what_pytorch_saved_is_taken_and_its_counters_left() {
        let values = read(OF_PYTORCH).expect("PyTorch's");
        assert_eq!(values[..8], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 0.0, 1.0]);
        assert_eq!(values[8..], [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    }

    /// What `torch.save` would make of this pickle, without any numbers.
    fn archive(pickle: &[u8]) -> Vec<u8> {
        let mut archive = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
        let stored = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        for (name, bytes) in [("a/data.pkl", pickle), ("a/byteorder", b"little"), ("a/version", b"3\n")] {
            archive.start_file(name, stored).expect("a file");
            std::io::Write::write_all(&mut archive, bytes).expect("in memory");
        }
        archive.finish().expect("an archive").into_inner()
    }

    /// A pickle is a program: what is none of tensors is not run, and what asks for more than is there does not get it.
    #[test]
    fn a_hostile_pickle_runs_nothing_and_takes_nothing() {
        let folder = tempfile::tempdir().expect("a directory");
        let mark = folder.path().join("it ran");
        let call = |module: &str, name: &str, argument: &str| {
            let length = argument.len() as u32;
            let mut pickle = format!("\u{0}\u{0}c{module}\n{name}\nX").into_bytes();
            pickle[..2].copy_from_slice(&[0x80, 2]);
            pickle.extend([&length.to_le_bytes()[..], argument.as_bytes(), b"\x85R."].concat());
            pickle
        };
        let touch = format!("touch '{}'", mark.display());
        let write = format!("open({:?}, 'w')", mark.display().to_string());
        let (deep, long) = (1 << 20, u64::MAX.to_le_bytes());
        for pickle in [
            call("os", "system", &touch),
            call("posix", "system", &touch),
            call("builtins", "exec", &write),
            call("builtins", "eval", &write),
            call("torch._utils", "_rebuild_tensor_v2", &touch),
            // Lists in lists, and tuples in tuples.
            [b"\x80\x02", &vec![b']'; deep][..], &vec![b'a'; deep - 1], b"."].concat(),
            [b"\x80\x02)", &vec![0x85; deep][..], b"."].concat(),
            // Marks that nothing takes back, and what is not there.
            [b"\x80\x02", &vec![b'('; deep][..], b"."].concat(),
            b"\x80\x02ttttR0000.".to_vec(),
            // Texts, bytes and numbers that are longer than all there is.
            [b"\x80\x04\x8d", &long[..], b"a."].concat(),
            [b"\x80\x04\x8e", &long[..], b"a."].concat(),
            b"\x80\x02X\xff\xff\xff\xffa.".to_vec(),
            b"\x80\x02T\xff\xff\xff\x7fa.".to_vec(),
            b"\x80\x02\x8b\xff\xff\xff\x7fa.".to_vec(),
            // A value that is fetched again and again, each time twice as long.
            [b"\x80\x02X\x04\0\0\0aaaaq\0", &[&b"h\0h\0\x86q\0"[..]; 64].concat()[..], b"."].concat(),
        ] {
            let shown = String::from_utf8_lossy(&pickle[..pickle.len().min(40)]).into_owned();
            assert!(read(&archive(&pickle)).is_err(), "{shown:?}");
            assert!(!mark.exists(), "{shown:?} ran");
        }
        let large = read(&archive(&vec![b'.'; (4 << 20) + 1])).expect_err("no names are so long");
        assert!(large.contains("its pickle has 4194305 bytes"), "{large}");
    }

    /// Whatever is done to it, nothing panics, and nothing is taken that the model can't have.
    #[test]
    fn what_is_left_of_a_file_of_pytorch_is_refused_or_taken() {
        for length in 4..OF_PYTORCH.len() {
            assert!(read(&OF_PYTORCH[..length]).is_err(), "cut at {length}");
        }
        let mut generator = starling_topology::SplitMix64Generator::new(17);
        for _ in 0..3_000 {
            let mut bytes = OF_PYTORCH.to_vec();
            for _ in 0..=generator.below(4) {
                let at = 4 + generator.below(bytes.len() as u32 - 4) as usize;
                bytes[at] = generator.next_u64() as u8;
            }
            if let Ok(values) = read(&bytes) {
                assert!(values.len() == 14 && values.iter().all(|value| value.is_finite()));
            }
        }
    }

    #[test]
    fn a_llama_is_known_by_the_names_of_its_tensors() {
        let theirs: [(&str, Dtype, &[usize]); 3] = [
            ("model.embed_tokens.weight", F32, &[2, 3]),
            ("model.norm.weight", F32, &[2]),
            ("lm_head.weight", F32, &[2, 3]),
        ];
        for layout in [None, Some("hf")] {
            let values = read(&file(&theirs, layout)).expect("that of `transformers`");
            assert_eq!(values[8..], [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]);
        }
    }

    #[test]
    fn numbers_of_16_bits_are_taken_as_they_are() {
        for (dtype, one) in [(Dtype::F16, [0, 0x3c]), (Dtype::BF16, [0x80, 0x3f])] {
            let bytes = [6, 2, 6].map(|count| one.repeat(count));
            let views = OURS.iter().rev().zip(&bytes).map(|((name, _, shape), bytes)| {
                (*name, TensorView::new(dtype, shape.to_vec(), bytes).expect("a tensor"))
            });
            assert_eq!(read(&serialize(views, None).expect("a file")), Ok(vec![1.0; 14]), "{dtype:?}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let with = |at: usize, tensor: (&'static str, Dtype, &'static [usize])| {
            let mut tensors = OURS.to_vec();
            tensors[at] = tensor;
            read(&file(&tensors, None)).expect_err("does not fit")
        };
        for (error, reason) in [
            (read(&file(&OURS[1..], None)).expect_err("one is missing"), "it has no tensor `output.weight`"),
            (with(0, ("other.weight", F32, &[3, 2])), "it has no tensor `output.weight`; it has `"),
            (with(0, ("output.weight", F32, &[4, 2])), "`output.weight` is [4, 2], where the model has [3, 2]"),
            (with(0, ("output.weight", F32, &[2, 3])), "it is transposed"),
            (with(0, ("output.weight", Dtype::F64, &[3, 2])), "`output.weight` holds F64"),
            (read(&file(&OURS, Some("rows"))).expect_err("another layout"), "none of `burn`, `torch` and `hf`"),
            (
                read(&file(&OURS, Some("hf"))).expect_err("another layout"),
                "it has no tensor `model.embed_tokens.weight`",
            ),
            (read(b"").expect_err("nothing"), "no safetensors file"),
        ] {
            assert!(error.contains(reason), "{error}");
        }
        let more = [&OURS[..], &[("bad\u{1b}[2J", F32, &[1])]].concat();
        let error = read(&file(&more, None)).expect_err("one too many");
        assert!(error.contains("nothing that is called") && !error.contains('\u{1b}'), "{error}");
        let mut bytes = file(&OURS, None);
        let last = bytes.len() - 4;
        bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
        assert!(read(&bytes).expect_err("no number").contains("is not finite"));
    }

    #[test]
    fn every_truncation_and_what_a_header_makes_up_is_refused() {
        let bytes = file(&OURS, Some("burn"));
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "cut at {length}");
        }
        for announced in [u64::MAX, 1 << 40, 0, 3] {
            let mut bytes = bytes.clone();
            bytes[..8].copy_from_slice(&announced.to_le_bytes());
            assert!(read(&bytes).is_err(), "a header of {announced} bytes");
        }
        // Longer than the model's values and the longest header, though nothing of it is there.
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("hole");
        let hole = std::fs::File::create(&path).expect("created");
        hole.set_len(1 << 40).expect("a hole");
        let error = read_weights(&path, &schema()).expect_err("too long").to_string();
        assert!(error.contains("more than 100000064 bytes"), "{error}");
    }

    /// A file of Burn's with these tensors, whose numbers count from 0.
    fn burnpack(tensors: &[(&str, burn_pack::DType, &[usize])]) -> Vec<u8> {
        let tensor = |(name, dtype, shape): &(&str, burn_pack::DType, &[usize])| {
            let count = shape.iter().product::<usize>();
            let bytes: Vec<u8> = match dtype {
                burn_pack::DType::BF16 => {
                    (0..count).flat_map(|at| half::bf16::from_f32(at as f32).to_le_bytes()).collect()
                }
                burn_pack::DType::F64 => (0..count).flat_map(|at| (at as f64).to_le_bytes()).collect(),
                _ => (0..count).flat_map(|at| (at as f32).to_le_bytes()).collect(),
            };
            let bytes = burn_pack::Bytes::from_bytes_vec(bytes);
            burn_pack::Tensor::new((*name).to_owned(), *dtype, shape.to_vec(), None, bytes)
        };
        let written = burn_pack::Writer::new(tensors.iter().map(tensor).collect()).into_bytes();
        written.expect("a file").to_vec()
    }

    #[test]
    fn burns_own_files_are_read_whole_or_in_a_part() {
        use burn_pack::DType::{BF16, F32, F64};
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("model.bpk");
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).expect("written");
            read_weights(&path, &schema()).map_err(|error| error.to_string())
        };
        let counted = |length: usize| (0..length).map(|at| at as f32);
        let expected: Vec<f32> = counted(6).chain(counted(2)).chain(counted(6)).collect();
        let whole: [(&str, _, &[usize]); 3] =
            [("embedding.weight", F32, &[2, 3]), ("norm.gamma", BF16, &[2]), ("output.weight", F32, &[3, 2])];
        let good = burnpack(&whole);
        assert_eq!(read(&good), Ok(expected.clone()));
        let names = whole.map(|(name, ..)| format!("model.{name}"));
        let mut part: Vec<(&str, _, &[usize])> =
            whole.iter().zip(&names).map(|((_, dtype, shape), name)| (&**name, *dtype, *shape)).collect();
        part.push(("steps", F32, &[1]));
        assert_eq!(read(&burnpack(&part)), Ok(expected));
        for (tensors, reason) in [
            (vec![whole[0], whole[1]], "it has no tensor `output.weight`"),
            (vec![whole[0], whole[1], ("output.weight", F64, &[3, 2])], "`output.weight` holds F64"),
            (vec![whole[0], whole[1], ("output.weight", F32, &[2, 3])], "`output.weight` is [2, 3]"),
            (whole.into_iter().chain([("more", F32, &[1][..])]).collect(), "nothing that is called `more`"),
        ] {
            let error = read(&burnpack(&tensors)).expect_err("not the model's");
            assert!(error.contains(reason), "{error}");
        }
        // Cut off anywhere, or changed in its list of tensors, it is refused or has the numbers that it says.
        for length in (0..good.len()).step_by(7) {
            assert!(read(&good[..length]).is_err(), "{length} bytes");
        }
        for at in 0..300.min(good.len()) {
            let mut bad = good.clone();
            bad[at] ^= 0x55;
            if let Ok(values) = read(&bad) {
                assert!(values.len() == 14 && values.iter().all(|value| value.is_finite()), "byte {at}: {values:?}");
            }
        }
        let mut long = good;
        long[6..10].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(read(&long).expect_err("no list is so long").contains("its list of tensors has more than"));
    }
}
