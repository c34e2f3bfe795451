//! Keys of this machine alone, and those that only whoever starts a node reads.

use libp2p::Multiaddr;
use libp2p::multiaddr::Protocol;
use starling_engine::leaf::MAX_LEAVES;
use starling_engine::leaf::reach_search::RolePolicy;
use starling_links::TransportPolicy;
use starling_run::data::CONTEXT;
use starling_run::sharing::MAX_DATA_BYTES;
use starling_topology::PeerId;

use super::DefaultValue::{Like, None as Unset, Value as Is};
use super::run::MAX_PEERS;
use super::{FILES, Key, KeyTarget, Kind, NETWORKS, TABLES, TRAINING, VerbSet, duration};
use crate::credentials::identity::from_libp2p;
use crate::net::listen;

/// The most data that can be shared, in MiB.
const MAX_DATA_MIB: i64 = (MAX_DATA_BYTES >> 20) as i64;
/// The largest table that is held: as many numbers as a data set in memory may have.
const MAX_HELD_MIB: i64 = 16 << 10;

pub(super) static DATA: &[Key] = &[
    Key::new(
        "data.source",
        Kind::Text,
        Like("digits"),
        "digits (built in), a table (CSV or JSON lines, gzipped or not, or Parquet), an IDX file, a folder of IDX files (MNIST), a folder with \
         a folder of PNG or JPEG images for each class, tar archives of images, or for gpt a text or a folder of starling data prepare. \
         Joiners without it ask members that share the run's data.",
        KeyTarget::Machine(put!(|machine, value| machine.data = Some(value.text().to_owned()))),
    )
    .flag("--data", "SOURCE"),
    Key::new(
        "data.label",
        Kind::Text,
        Unset("the last column"),
        "CSV: the label column, by name or 0-based index; or several, separated by commas, that hold numbers.",
        KeyTarget::Machine(put!(|machine, value| machine.label = Some(value.text().to_owned()))),
    )
    .flag("--label", "COLUMN")
    .of_run(),
    Key::new(
        "data.header",
        Kind::Bool,
        Unset("detected from the first row"),
        "CSV: whether the first row holds column names.",
        KeyTarget::Machine(put!(|machine, value| machine.header = Some(value.bool()))),
    )
    .flag("--header", "BOOL")
    .negated("--no-header")
    .under(TABLES)
    .of_run(),
    Key::new(
        "data.delimiter",
        Kind::Choice(&["comma", "tab", "semicolon", "pipe", "space"]),
        Unset("detected from the first rows"),
        "CSV: what separates the cells: comma, tab, semicolon, pipe, or space for any blanks.",
        KeyTarget::Machine(|machine, value| value.parse().map(|delimiter| machine.delimiter = Some(delimiter))),
    )
    .flag("--delimiter", "NAME")
    .under(TABLES)
    .of_run(),
    Key::new(
        "data.ignore",
        Kind::Text,
        Unset("none"),
        "CSV: columns that are left out, by name or 0-based index, separated by commas.",
        KeyTarget::Machine(put!(|machine, value| machine.ignored = columns(value.text()))),
    )
    .flag("--ignore", "COLUMNS")
    .under(TABLES)
    .of_run(),
    Key::new(
        "data.categories",
        Kind::Text,
        Unset("those that hold text"),
        "CSV: columns whose cells are categories although they could be numbers, as those that hold text are.",
        KeyTarget::Machine(put!(|machine, value| machine.categories = columns(value.text()))),
    )
    .flag("--categories", "COLUMNS")
    .under(TABLES)
    .of_run(),
    Key::new(
        "data.weights",
        Kind::Text,
        Unset("each row counts 1"),
        "CSV: the column that says how much each row counts in the loss, by name or 0-based index.",
        KeyTarget::Machine(put!(|machine, value| machine.weights = Some(value.text().to_owned()))),
    )
    .flag("--weights", "COLUMN")
    .under(TABLES)
    .of_run(),
    Key::new(
        "data.split_by",
        Kind::Text,
        Unset("each row is drawn by itself"),
        "CSV: the column by which rows are held out, by name or 0-based index: all rows with the same text there, or those where it says `test`.",
        KeyTarget::Machine(put!(|machine, value| machine.split_by = Some(value.text().to_owned()))),
    )
    .flag("--split-by", "COLUMN")
    .under(TABLES)
    .of_run(),
    Key::new(
        "data.held_out_file",
        Kind::Text,
        Unset("rows are drawn, or a column says it"),
        "CSV: a file with the columns of the data, all of whose rows are held out, and none of the others.",
        KeyTarget::Machine(put!(|machine, value| machine.held_out_file = Some(value.text().into()))),
    )
    .flag("--held-out-file", "FILE")
    .under(TABLES)
    .of_run(),
    Key::new(
        "data.context",
        Kind::Integer(*CONTEXT.start() as i64, *CONTEXT.end() as i64),
        Unset("128"),
        "Text: how many tokens of it a gpt sees at once, which are bytes unless it was prepared; a sample is so many.",
        KeyTarget::Machine(put!(|machine, value| machine.context = Some(value.small()))),
    )
    .flag("--context", "TOKENS")
    .of_run(),
    Key::new(
        "data.image_size",
        Kind::Text,
        Unset("the size of the images, if all have one"),
        "Images in folders: HEIGHTxWIDTH, or one number for both; each is cropped around its middle and scaled to it.",
        KeyTarget::Machine(|machine, value| value.parse().map(|size| machine.image_size = Some(size))),
    )
    .flag("--image-size", "SIZE")
    .of_run(),
    Key::new(
        "data.share",
        Kind::Bool,
        Is("false"),
        "Whether joiners may have the files of the data set from this machine.",
        KeyTarget::Machine(put!(|machine, value| machine.share_data = value.bool())),
    )
    .flag("--share-data", "BOOL"),
    Key::new(
        "data.limit_mib",
        Kind::Integer(0, MAX_DATA_MIB),
        Is("1024"),
        "The most MiB of data that a joiner without files of its own takes from members.",
        KeyTarget::Machine(put!(|machine, value| machine.data_limit = value.count() << 20)),
    )
    .flag("--data-limit", "MIB")
    .under(TABLES),
    Key::new(
        "data.held_mib",
        Kind::Integer(0, MAX_HELD_MIB),
        Is("256"),
        "A table whose values take more MiB than these, eight bytes each, stays in its file while it is trained on.",
        KeyTarget::Machine(put!(|machine, value| machine.data_held = value.count() << 20)),
    )
    .flag("--data-held", "MIB")
    .under(TABLES),
    Key::new(
        "data.ahead_mib",
        Kind::Integer(0, MAX_HELD_MIB),
        Is("64"),
        "MiB of samples that are loaded beside what is computed, where they are read from files; 0 loads them in their turn.",
        KeyTarget::Outside,
    )
    .flag("--data-ahead", "MIB")
    .under(TABLES),
];

