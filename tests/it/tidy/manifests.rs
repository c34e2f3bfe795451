//! Rules about `Cargo.toml` files.

use toml::{Table, Value};

/// A package, which of ours it may use, and which other crates (with all whose names begin like them) it never uses.
struct Package {
    folder: &'static str,
    ours: &'static [&'static str],
    never: &'static [&'static str],
}

const IO: &[&str] = &["tokio", "libp2p", "futures", "async"];
const TENSORS: &[&str] = &["burn", "cubecl", "wgpu"];
const IO_AND_TENSORS: &[&str] = &["tokio", "libp2p", "futures", "async", "burn", "cubecl", "wgpu"];

/// `topology <- collective <- train/run <- train <- node <- node/starling`; `sims` never sees `node`; `tests` runs the binary and links
/// nothing of ours but what members may say to each other: hostile ones speak libp2p by themselves.
const PACKAGES: [Package; 10] = [
    Package { folder: "topology", ours: &[], never: IO_AND_TENSORS },
    Package { folder: "collective", ours: &["starling-topology"], never: IO_AND_TENSORS },
    Package { folder: "train/run", ours: &["starling-topology", "starling-collective"], never: IO_AND_TENSORS },
    Package {
        folder: "train/engine",
        ours: &["starling-topology", "starling-run"],
        never: &["tokio", "libp2p", "futures", "async", "burn", "cubecl", "wgpu", "tempfile"],
    },
    Package { folder: "train", ours: &["starling-topology", "starling-collective", "starling-run"], never: IO },
    Package {
        folder: "node",
        ours: &["starling-topology", "starling-collective", "starling-run", "starling-engine", "starling-train"],
        never: &[],
    },
    Package {
        folder: "node/starling",
        ours: &["starling-topology", "starling-collective", "starling-run", "starling-train", "starling-node"],
        never: &["clap", "anyhow", "indicatif"],
    },
    Package {
        folder: "sims",
        ours: &["starling-topology", "starling-collective", "starling-run", "starling-engine"],
        never: IO_AND_TENSORS,
    },
    Package {
        folder: "fuzz",
        ours: &["starling-topology", "starling-collective", "starling-run"],
        never: IO_AND_TENSORS,
    },
    Package { folder: "tests", ours: &["starling-topology"], never: TENSORS },
];

/// What each member takes from `[workspace.package]`.
const INHERITED: [&str; 5] = ["version", "edition", "rust-version", "license", "publish"];

/// Direct dependencies that the package must not have.
pub(crate) fn dependencies(path: &str, text: &str) -> Vec<String> {
    let folder = path.strip_suffix("/Cargo.toml").unwrap_or(path);
    let Some(package) = PACKAGES.iter().find(|package| package.folder == folder) else {
        return vec![format!("{folder} has no place in the dependency order of tests/it/tidy/manifests.rs")];
    };
    let may_use = |name: &str| {
        let is_like =
            |other: &&str| name.strip_prefix(*other).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
        let is_ours = name.starts_with("starling-");
        if is_ours { package.ours.contains(&name) } else { !package.never.iter().any(is_like) }
    };
    let names = names(&parse(text));
    names.iter().filter(|name| !may_use(name)).map(|name| format!("must not depend on {name}")).collect()
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

fn parse(text: &str) -> Table {
    text.parse().expect("a Cargo.toml is TOML")
}

/// The crates that a manifest's dependency tables name, those of single platforms included.
fn names(manifest: &Table) -> Vec<String> {
    let platforms = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = platforms.filter_map(Value::as_table).chain([manifest]);
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let listed = tables.flat_map(|table| kinds.iter().filter_map(|kind| table.get(*kind)?.as_table()));
    // A renamed crate is known by its own name.
    let own_name = |(name, value): (&String, &Value)| {
        value.get("package").and_then(Value::as_str).map_or_else(|| name.clone(), ToOwned::to_owned)
    };
    listed.flatten().map(own_name).collect()
}

#[test]
fn a_dependency_to_the_right_is_found() {
    let wrong = |path, text| dependencies(path, text).len();
    assert_eq!(wrong("train/Cargo.toml", "[dependencies]\nstarling-topology.workspace = true"), 0);
    assert_eq!(wrong("train/Cargo.toml", "[dev-dependencies]\nstarling-node.workspace = true"), 1);
    assert_eq!(wrong("train/run/Cargo.toml", "[dependencies]\nstarling-train.workspace = true\nburn = '1'"), 2);
    assert_eq!(wrong("sims/Cargo.toml", "[dependencies]\nstarling-node.workspace = true"), 1);
    assert_eq!(wrong("tests/Cargo.toml", "[dependencies]\nstarling-train.workspace = true"), 1);
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
fn a_package_outside_of_the_workspace_is_found() {
    let text = "[workspace]\nmembers = ['node', 'sims']";
    assert_eq!(membership(text, &["node", "sims"]), Vec::<String>::new());
    assert_eq!(membership(text, &["node", "xtask"]), ["xtask is not a member"]);
}
