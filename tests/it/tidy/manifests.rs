//! Rules about `Cargo.toml` files.

use std::collections::{BTreeMap, BTreeSet};

use toml::{Table, Value};

/// A package and what it may be built of. Of other crates, all whose names begin like those that are named are meant too.
struct Package {
    folder: &'static str,
    /// Which of ours it may name.
    ours: &'static [&'static str],
    /// Which others it never names.
    never: &'static [&'static str],
    /// Which others it never names, and nothing brings that it is built of, its optional dependencies left out.
    nowhere: &'static [&'static str],
}

const IO: &[&str] = &["tokio", "libp2p", "futures", "async"];
const TENSORS: &[&str] = &["burn", "cubecl", "wgpu"];
const IO_AND_TENSORS: &[&str] = &["tokio", "libp2p", "futures", "async", "burn", "cubecl", "wgpu"];
/// A terminal, flags, and what only a user's files need.
const NOT_IN_NODE: &[&str] =
    &["burn", "cubecl", "wgpu", "clap", "clap_complete", "indicatif", "console", "comfy-table", "toml"];

/// `topology <- collective <- run <- engine <- node <- starling <- cli`, `collective <- links <- node` and `run <- data <- train <- starling`;
/// `node` never sees `train`, `sims` never sees `node`; `fuzz` sees all that decodes what others say, `node` too, whose decoders its
/// feature `fuzz` shows, and does no IO of its own; `tests` runs the binary and links nothing of ours but what members may say to each
/// other: hostile ones speak libp2p by themselves.
const PACKAGES: [Package; 13] = [
    Package { folder: "topology", ours: &[], never: &[], nowhere: IO_AND_TENSORS },
    Package { folder: "collective", ours: &["starling-topology"], never: &[], nowhere: IO_AND_TENSORS },
    Package {
        folder: "train/run",
        ours: &["starling-topology", "starling-collective"],
        never: &[],
        nowhere: IO_AND_TENSORS,
    },
    Package {
        folder: "train/engine",
        ours: &["starling-topology", "starling-run"],
        never: &["tempfile"],
        nowhere: IO_AND_TENSORS,
    },
    Package { folder: "train/data", ours: &["starling-topology", "starling-run"], never: IO, nowhere: IO_AND_TENSORS },
    Package {
        folder: "train",
        ours: &["starling-topology", "starling-collective", "starling-run", "starling-data"],
        never: IO,
        nowhere: &[],
    },
    Package {
        folder: "node/links",
        ours: &["starling-topology", "starling-collective"],
        never: &["anyhow"],
        nowhere: NOT_IN_NODE,
    },
    Package {
        folder: "node",
        ours: &["starling-topology", "starling-collective", "starling-run", "starling-engine", "starling-links"],
        never: &["anyhow"],
        nowhere: NOT_IN_NODE,
    },
    Package {
        folder: "node/starling",
        ours: &["starling-topology", "starling-collective", "starling-run", "starling-train", "starling-node"],
        never: &["anyhow", "clap", "indicatif"],
        nowhere: TENSORS,
    },
    Package {
        folder: "node/cli",
        ours: &[
            "starling",
            "starling-topology",
            "starling-collective",
            "starling-run",
            "starling-train",
            "starling-node",
        ],
        never: &[],
        nowhere: TENSORS,
    },
    Package {
        folder: "sims",
        ours: &["starling-topology", "starling-collective", "starling-run", "starling-engine"],
        never: &[],
        nowhere: IO_AND_TENSORS,
    },
    Package {
        folder: "fuzz",
        ours: &[
            "starling-topology",
            "starling-collective",
            "starling-run",
            "starling-engine",
            "starling-data",
            "starling-node",
        ],
        never: IO,
        nowhere: TENSORS,
    },
    Package { folder: "tests", ours: &["starling-topology"], never: TENSORS, nowhere: &[] },
];

