//! Layers, their precedence, and what the errors say.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use starling::optimizer::REGISTRY;
use starling::{DecayKind, ExpectedSettings, OptimizerSpec, ResumePolicy, RunLimit, Schedule, Settings, Target};
use starling_node::settings::keys::{DefaultValue, Key, Kind, Value, keys};

use super::*;

const FILE: &str = "/etc/starling.toml";

fn flag(key: &'static str, flag: &'static str, value: &str) -> FlagValue {
    FlagValue { key, flag, values: vec![value.to_owned()] }
}

fn variable(name: &str, value: &str) -> (OsString, OsString) {
    (name.into(), value.into())
}

fn load(file: &str, variables: &[(&str, &str)], flags: &[FlagValue]) -> Result<Loaded, ConfigError> {
    let mut layers = Layers::new();
    layers.file(Path::new(FILE), file)?;
    layers.variables(variables.iter().map(|(name, value)| variable(name, value)))?;
    layers.flags(flags)?;
    Ok(layers.finish())
}

/// The value of a key that has one.
fn value(loaded: &Loaded, key: &str) -> Value {
    loaded.values()[key].clone()
}

fn file_error(file: &str) -> String {
    load(file, &[], &[]).expect_err("a bad file").to_string()
}

fn flag_error(key: &'static str, value: &str) -> String {
    load("", &[], &[flag(key, "--flag", value)]).expect_err("a bad flag").to_string()
}

fn with_flag(key: &'static str, value: &str) -> Loaded {
    load("", &[], &[flag(key, "--flag", value)]).expect("a flag of the right type")
}

#[test]
fn each_layer_goes_over_the_one_below_and_is_remembered() {
    let file = "[run]\nsteps = 1\nseed = 1\nbatch_size = 1\n";
    let variables = [("STARLING_RUN_STEPS", "2"), ("STARLING_RUN_SEED", "2")];
    let loaded = load(file, &variables, &[flag("run.steps", "--steps", "3")]).expect("good layers");
    let values = ["run.steps", "run.seed", "run.batch_size", "run.held_out"].map(|key| value(&loaded, key));
    assert_eq!(values, [Value::Integer(3), Value::Integer(2), Value::Integer(1), Value::Float(0.2)]);
    assert_eq!(*loaded.origin("run.steps"), Origin::Flag("--steps"));
    assert_eq!(*loaded.origin("run.seed"), Origin::Variable("STARLING_RUN_SEED".to_owned()));
    assert_eq!(*loaded.origin("run.batch_size"), Origin::File(PathBuf::from(FILE), 4));
    assert_eq!(*loaded.origin("run.held_out"), Origin::Default);
}

#[test]
fn without_layers_there_are_the_defaults() {
    let loaded = load("", &[], &[]).expect("nothing");
    assert_eq!(*loaded.values(), keys().filter_map(|key| Some((key.id, key.value()?))).collect());
    assert!(keys().all(|key| *loaded.origin(key.id) == Origin::Default));
}

#[test]
fn an_unknown_name_is_refused_with_its_line_and_a_suggestion() {
    for (file, parts) in [
        ("[run]\n\nstepz = 1", vec![":3: there is no key `run.stepz`", "did you mean `run.steps`?"]),
        ("[run]\ndevice = \"cpu\"", vec![":2: there is no key `run.device`", "did you mean `train.device`?"]),
        ("[runn]\nsteps = 1", vec![":1: there is no section `runn`", "did you mean `run`?"]),
        ("\nsteps = 1", vec![":2: there is no section `steps`"]),
        ("[run]\nqwertyuiop = 1", vec![":2: there is no key `run.qwertyuiop`", "config show"]),
    ] {
        let error = file_error(file);
        for part in parts {
            assert!(error.contains(part) && error.starts_with(FILE), "{part} is missing from: {error}");
        }
    }
    assert!(!file_error("[run]\nqwertyuiop = 1").contains("did you mean"));
    let error = load("", &[("STARLING_RUN_STEP", "1")], &[]).expect_err("unknown").to_string();
    assert!(error.contains("variable `STARLING_RUN_STEP` (did you mean `STARLING_RUN_STEPS`?)"), "{error}");
}