pub(super) static TRAIN: &[Key] = &[
    Key::new(
        "train.device",
        Kind::Text,
        Is("auto"),
        "auto (a GPU if there is one), cpu, gpu or gpu:N.",
        KeyTarget::Outside,
    )
    .flag("--device", "DEVICE"),
    Key::new(
        "train.gradient_checkpointing",
        Kind::Bool,
        Is("false"),
        "Whether some of each forward pass is computed again for backward instead of kept: less memory, more time, the same numbers.",
        KeyTarget::Outside,
    )
    .flag("--gradient-checkpointing", "BOOL")
    .under(TRAINING),
    Key::new(
        "train.data_dir",
        Kind::Text,
        Unset("starling in the user's data folder"),
        "Where identity, secrets, status and checkpoints live. One node at a time.",
        KeyTarget::Outside,
    )
    .flag("--data-dir", "DIR")
    .also(VerbSet::ALL),
    Key::new(
        "train.duty",
        Kind::Float(0.01, 1.0),
        Is("1.0"),
        "Share of the time that this machine computes: it rests after each part of a step, and the others deal it less.",
        KeyTarget::Machine(put!(|machine, value| machine.duty = value.float())),
    )
    .flag("--duty", "SHARE")
    .under(TRAINING),
    Key::new(
        "train.checkpoint_keep",
        Kind::Integer(1, 1000),
        Is("3"),
        "How many checkpoints to keep, besides the newest stable one.",
        KeyTarget::Machine(put!(|machine, value| machine.checkpoint_keep = value.small() as usize)),
    )
    .flag("--checkpoint-keep", "N")
    .also(KEPT)
    .under(FILES),
    Key::new(
        "train.update_ahead_mib",
        Kind::Integer(0, 1 << 20),
        Is("0"),
        "MiB of memory for an update that begins while its step is still being reduced, where cores are to spare. A model \
         that needs more is updated after it.",
        KeyTarget::Machine(put!(|machine, value| machine.update_ahead_bytes = value.count() << 20)),
    )
    .flag("--update-ahead", "MIB")
    .under(NETWORKS),
    Key::new(
        "train.export",
        Kind::Text,
        Unset("nothing is written"),
        "Write the trained model at the end: to this safetensors file, or, if it ends with a slash or is one already, to this folder.",
        KeyTarget::Machine(put!(|machine, value| machine.export = Some(value.text().into()))),
    )
    .flag("--export", "FILE|DIR/"),
    Key::new(
        "train.audit",
        Kind::Text,
        Unset("nothing is written"),
        "Write to this file who contributed which samples to each step; `starling audit` checks it.",
        KeyTarget::Machine(put!(|machine, value| machine.audit = Some(value.text().into()))),
    )
    .flag("--audit", "FILE")
    .under(FILES),
];