/// What each member takes from `[workspace.package]`.
const INHERITED: [&str; 5] = ["version", "edition", "rust-version", "license", "publish"];

/// Direct dependencies that the package must not have.
pub(crate) fn dependencies(path: &str, text: &str) -> Vec<String> {
    let folder = path.strip_suffix("/Cargo.toml").unwrap_or(path);
    let Some(package) = PACKAGES.iter().find(|package| package.folder == folder) else {
        return vec![format!("{folder} has no place in the dependency order of tests/it/tidy/manifests.rs")];
    };
    let may_use = |name: &str, value: &Value| {
        let is_ours = name == "starling" || name.starts_with("starling-");
        let is_never = is_one(name, package.never) || (is_one(name, package.nowhere) && is_needed(value));
        if is_ours { package.ours.contains(&name) } else { !is_never }
    };
    let manifest = parse(text);
    let wrong = listed(&manifest, &KINDS).filter(|(name, value)| !may_use(name, value));
    wrong.map(|(name, _)| format!("must not depend on {name}")).collect()
}

/// What comes to the package with what it is built of, although it must not, and by which way. `manifests` are those of our
/// packages; of other crates the lock file says what they are built of, on whatever system.
pub(crate) fn brought(path: &str, text: &str, manifests: &[&str], lock: &str) -> Vec<String> {
    let folder = path.strip_suffix("/Cargo.toml").unwrap_or(path);
    let nowhere = PACKAGES.iter().find(|package| package.folder == folder).map_or(&[][..], |package| package.nowhere);
    let mut built_of: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in parse(lock).get("package").and_then(Value::as_array).into_iter().flatten() {
        // Behind the name there may be a version.
        let first = |text: &str| text.split(' ').next().unwrap_or_default().to_owned();
        let listed = package.get("dependencies").and_then(Value::as_array).into_iter().flatten();
        let listed = listed.filter_map(Value::as_str).map(first);
        built_of.entry(name(package).to_owned()).or_default().extend(listed);
    }
    let ours = manifests.iter().map(|text| parse(text));
    built_of.extend(ours.map(|ours| (ours.get("package").map_or("", name).to_owned(), needs(&ours))));
    let mut ways = vec![vec![parse(text).get("package").map_or("", name).to_owned()]];
    let (mut known, mut wrong) = (BTreeSet::new(), Vec::new());
    while let Some(way) = ways.pop() {
        let last = way.last().expect("invariant: a way begins with the package");
        for next in built_of.get(last).into_iter().flatten().filter(|next| known.insert((*next).clone())) {
            let way = [way.clone(), vec![next.clone()]].concat();
            match is_one(next, nowhere) {
                true => wrong.push(format!("is not to bring {next}: {}", way.join(" -> "))),
                false => ways.push(way),
            }
        }
    }
    wrong
}

/// What a member fails to take from the workspace.
pub(crate) fn inheritance(text: &str) -> Vec<String> {
    let manifest = parse(text);
    let inherits =
        |value: Option<&Value>| value.and_then(|value| value.get("workspace")) == Some(&Value::Boolean(true));
    let package = manifest.get("package");
    let missing = INHERITED.iter().filter(|key| !inherits(package.and_then(|package| package.get(*key))));
    let mut wrong: Vec<String> = missing.map(|key| format!("{key}.workspace = true is missing")).collect();
    if !inherits(manifest.get("lints")) {
        wrong.push("[lints] workspace = true is missing".to_owned());
    }
    wrong
}

/// Folders with a manifest that the workspace does not name.
pub(crate) fn membership(text: &str, folders: &[&str]) -> Vec<String> {
    let manifest = parse(text);
    let members = manifest.get("workspace").and_then(|workspace| workspace.get("members")).and_then(Value::as_array);
    let is_member = |folder: &&&str| members.is_some_and(|members| members.contains(&Value::from(**folder)));
    folders.iter().filter(|folder| !is_member(folder)).map(|folder| format!("{folder} is not a member")).collect()
}