#[test]
fn other_variables_are_not_ours() {
    let loaded = load("", &[("STARLINGS", "1"), ("PATH", "x"), ("STARLING_CONFIG", "file")], &[]);
    assert_eq!(loaded.expect("nothing of ours").values(), Layers::new().finish().values());
}

#[test]
fn a_wrong_value_is_refused_with_key_origin_and_what_could_be() {
    for (file, parts) in [
        ("[run]\nsteps = \"many\"", vec![":2: run.steps is `many`", "a whole number from 1"]),
        (
            "[run]\nsteps = \"8\"",
            vec!["run.steps is `8`", "a whole number from 1 to 999999999999; write it without quotes"],
        ),
        ("[run]\npublic = \"true\"", vec!["true or false; write it without quotes"]),
        ("[run]\nlearning_rate = 1e30", vec!["run.learning_rate is 1e30, but must be a number from 1e-12 to 1000"]),
        ("[run]\nseed = -1", vec!["from 0 to 9223372036854775807"]),
        ("[run]\nsteps = 0", vec!["run.steps is 0", "from 1 to 999999999999"]),
        ("[run]\nsteps = 1.5", vec!["run.steps is 1.5"]),
        ("[run]\npublic = 1", vec!["run.public is 1", "true or false"]),
        ("[run]\nheld_out = 1.0", vec!["run.held_out is 1.0", "from 0.001 to 0.9"]),
        ("[run]\nmomentum = nan", vec!["run.momentum is nan", "from 0 to 0.9999"]),
        ("[run]\noptimizer = \"adamax\"", vec!["run.optimizer is `adamax`", "one of sgd, momentum, nesterov, adam"]),
        ("[run]\nclip = 0", vec!["run.clip is 0", "a number from 1e-6 to 1000000"]),
        ("[run]\nwarm_up = -1", vec!["run.warm_up is -1", "a whole number from 0"]),
        ("[network]\nlisten = \"/ip4/0.0.0.0/tcp/0\"", vec!["network.listen", "a list of texts"]),
        ("[network]\nlisten = [1]", vec!["network.listen is [1]"]),
        ("[data]\nlabel = \"\"", vec!["data.label is ``", "not empty"]),
        ("[run]\nsteps = { a = 1 }", vec!["run.steps is", "a whole number"]),
    ] {
        let error = file_error(file);
        for part in parts {
            assert!(error.contains(part), "{part} is missing from: {error}");
        }
    }
    let error = load("", &[("STARLING_RUN_STEPS", "-5")], &[]).expect_err("negative").to_string();
    assert_eq!(error, "STARLING_RUN_STEPS: run.steps is -5, but must be a whole number from 1 to 999999999999");
    assert!(flag_error("run.learning_rate", "fast").contains("--flag: run.learning_rate is `fast`"));
}

#[test]
fn text_that_is_no_toml_is_refused_with_its_line() {
    for file in ["[run]\nsteps = \n", "[run]\nsteps 1\n", "[run\n", "[run]\nsteps = 1\nsteps = 2\n"] {
        let error = file_error(file);
        assert!(error.starts_with(&format!("{FILE}:")) && !error.contains('\n'), "{error}");
    }
    assert!(file_error("[run]\nsteps = 1\nsteps = 2\n").starts_with(&format!("{FILE}:3:")));
}

#[test]
fn a_file_that_can_not_be_read_is_named() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let missing = dir.path().join("none.toml");
    let error = Layers::load(Some(&missing), [], &[]).expect_err("missing").to_string();
    assert!(error.contains("none.toml"), "{error}");
    let large = dir.path().join("large.toml");
    std::fs::write(&large, " ".repeat((1 << 20) + 1)).expect("written");
    let error = Layers::load(Some(&large), [], &[]).expect_err("large").to_string();
    assert!(error.contains("larger than 1 MiB"), "{error}");
}