pub(super) static NETWORK: &[Key] = &[
    Key::new(
        "network.listen",
        Kind::List,
        Like("/ip4/0.0.0.0/tcp/0, /ip6/::/tcp/0"),
        "Multiaddrs to listen on, each by a flag of its own; port 0 takes any free port.",
        KeyTarget::Machine(|machine, value| {
            machine.listen = addresses(value.list())?;
            if machine.listen.is_empty() {
                return Err("give at least one address, such as /ip4/0.0.0.0/tcp/0".to_owned());
            }
            machine.listen.iter().try_for_each(|address| listen::socket(address).map(|_| ()))
        }),
    )
    .flag("--listen", "MULTIADDR")
    .also(VerbSet::KEEP),
    Key::new(
        "network.announce",
        Kind::List,
        Is(""),
        "Multiaddrs to announce besides those, each by a flag of its own, for a forwarded port.",
        KeyTarget::Machine(put!(|machine, value| machine.announce = addresses(value.list())?)),
    )
    .flag("--announce", "MULTIADDR")
    .also(VerbSet::KEEP)
    .under(NETWORKS),
    Key::new(
        "network.allow",
        Kind::List,
        Is(""),
        "Peer ids (`starling id` prints one) that may come without an invitation, each by a flag of its own; in a public run, if \
         there are any, nobody else may. Tell it to all members.",
        KeyTarget::Machine(put!(|machine, value| machine.allow = value.list().iter().map(|text| peer(text)).collect::<Result<_, _>>()?)),
    )
    .flag("--allow", "PEER")
    .under(NETWORKS),
    Key::new(
        "network.mdns",
        Kind::Bool,
        Is("false"),
        "Whether to look for peers on the local network by multicast.",
        KeyTarget::Machine(put!(|machine, value| machine.mdns = value.bool())),
    )
    .flag("--mdns", "BOOL")
    .also(VerbSet::KEEP)
    .under(NETWORKS),
    Key::new(
        "network.name",
        Kind::Text,
        Unset("the host's name; none in a public run"),
        "What people call this machine: 1 to 32 printable characters, told to the other members.",
        KeyTarget::Machine(|machine, value| value.parse().map(|name| machine.name = Some(name))),
    )
    .flag("--name", "NAME")
    .also(VerbSet::KEEP),
    Key::new(
        "network.data",
        Kind::Choice(&TransportPolicy::NAMES),
        Is("auto"),
        "How gradients travel: direct (TCP of their own), local (memory within a machine), universal (libp2p streams), \
         auto (the best of these), or plaintext (direct without encryption; all members must say so).",
        KeyTarget::Machine(|machine, value| value.parse().map(|plane| machine.data_plane = plane)),
    )
    .flag("--data-plane", "PLANE")
    .under(NETWORKS),
    Key::new(
        "network.role",
        Kind::Choice(&RolePolicy::NAMES),
        Is("member"),
        "What a joiner takes part as: member, which all other members have to be able to dial, leaf, which dials one of them and takes \
         part through it, or auto: a leaf where none of three members can dial it, until one can.",
        KeyTarget::Machine(|machine, value| value.parse().map(|role| machine.role = role)),
    )
    .flag("--role", "ROLE")
    .only(VerbSet::JOIN),
    Key::new(
        "network.leaves",
        Kind::Integer(0, MAX_LEAVES as i64),
        Is("8"),
        "How many leaves may take part through this machine; 0 takes none.",
        KeyTarget::Machine(put!(|machine, value| machine.leaves = value.small() as usize)),
    )
    .flag("--leaves", "N")
    .under(NETWORKS),
    Key::new(
        "network.max_peers",
        Kind::Integer(1, MAX_PEERS),
        Is("64"),
        "The most members a run may have.",
        KeyTarget::Machine(put!(|machine, value| machine.max_peers = value.small() as usize)),
    )
    .flag("--max-peers", "N")
    .also(VerbSet::KEEP)
    .under(NETWORKS),
    super::run::MAX_STALL,
    Key::new(
        "network.fork_after",
        Kind::Text,
        Is("2m"),
        "When members that can't reach most of the others go on without them: a duration such as 90s, 2m or 1h, or never.",
        KeyTarget::Machine(put!(|machine, value| machine.fork_after = duration::parse_or_never(value.text())?)),
    )
    .flag("--fork-after", "DURATION")
    .under(NETWORKS),
    Key::new(
        "network.probe_links",
        Kind::Bool,
        Is("true"),
        "Whether to measure how fast this machine reaches the other members, so that reductions are planned by it.",
        KeyTarget::Machine(put!(|machine, value| machine.probe_links = value.bool())),
    )
    .flag("--probe-links", "BOOL")
    .under(NETWORKS),
    Key::new(
        "network.state_rate",
        Kind::Integer(0, 1 << 20),
        Is("64"),
        "MiB of state, data and checkpoints that this machine hands out per second; 0 sets no limit.",
        KeyTarget::Machine(put!(|machine, value| machine.state_rate = value.count() << 20)),
    )
    .flag("--state-rate", "MIB")
    .also(VerbSet::KEEP)
    .under(NETWORKS),
];