/// What a user's program is built of besides the crate `starling`; or that it belongs to a workspace around it.
pub(crate) fn users(text: &str) -> Vec<String> {
    let manifest = parse(text);
    let others = listed(&manifest, &KINDS).filter(|(name, _)| name != "starling");
    let mut wrong: Vec<String> = others.map(|(name, _)| format!("needs {name} besides starling")).collect();
    if !manifest.contains_key("workspace") {
        wrong.push("[workspace] is missing".to_owned());
    }
    wrong
}

/// Crates of a lock file that `ours` does not have in the same build, but for those that are [so called](is_one).
pub(crate) fn other_builds(lock: &str, ours: &str, brought: &[&str]) -> Vec<String> {
    let builds = |lock: &str| -> BTreeMap<(String, String), Value> {
        let packages = parse(lock).get("package").and_then(Value::as_array).cloned().unwrap_or_default();
        let build = |package: &Value| Some((name(package).to_owned(), package.get("version")?.as_str()?.to_owned()));
        packages.into_iter().filter_map(|package| Some((build(&package)?, package.get("checksum")?.clone()))).collect()
    };
    let ours = builds(ours);
    let differs = builds(lock).into_iter().filter(|(build, checksum)| ours.get(build) != Some(checksum));
    let differs = differs.filter(|((name, _), _)| !is_one(name, brought));
    differs.map(|((name, version), _)| format!("{name} {version} is not in our lock file")).collect()
}

fn parse(text: &str) -> Table {
    text.parse().expect("a Cargo.toml is TOML")
}

/// Whether a crate is one of `others`, or is called like one with something behind it.
fn is_one(name: &str, others: &[&str]) -> bool {
    let is_like = |other: &&str| name.strip_prefix(*other).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    others.iter().any(is_like)
}

fn name(package: &Value) -> &str {
    package.get("name").and_then(Value::as_str).unwrap_or_default()
}

/// Tables of dependencies.
const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];

/// What a manifest's tables of these kinds say, those of single platforms included, by the crates' own names.
fn listed<'a>(manifest: &'a Table, kinds: &'a [&str]) -> impl Iterator<Item = (String, &'a Value)> {
    let platforms = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = platforms.filter_map(Value::as_table).chain([manifest]);
    let listed = tables.flat_map(move |table| kinds.iter().filter_map(|kind| table.get(*kind)?.as_table()));
    listed.flatten().map(|(name, value)| {
        (value.get("package").and_then(Value::as_str).map_or_else(|| name.clone(), ToOwned::to_owned), value)
    })
}

fn is_needed(value: &Value) -> bool {
    value.get("optional").and_then(Value::as_bool) != Some(true)
}

/// The crates without which it is not built.
fn needs(manifest: &Table) -> Vec<String> {
    listed(manifest, &KINDS[..1]).filter(|(_, value)| is_needed(value)).map(|(name, _)| name).collect()
}

#[test]
fn a_dependency_to_the_right_is_found() {
    let wrong = |path, text| dependencies(path, text).len();
    assert_eq!(wrong("train/Cargo.toml", "[dependencies]\nstarling-topology.workspace = true"), 0);
    assert_eq!(wrong("train/Cargo.toml", "[dev-dependencies]\nstarling-node.workspace = true"), 1);
    assert_eq!(wrong("train/run/Cargo.toml", "[dependencies]\nstarling-train.workspace = true\nburn = '1'"), 2);
    assert_eq!(wrong("sims/Cargo.toml", "[dependencies]\nstarling-node.workspace = true"), 1);
    assert_eq!(wrong("tests/Cargo.toml", "[dependencies]\nstarling-train.workspace = true"), 1);
    assert_eq!(wrong("node/Cargo.toml", "[dependencies]\nstarling-train = { workspace = true, optional = true }"), 1);
    assert_eq!(wrong("node/starling/Cargo.toml", "[dev-dependencies]\nstarling-cli.workspace = true"), 1);
    assert_eq!(wrong("newcomer/Cargo.toml", ""), 1);
}