#[test]
fn variables_and_flags_hold_lists() {
    let listen = ("STARLING_NETWORK_LISTEN", "/ip4/127.0.0.1/tcp/1, /ip4/127.0.0.1/tcp/2");
    let loaded = load("", &[listen], &[]).expect("a list");
    assert_eq!(value(&loaded, "network.listen").list(), ["/ip4/127.0.0.1/tcp/1", "/ip4/127.0.0.1/tcp/2"]);
    assert_eq!(loaded.settings().expect("good addresses").listen.len(), 2);
}

#[test]
fn a_whole_number_will_do_for_a_number() {
    let loaded = load("[run]\nweight_decay = 1\n", &[("STARLING_RUN_MOMENTUM", "0")], &[]).expect("numbers");
    let values = ["run.weight_decay", "run.momentum"].map(|key| value(&loaded, key));
    assert_eq!(values, [Value::Float(1.0), Value::Float(0.0)]);
}

#[test]
fn every_optimizer_is_reached_with_its_own_settings_and_others() {
    for row in REGISTRY {
        let founding = with_flag("run.optimizer", row.name).founding(ResumePolicy::Fresh).expect("good");
        assert_eq!(Some(founding.run.optimizer), OptimizerSpec::named(row.name));
        for setting in row.optimizer.settings() {
            let key = Key::find(&format!("run.{}", setting.name));
            let key = key.unwrap_or_else(|| panic!("no key sets {} of {}", setting.name, row.name));
            assert!(matches!(key.kind, Kind::Float(least, most) if (least, most) == (setting.least, setting.most)));
            let flags = [flag("run.optimizer", "--optimizer", row.name), flag(key.id, "--flag", "0.125")];
            let founding = load("", &[], &flags).expect("good").founding(ResumePolicy::Fresh).expect("good");
            let expected = OptimizerSpec::named(row.name).map(|spec| spec.with(setting.name, 0.125));
            assert_eq!(Some(founding.run.optimizer), expected);
        }
    }
}

#[test]
fn the_documentation_names_every_optimizer_with_its_settings() {
    let text = include_str!("../../../../docs/configuration.md");
    for row in REGISTRY {
        let line = text.lines().find(|line| line.starts_with(&format!("| `{}` |", row.name)));
        let line = line.unwrap_or_else(|| panic!("{} has no row", row.name));
        let settings = row.optimizer.settings().iter();
        let settings: Vec<_> = settings.map(|setting| format!("`{}` {:?}", setting.name, setting.default)).collect();
        assert!(line.ends_with(&format!("| {} |", settings.join(", "))), "{settings:?} are not in {line}");
    }
}

#[test]
fn a_schedule_and_a_norm_become_the_runs() {
    let file = "[run]\nschedule = \"cosine:0.1,500\"\nwarm_up = 20\nclip = 0.5\n";
    let run = load(file, &[], &[]).expect("good").founding(ResumePolicy::Fresh).expect("good").run;
    let decay = DecayKind::Cosine { to: 0.1, within: Some(500) }.into();
    assert_eq!((run.schedule, run.clip), (Schedule { warm_up: 20, decay, ..Schedule::default() }, Some(0.5)));
    let run = load("", &[], &[]).expect("good").founding(ResumePolicy::Fresh).expect("good").run;
    assert_eq!((run.schedule, run.clip), (Schedule::default(), None));
}