pub(super) static LOG: &[Key] = &[
    Key::new(
        "log.level",
        Kind::Text,
        Is("warn"),
        "off, error, warn, info, debug or trace; or pairs such as info,libp2p=debug. Logs go to stderr.",
        KeyTarget::Outside,
    )
    .global("--verbose"),
    Key::new("log.format", Kind::Choice(&["text", "json"]), Is("text"), "text or json.", KeyTarget::Outside)
        .global("--log-format"),
];

/// Those who store checkpoints without taking part.
const KEPT: VerbSet = VerbSet(VerbSet::KEEP.0 | VerbSet::FETCH.0);

fn addresses(texts: &[String]) -> Result<Vec<Multiaddr>, String> {
    let parse = |text: &String| {
        let address = text
            .parse::<Multiaddr>()
            .map_err(|error| format!("`{text}` is no multiaddr ({error}); write one such as /ip4/0.0.0.0/tcp/4001"))?;
        match address.iter().any(|part| matches!(part, Protocol::P2p(_))) {
            true => Err(format!("`{text}` names a peer; leave out /p2p/..., this machine's peer id is added to it")),
            false => Ok(address),
        }
    };
    texts.iter().map(parse).collect()
}

fn peer(text: &str) -> Result<PeerId, String> {
    let peer = text.parse::<libp2p::PeerId>().ok().and_then(|peer| from_libp2p(&peer));
    peer.ok_or_else(|| format!("`{text}` is no peer id; `starling id` prints a machine's"))
}

/// The columns of a list.
fn columns(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|column| !column.is_empty()).map(ToOwned::to_owned).collect()
}