#[test]
fn io_in_a_protocol_package_is_found() {
    let wrong = |text| dependencies("topology/Cargo.toml", text).len();
    assert_eq!(wrong("[dependencies]\nburnish = '1'\nblake3 = '1'"), 0);
    assert_eq!(wrong("[dependencies]\ntokio = '1'\nlibp2p-stream = '1'\nburn = '1'"), 3);
    assert_eq!(wrong("[target.'cfg(unix)'.dependencies]\ntokio-util = '1'"), 1);
    assert_eq!(wrong("[dependencies]\nclock = { package = 'tokio', version = '1' }"), 1);
}

#[test]
fn what_another_crate_brings_is_found() {
    let node = "[package]\nname = 'starling-node'\n[dependencies]\nstarling-run = '0'\nsmall = '1'\n";
    let run = "[package]\nname = 'starling-run'\n[dependencies]\nlarge = { version = '1', optional = true }\n";
    let lock = "[[package]]\nname = 'small'\ndependencies = ['tiny 1.0.0']\n[[package]]\nname = 'tiny'\n\
                [[package]]\nname = 'large'\ndependencies = ['burn-core']\n";
    let wrong = |node: &str, run: &str, lock: &str| brought("node/Cargo.toml", node, &[node, run], lock);
    assert_eq!(wrong(node, run, lock), Vec::<String>::new());
    let large = run.replace(", optional = true", "");
    assert_eq!(
        wrong(node, &large, lock),
        ["is not to bring burn-core: starling-node -> starling-run -> large -> burn-core"]
    );
    let lock = lock.replace("name = 'tiny'\n", "name = 'tiny'\ndependencies = ['clap']\n");
    assert_eq!(wrong(node, run, &lock).len(), 1);
    assert_eq!(wrong(&node.replace("[dep", "[dev-dep"), run, &lock), Vec::<String>::new(), "a test may");
}

#[test]
fn a_member_on_its_own_is_found() {
    let good = INHERITED.map(|key| format!("{key}.workspace = true")).join("\n");
    let good = format!("[package]\nname = 'a'\n{good}\n[lints]\nworkspace = true");
    assert_eq!(inheritance(&good), Vec::<String>::new());
    assert_eq!(inheritance("[package]\nname = 'a'\nlicense = 'MIT'").len(), INHERITED.len() + 1);
    assert_eq!(
        inheritance(&good.replace("[lints]\nworkspace = true", "[lints.rust]\nmissing_docs = 'allow'")).len(),
        1
    );
}

#[test]
fn a_user_who_needs_more_is_found() {
    let good = "[workspace]\n[dependencies]\nstarling = { path = '..' }";
    assert_eq!(users(good), Vec::<String>::new());
    assert_eq!(users("[dependencies]\nburn = '1'"), ["needs burn besides starling", "[workspace] is missing"]);
    let lock = |version: &str| format!("[[package]]\nname = 'a'\nversion = '{version}'\nchecksum = '{version}'\n");
    let ours = lock("1.0.0") + &lock("2.0.0");
    assert_eq!(other_builds(&lock("2.0.0"), &ours, &[]), Vec::<String>::new());
    assert_eq!(other_builds(&lock("3.0.0"), &ours, &["b"]), ["a 3.0.0 is not in our lock file"]);
    assert_eq!(other_builds(&lock("2.0.0").replace("checksum = '2", "checksum = '3"), &ours, &[]).len(), 1);
    assert_eq!(other_builds(&lock("3.0.0"), &ours, &["a"]), Vec::<String>::new());
}

#[test]
fn a_package_outside_of_the_workspace_is_found() {
    let text = "[workspace]\nmembers = ['node', 'sims']";
    assert_eq!(membership(text, &["node", "sims"]), Vec::<String>::new());
    assert_eq!(membership(text, &["node", "xtask"]), ["xtask is not a member"]);
}