#[test]
fn what_only_the_node_understands_is_checked_too() {
    let founding = |key, value| with_flag(key, value).founding(ResumePolicy::Fresh).expect_err("bad").to_string();
    let settings = |key, value: &str| with_flag(key, value).settings().expect_err("bad").to_string();
    let peer = format!("/p2p/{}", starling_node::credentials::identity::Identity::generate().peer_id());
    for (error, part) in [
        (founding("run.model", "mlp:x"), "--flag: run.model: `mlp:x` is not a model: `x` is not a size"),
        (founding("run.min_peers", "65"), "network.max_peers is 64"),
        (founding("run.schedule", "cosin"), "--flag: run.schedule: `cosin` is not a schedule: there is none named"),
        (founding("run.schedule", "step:0.5,0"), "the time between two falls is 0 steps"),
        (settings("train.device", "tpu"), "--flag: train.device: "),
        (settings("network.listen", "0.0.0.0:80"), "`0.0.0.0:80` is no multiaddr"),
        (settings("network.listen", ""), "at least one address"),
        (settings("network.listen", "/dns4/localhost/tcp/0"), "`/dns4/localhost/tcp/0` is nothing to listen on"),
        (settings("network.listen", "/ip4/127.0.0.1"), "`/ip4/127.0.0.1` is nothing to listen on"),
        (settings("network.announce", "here"), "network.announce"),
        (settings("network.announce", &format!("/ip4/192.0.2.1/tcp/4001{peer}")), "network.announce: `/ip4/192.0.2.1/"),
        (settings("network.announce", &format!("/ip4/192.0.2.1/tcp/4001{peer}")), "leave out /p2p/"),
        (settings("network.listen", &format!("/ip4/0.0.0.0/tcp/4001{peer}")), "leave out /p2p/"),
        (flag_error("network.max_stall_ms", "499"), "from 500 to 3600000"),
        (flag_error("network.max_stall_ms", "soon"), "a duration such as 10s"),
        (flag_error("run.learning_rate", "0"), "from 1e-12 to 1000"),
        (settings("network.name", &"x".repeat(33)), "1 to 32 printable characters"),
        (settings("network.name", "a\u{1b}[2J"), "1 to 32 printable characters"),
        (with_flag("log.level", "wran").log().expect_err("bad").to_string(), "`wran` is no level"),
    ] {
        assert!(error.contains(part), "{part} is missing from: {error}");
    }
    for level in ["warn", "info,libp2p=debug", "TRACE"] {
        assert_eq!(with_flag("log.level", level).log().expect("a level").level, level);
    }
}

#[test]
fn a_joiner_expects_only_what_its_user_set() {
    let expected = |file: &str, variables: &[(&str, &str)], flags: &[FlagValue]| {
        let expected = load(file, variables, flags).expect("good").expectations().expect("good");
        format!("{expected:?}")
    };
    let insisted = |pairs: &[(&str, &str)]| {
        let mut expected = ExpectedSettings::default();
        pairs.iter().for_each(|(key, text)| expected.insist(key, text).expect("a key of the run"));
        format!("{expected:?}")
    };
    assert_eq!(expected("[network]\nmdns = true\n[run]\nmin_peers = 2\n", &[], &[]), insisted(&[]));
    // The default's own value, but said aloud.
    let file = "[run]\nmodel = \"mlp:64\"\nlearning_rate = 0.5\n";
    assert_eq!(
        expected(file, &[("STARLING_RUN_STEPS", "600")], &[flag("run.seed", "--seed", "1")]),
        insisted(&[("run.model", "mlp:64"), ("run.learning_rate", "0.5"), ("run.steps", "600"), ("run.seed", "1")])
    );
    let file = load("[network]\nmax_stall_ms = 10000\n", &[], &[]).expect("good");
    assert_eq!(format!("{:?}", file.expectations().expect("good")), insisted(&[("network.max_stall_ms", "10s")]));
    assert_eq!(file.founding(ResumePolicy::Fresh).expect("good").run.max_stall_ms, 10_000);
}

#[test]
fn what_is_shown_says_the_same_when_it_is_read_again() {
    let file = "[run]\nlearning_rate = 0.25\nmodel = \"cnn:4\"\n[data]\nlabel = \"a \\\"b\\\" #c\"\nheader = false\n\
                [network]\nannounce = [\"/ip4/192.0.2.1/tcp/1\"]\n[train]\ndata_dir = \"/tmp/x\"\n";
    let loaded = load(file, &[("STARLING_RUN_STEPS", "9")], &[]).expect("good");
    for origins in [false, true] {
        let shown = show_toml(&loaded, origins).expect("shown");
        let again = load(&shown, &[], &[]).expect("valid TOML without unknown keys");
        let dir = loaded.data_dir().expect("a directory").display().to_string();
        let mut expected = loaded.values().clone();
        expected.insert("train.data_dir", Value::Text(dir));
        let mut again = again.values().clone();
        // What is as if it were set is shown as well.
        again.retain(|key, _| expected.contains_key(key));
        assert_eq!(again, expected, "{shown}");
    }
    let shown = show_toml(&loaded, true).expect("shown");
    let line = |name: &str| shown.lines().find(|line| line.starts_with(name)).unwrap_or("").to_owned();
    assert!(line("model = ").ends_with("# /etc/starling.toml:3"), "{shown}");
    assert!(line("steps = 9").ends_with("# STARLING_RUN_STEPS"), "{shown}");
    assert!(line("batch_size = 64").ends_with("# default"), "{shown}");
    assert!(shown.contains("# heartbeat interval: 500 ms") && shown.contains("# silence limit: 6000 ms"), "{shown}");
    let json = show_json(&loaded, true).expect("shown");
    assert_eq!(json["run"]["steps"]["value"], 9);
    assert_eq!(json["run"]["steps"]["origin"], "STARLING_RUN_STEPS");
    assert_eq!(json["derived"]["silence_limit_ms"], 6000);
    assert_eq!(show_json(&loaded, false).expect("shown")["data"]["header"], false);
}

#[test]
fn the_file_to_start_from_changes_nothing_but_what_was_set() {
    let defaults = load("", &[], &[]).expect("nothing");
    let file = commented_file(&defaults);
    assert_eq!(load(&file, &[], &[]).expect("valid").values(), defaults.values());
    for key in keys() {
        assert!(file.contains(&format!("\n#{} =", key.parts().1)), "{} is missing", key.id);
        assert!(file.contains(key.about), "{} is not explained", key.id);
    }
    let set = load("[run]\nsteps = 7\n[train]\ndata_dir = \"d\"\n", &[], &[]).expect("good");
    assert_eq!(load(&commented_file(&set), &[], &[]).expect("valid").values(), set.values());
}

#[test]
fn relative_directories_become_absolute() {
    let dir = with_flag("train.data_dir", "state").data_dir().expect("a directory");
    assert!(dir.is_absolute() && dir.ends_with("state"), "{}", dir.display());
}

#[test]
fn a_join_target_is_a_ticket_or_an_address() {
    let peer = starling_node::credentials::identity::Identity::generate().peer_id();
    let run = starling_topology::RunId([7; 32]);
    let ours = starling_node::credentials::identity::from_libp2p(&peer).expect("an Ed25519 key");
    let contact = starling_topology::Contact { peer: ours, addresses: Vec::new() };
    let ticket = starling::Ticket::new([contact], run, Some([1; 32]));
    match parse_target(&format!(" {ticket}\n")).expect("a ticket") {
        Target::Ticket(parsed) => assert_eq!(parsed, ticket),
        Target::Address(address) => panic!("an address: {address}"),
    }
    let address = format!("/ip4/192.0.2.1/tcp/4001/p2p/{peer}");
    match parse_target(&address).expect("an address") {
        Target::Address(parsed) => assert_eq!(parsed.to_string(), address),
        Target::Ticket(ticket) => panic!("a ticket: {ticket}"),
    }
    assert_eq!(parse_ticket(&ticket.to_string()).expect("a ticket"), ticket);
    let error = parse_ticket(&address).expect_err("no ticket").to_string();
    assert!(error.contains("use a ticket"), "{error}");
    let mut damaged = ticket.to_string();
    damaged.pop();
    for (text, part) in [
        (damaged.as_str(), "damaged"),
        ("/ip4/192.0.2.1/tcp/4001", "ends in /p2p/<peer id>"),
        ("/ip4/192.0.2.1/tcp/99999/p2p/x", "as an address"),
        ("192.0.2.1:4001", "an address looks like /ip4/"),
        ("", "a ticket begins with"),
    ] {
        let error = parse_target(text).expect_err("no target").to_string();
        assert!(error.contains(part), "{part} is missing from: {error}");
    }
    let long = parse_target(&"x".repeat(10_000)).expect_err("no target").to_string();
    assert!(long.len() < 400, "{long}");
}

#[test]
fn a_secret_is_read_from_a_file() {
    let dir = tempfile::tempdir().expect("a temp dir");
    let path = dir.path().join("secret.hex");
    std::fs::write(&path, format!("{}\n", "0f".repeat(32))).expect("written");
    assert_eq!(parse_secret(&path).expect("a secret"), ([0x0f; 32], None));
    std::fs::write(&path, [0xff; 32]).expect("written");
    assert_eq!(parse_secret(&path).expect("a secret's own bytes"), ([0xff; 32], None));
    std::fs::write(&path, "0f0f").expect("written");
    let error = parse_secret(&path).expect_err("short").to_string();
    assert!(error.contains("secret.hex") && error.contains("64 hex digits"), "{error}");
}

#[test]
fn the_documentation_names_every_key_with_variable_flag_and_default() {
    let text = include_str!("../../../../docs/configuration.md");
    for key in keys() {
        let row = text.lines().find(|line| line.starts_with(&format!("| `{}` |", key.id)));
        let row = row.unwrap_or_else(|| panic!("{} has no row", key.id));
        let default = match key.default {
            DefaultValue::None(words) => words.to_owned(),
            DefaultValue::Value(_) | DefaultValue::Like(_) => {
                format!("`{}`", layers::toml(&key.shown().expect("there is a value")))
            }
        };
        let flag = key.flag.map_or_else(|| "-".to_owned(), |flag| format!("`{}", flag.long));
        for part in [format!("`{}`", key.variable()), flag, default] {
            assert!(row.contains(&part), "{part} is missing from: {row}");
        }
    }
}

#[test]
fn a_stall_is_milliseconds_or_a_duration() {
    for (text, milliseconds) in [("2500", 2_500), ("10s", 10_000), ("2m", 120_000)] {
        let stall = value(&with_flag("network.max_stall_ms", text), "network.max_stall_ms");
        assert_eq!(stall.count(), milliseconds);
    }
    let file = load("[network]\nmax_stall_ms = \"15s\"\n", &[], &[]).expect("good");
    assert_eq!(value(&file, "network.max_stall_ms").count(), 15_000);
    assert!(load("[network]\nmax_stall_ms = \"1ms\"\n", &[], &[]).is_err());
}

/// By the names that the manifest's check has for its fields.
#[test]
fn what_no_run_can_have_is_told_by_its_key() {
    let loaded = load("", &[], &[]).expect("nothing");
    for (field, key) in [
        ("data", "data.source"),
        ("model", "run.model"),
        ("optimizer", "run.optimizer"),
        ("schedule", "run.schedule"),
        ("clip", "run.clip"),
        ("batch_size", "run.batch_size"),
        ("micro_batch", "run.micro_batch"),
        ("steps", "run.steps"),
        ("layout", "collective.bucket_kib"),
        ("bound", "collective.bound"),
        ("max_stall_ms", "network.max_stall_ms"),
    ] {
        let error = loaded.unusable(field, "it is odd").expect("a key sets it").to_string();
        assert!(error.contains(key) && error.contains("it is odd"), "{error}");
    }
    assert!(loaded.unusable("wire_version", "it is odd").is_none());
}

#[test]
fn what_has_no_effect_is_said() {
    assert_eq!(load("", &[], &[]).expect("good").idle(), Vec::<String>::new());
    let idle = load("[run]\nmomentum = 0.5\n", &[], &[]).expect("good").idle();
    assert_eq!(idle.len(), 1, "{idle:?}");
    assert!(idle[0].contains("starling.toml:2: run.momentum") && idle[0].contains("adamw"), "{idle:?}");
    let forks =
        load("[network]\nfork_after = \"90s\"\n[security]\nquorum = \"two-thirds\"\n", &[], &[]).expect("good").idle();
    assert!(forks.len() == 1 && forks[0].contains("network.fork_after"), "{forks:?}");
    let none = load("[run]\noptimizer = \"lion\"\nepsilon = 1e-3\nbeta1 = 0.5\n", &[], &[]).expect("good").idle();
    assert!(none.len() == 1 && none[0].contains("run.epsilon has no effect, because lion has no epsilon"), "{none:?}");
    let early = load("[run]\nclip = 1\n[train]\nupdate_ahead_mib = 64\n", &[], &[]).expect("good").idle();
    assert!(early.len() == 1 && early[0].contains("train.update_ahead_mib has no effect"), "{early:?}");
    let used = "[run]\nmomentum = 0.5\noptimizer = \"nesterov\"\n";
    assert_eq!(load(used, &[], &[]).expect("good").idle(), Vec::<String>::new());
}

#[test]
fn a_programs_settings_are_those_of_the_command_line() {
    let dir = PathBuf::from("/tmp/somewhere");
    let loaded = Layers::load(None, std::iter::empty(), &[]).expect("defaults");
    let of_command_line = Settings { data_dir: dir.clone(), ..loaded.settings().expect("usable") };
    assert_eq!(format!("{:?}", Settings::new(dir)), format!("{of_command_line:?}"));
}

#[test]
fn how_long_a_run_is_can_be_said_in_one_way_alone() {
    let length = |flags: &[FlagValue], variables: &[(&str, &str)], file: &str| {
        let founding = load(file, variables, flags).expect("good").founding(ResumePolicy::Fresh)?;
        Ok::<_, ConfigError>((founding.length, founding.run.steps))
    };
    let is =
        |flags: &[FlagValue], variables: &[(&str, &str)], file: &str| length(flags, variables, file).expect("good");
    let (steps, epochs) = (flag("run.steps", "--steps", "7"), flag("run.epochs", "--epochs", "3"));
    let file = "[run]\nsteps = 7\n";
    assert_eq!(is(&[], &[], "").0, RunLimit::Usual);
    assert_eq!(is(std::slice::from_ref(&steps), &[], ""), (RunLimit::Steps, 7));
    assert_eq!(is(std::slice::from_ref(&epochs), &[], "").0, RunLimit::Epochs(3));
    // Whatever goes over the other.
    assert_eq!(is(std::slice::from_ref(&epochs), &[], file).0, RunLimit::Epochs(3));
    assert_eq!(is(&[], &[("STARLING_RUN_EPOCHS", "2")], file).0, RunLimit::Epochs(2));
    assert_eq!(is(&[], &[("STARLING_RUN_STEPS", "9")], "[run]\nepochs = 2\n"), (RunLimit::Steps, 9));
    let error = length(&[steps, epochs], &[], "").expect_err("both").to_string();
    assert!(error.contains("--epochs: run.epochs: --steps says run.steps, too"), "{error}");
    let error = length(&[], &[], "[run]\nsteps = 7\nepochs = 2\n").expect_err("both").to_string();
    assert!(error.contains(":3: run.epochs: ") && error.contains(":2 says run.steps, too"), "{error}");
}
