//! Who may be in a run: whom its founder invites, and whom it puts out.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use starling_tests::{Lan, Outcome, Peer, PeerOptions, TicketHolder, eventually, starling};
use tempfile::TempDir;

const ENDLESS: &str = "--model mlp:16 --steps 100000000 --checkpoint-every 0 --max-stall 2s";

/// What `starling` says on these words in that data directory, or its one error line.
fn said(dir: &Path, words: &[&str]) -> Result<String, String> {
    let output = starling(dir).args(words).arg("--data-dir").arg(dir.join("state")).output().expect("starling starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!stderr.contains("panicked"), "{stderr}");
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let errors: Vec<&str> = stderr.lines().filter(|line| line.starts_with("error: ")).collect();
    assert_eq!(errors.len(), 1, "one clear line, not: {stderr}");
    Err(errors[0].to_owned())
}

fn invited(founder: &Peer, words: &[&str]) -> String {
    // The file that tells where it is may be written just now.
    eventually("a ticket", || said(founder.dir().path(), &[&["invite"], words].concat()).ok())
}

/// The error with which a machine ends that may not come.
fn refused(outcome: &Outcome, part: &str) {
    assert!(outcome.error().contains(part), "{part}: {}", outcome.error());
}

fn joined(ticket: &str) -> Peer {
    Peer::join(ticket, &PeerOptions::default())
}

#[test]
fn an_invitation_admits_whom_it_says_and_nobody_else() {
    let founder = Peer::run(&PeerOptions::flags(ENDLESS));
    let told = founder.wait_for("where its key is", |event| event["event"] == "founder");
    assert_eq!(told["key"].as_str().map(Path::new), Some(founder.data_dir().join("founder.key").as_path()));
    // For one key, of a machine that has not run yet.
    let dir = Arc::new(TempDir::new().expect("a temp dir"));
    let id = said(dir.path(), &["id"]).expect("an id");
    assert_eq!(said(dir.path(), &["id"]), Ok(id.clone()), "it is made once");
    let bound = invited(&founder, &["--for", &id, "--expires", "2d"]);
    refused(&joined(&bound).finish(), "for another peer");
    let guest = Peer::join_in(dir, &bound, &PeerOptions::default());
    guest.wait_for_view(2);
    assert_eq!(guest.id(), id);
    // What it came by is no good to others, and it has no key to sign another one.
    let error = said(guest.dir().path(), &["invite"]).expect_err("nothing to hand on");
    assert!(error.contains("founder"), "{error}");
    let error = said(guest.dir().path(), &["invite", "--once"]).expect_err("no key");
    assert!(error.contains("founder.key"), "{error}");
    // A key of another founder.
    let other = Peer::run(&PeerOptions::flags(ENDLESS));
    other.ticket();
    let key = other.data_dir().join("founder.key");
    let words = ["invite", "--key", key.to_str().expect("a text path")];
    let error = said(guest.dir().path(), &words).expect_err("another's");
    assert!(error.contains("not the key of this run's founder"), "{error}");
    // The founder's own works wherever it lies.
    let key = founder.data_dir().join("founder.key");
    let key = ["invite", "--once", "--json", "--key", key.to_str().expect("a text path")];
    let elsewhere: Value = serde_json::from_str(&said(guest.dir().path(), &key).expect("a ticket")).expect("JSON");
    assert_eq!((&elsewhere["role"], &elsewhere["once"]), (&"member".into(), &true.into()));
    joined(elsewhere["ticket"].as_str().expect("a ticket")).wait_for_view(3);
    // Nobody would know that a keeper has used it.
    let error = said(founder.dir().path(), &["invite", "--role", "keeper", "--once"]).expect_err("not for keepers");
    assert!(error.contains("--for PEER"), "{error}");
    // A keeper's makes no member.
    let keeps = invited(&founder, &["--role", "keeper"]);
    refused(&joined(&keeps).finish(), "is a keeper's");
    let keeper = Peer::keep_in(Arc::new(TempDir::new().expect("a temp dir")), &keeps, &PeerOptions::default());
    keeper.id();
}

#[test]
fn an_invitation_for_one_admits_the_first_who_comes() {
    let founder = Peer::run(&PeerOptions::flags(ENDLESS));
    founder.ticket();
    let ticket = invited(&founder, &["--once"]);
    let first = joined(&ticket);
    first.wait_for_view(2);
    refused(&joined(&ticket).finish(), "another has used it");
    // Another member, which came otherwise and later, says the same.
    let other = joined(&founder.ticket());
    other.wait_for_view(3);
    let peers = [&first, &other].map(Peer::id);
    let dir = first.dir();
    first.signal("KILL");
    drop(first);
    founder.wait_for("the others without it", |event| {
        event["event"] == "view" && event["members"].as_array().is_some_and(|list| list.len() == 2) && {
            let members = event["members"].to_string();
            members.contains(&peers[1]) && !members.contains(&peers[0])
        }
    });
    refused(&joined(&ticket).finish(), "another has used it");
    // The first may come back.
    let again = Peer::join_in(dir, &ticket, &PeerOptions::default());
    again.wait_for_view(3);
}

#[tokio::test]
async fn what_a_member_shows_is_no_good_to_another() {
    let founder = Peer::run(&PeerOptions::flags(ENDLESS));
    let ticket = founder.ticket();
    founder.wait_for_step(1);
    let guest = TicketHolder::admitted(&ticket).await;
    // Its own invitation admits everybody, and was shown.
    let shown = guest.shown();
    assert!(shown.len() > 200 && !TicketHolder::admits(&ticket, shown).await);
    assert!(!TicketHolder::admits(&ticket, Vec::new()).await, "nor is the secret alone");
}

/// Whether it tells of a view of so many, with these of them and without others.
fn is_view(event: &Value, members: usize, with: &[&str], without: &[&str]) -> bool {
    let Some(list) = event["members"].as_array().filter(|list| event["event"] == "view" && list.len() == members)
    else {
        return false;
    };
    let has = |id: &&str| list.iter().any(|member| member.as_str() == Some(id));
    with.iter().all(has) && !without.iter().any(has)
}

/// Whether a view has it.
fn has(view: &Value, id: &str) -> bool {
    view["members"].to_string().contains(id)
}

/// Steps after that one are taken there.
fn goes_on_from(member: &Peer, event: &Value) {
    member.wait_for_step(event["step"].as_u64().expect("a step") + 20);
}

/// On a host with three addresses, of both families.
fn on(lan: &Lan, host: usize, flags: &str) -> PeerOptions {
    PeerOptions { prefix: lan.host(host).prefix, listen: None, ..PeerOptions::flags(flags) }
}

/// Of five hosts, those whose members are lost and revoked.
const AWAY: usize = 3;
const GONE: usize = 4;

/// One of five is revoked while these, the one on host 3 among them, can't reach the others.
fn is_revoked_during_a_cut(cut_off: &[usize]) {
    let lan = Lan::wide(5).expect("a network");
    let founder = Peer::run(&on(&lan, 0, ENDLESS));
    let ticket = founder.ticket();
    let [first, second, away, gone] = [1, 2, AWAY, GONE].map(|host| Peer::join(&ticket, &on(&lan, host, "")));
    let full = [&founder, &first, &second, &away, &gone].map(|member| member.wait_for_votes(5));
    let (away_id, gone_id) = (away.id(), gone.id());
    let (away_id, gone_id) = (away_id.as_str(), gone_id.as_str());
    let others: Vec<usize> = (0..5).filter(|host| !cut_off.contains(host)).collect();
    lan.split(&others, cut_off).expect("cut");
    let later = |member: &Peer, before: &Value, members, with: &[&str], without: &[&str]| {
        let is_later = |event: &Value| event["generation"].as_u64() > before["generation"].as_u64();
        member.wait_for("a later view", |event| is_view(event, members, with, without) && is_later(event))
    };
    later(&founder, &full[0], others.len(), &[], &[away_id]);
    said(founder.dir().path(), &["revoke", gone_id]).expect("revoked");
    let hears = |member: &Peer| {
        let listed = || said(member.dir().path(), &["members", "--json"]).ok();
        eventually("the list", || listed().filter(|it| it.contains(&format!("\"revoked\":[\"{gone_id}"))));
    };
    let mut without = full[0].clone();
    for member in [&founder, &first, &second] {
        without = later(member, &full[0], 3, &[], &[away_id, gone_id]);
        goes_on_from(member, &without);
        hears(member);
    }
    lan.heal(&others, cut_off).expect("healed");
    for member in [&founder, &first, &second, &away] {
        let view = later(member, &without, 4, &[away_id], &[gone_id]);
        goes_on_from(member, &view);
        hears(member);
    }
    let dir = gone.dir();
    refused(&gone.finish(), "revoked this machine's key");
    refused(&Peer::join_in(dir, &ticket, &on(&lan, GONE, "")).finish(), "revoked");
    for member in [founder, first, second, away] {
        member.signal("INT");
        let outcome = member.finish();
        assert_eq!(outcome.summary()["outcome"], "left", "of the others, nobody is out for it");
        let has_it = |event: &Value| {
            event["event"] == "view"
                && event["generation"].as_u64() > without["generation"].as_u64()
                && event["members"].to_string().contains(gone_id)
        };
        assert!(!outcome.events.iter().any(|(_, event)| has_it(event)), "it does not come back");
    }
}

#[test]
fn who_was_cut_off_hears_of_a_revocation_later() {
    is_revoked_during_a_cut(&[AWAY]);
}

#[test]
fn who_is_revoked_while_it_is_cut_off_is_out_when_that_ends() {
    is_revoked_during_a_cut(&[AWAY, GONE]);
}

/// They come at the same time to members that can't hear each other: two that go on, and one that waits.
#[test]
fn of_two_who_use_one_invitation_on_both_sides_of_a_cut_one_stays() {
    let lan = Lan::wide(5).expect("a network");
    let founder = Peer::run(&on(&lan, 0, ENDLESS));
    let ticket = founder.ticket();
    let [first, other] = [1, 2].map(|host| Peer::join(&ticket, &on(&lan, host, "")));
    [&founder, &first, &other].iter().for_each(|member| drop(member.wait_for_votes(3)));
    let names_all = |ticket: &String| TicketHolder::named(ticket) == 3;
    let ticket = eventually("a ticket", || Some(invited(&founder, &["--once"])).filter(names_all));
    let sides: [&[usize]; 2] = [&[0, 1, 3], &[2, 4]];
    lan.split(sides[0], sides[1]).expect("cut");
    let dirs = [(); 2].map(|()| Arc::new(TempDir::new().expect("a temp dir")));
    let [id, name] = dirs.each_ref().map(|dir| said(dir.path(), &["id"]).expect("an id"));
    let [here, there] = [0, 1].map(|at| Peer::join_in(dirs[at].clone(), &ticket, &on(&lan, 3 + at, "")));
    here.wait_for("a view with it", |event| is_view(event, 3, &[&id], &[]));
    lan.heal(sides[0], sides[1]).expect("healed");
    for member in [&founder, &first, &other, &here] {
        let view = member.wait_for("all but the second", |event| is_view(event, 4, &[&id], &[&name]));
        goes_on_from(member, &view);
    }
    refused(&there.finish(), "another has used it");
    for member in [founder, first, other, here] {
        member.signal("INT");
        assert_eq!(member.finish().summary()["outcome"], "left");
    }
}

#[test]
fn who_was_away_for_two_revocations_comes_back() {
    let founder = Peer::run(&PeerOptions::flags(ENDLESS));
    let ticket = founder.ticket();
    let away = joined(&ticket);
    away.wait_for_view(2);
    let (away_dir, founder_dir) = (away.dir(), founder.dir());
    away.signal("INT");
    away.finish();
    for _ in 0..2 {
        let nobody = TempDir::new().expect("a temp dir");
        let id = said(nobody.path(), &["id"]).expect("an id");
        said(founder_dir.path(), &["revoke", &id]).expect("revoked");
    }
    // The process that knew the first secret ends.
    founder.signal("INT");
    founder.finish();
    let founder = Peer::run_in(founder_dir, &PeerOptions::flags(&format!("{ENDLESS} --resume")));
    founder.wait_for_step(1);
    Peer::join_in(away_dir, &ticket, &PeerOptions::default()).wait_for_view(2);
}

#[test]
fn a_member_that_is_revoked_is_out_and_the_others_go_on() {
    let founder = Peer::run(&PeerOptions::flags(ENDLESS));
    let ticket = founder.ticket();
    // One is away when it happens.
    let away = joined(&ticket);
    away.wait_for_view(2);
    let away_dir = away.dir();
    away.signal("KILL");
    drop(away);
    let mut members: Vec<Peer> = (0..3).map(|_| joined(&ticket)).collect();
    let full = founder.wait_for_votes(4)["generation"].as_u64();
    members.iter().for_each(|member| drop(member.wait_for_votes(4)));
    let gone = members.remove(0);
    let id = gone.id();
    let said_so = said(founder.dir().path(), &["revoke", &id, "--json"]).expect("revoked");
    assert!(said_so.contains("\"revoked\":1") && said_so.contains("\"new\":true"), "{said_so}");
    let is_out = |event: &Value| event["generation"].as_u64() > full && is_view(event, 3, &[], &[&id]);
    for member in [&founder, &members[0], &members[1]] {
        let view = member.wait_for("a view without it", is_out);
        goes_on_from(member, &view);
    }
    // It is told why, by what the founder has signed, and can't come back.
    let dir = gone.dir();
    refused(&gone.finish(), "revoked this machine's key");
    refused(&Peer::join_in(dir, &ticket, &PeerOptions::default()).finish(), "revoked");
    // Nor does its ticket help it under another name, whomever it asks; a new one admits.
    refused(&joined(&ticket).finish(), "before somebody was revoked");
    let error = said(members[0].dir().path(), &["invite"]).expect_err("no invitation that lasts");
    assert!(error.contains("founder"), "{error}");
    let guest = joined(&invited(&founder, &[]));
    guest.wait_for_view(4);
    // A member that was away meanwhile comes back with what it has, and hears the new secret.
    Peer::join_in(away_dir, &ticket, &PeerOptions::default()).wait_for_view(5);
    members.push(founder);
    members.push(guest);
    for member in members {
        member.signal("INT");
        let outcome = member.finish();
        let mut events = outcome.events.iter().map(|(_, event)| event);
        let waited = |event: &&Value| event["event"] == "paused" || event["event"] == "evicted";
        assert_eq!(events.clone().find(waited), None, "nobody waits for it, or has to come back");
        events.find(|event| event["event"] == "view" && event["generation"].as_u64() > full && !has(event, &id));
        assert_eq!(events.find(|event| event["event"] == "view" && has(event, &id)), None, "it is out for good");
    }
}

#[test]
fn of_those_who_come_by_one_ticket_as_many_vote_as_it_says() {
    let founder = Peer::run(&PeerOptions::flags(ENDLESS));
    founder.ticket();
    let one = invited(&founder, &["--voters", "1"]);
    let [first, second] = [2, 3].map(|members| {
        let bearer = joined(&one);
        bearer.wait_for_view(members);
        bearer
    });
    let votes = |event: &Value, peer: &str| {
        let has = |field: &str| event[field].as_array().is_some_and(|it| it.contains(&peer.into()));
        event["event"] == "view" && has("members") && !has("newcomers")
    };
    let [a, b] = [&first, &second].map(Peer::id);
    let event = founder.wait_for("a vote", |event| votes(event, &a) || votes(event, &b));
    let (voter, heir) = if votes(&event, &a) { (first, second) } else { (second, first) };
    // The other one trains on without.
    let step = heir.wait_for_step(1);
    heir.wait_for_step(step + 500);
    assert!(founder.told().iter().all(|event| !(votes(event, &a) && votes(event, &b))));
    // When that goes, it has its place.
    let (gone, heir) = (voter.id(), heir.id());
    voter.signal("KILL");
    founder.wait_for("the other's vote", |event| votes(event, &heir) && !votes(event, &gone));
}

#[test]
fn a_keeper_stays_for_which_its_invitation_is_until_it_is_revoked() {
    let founder = Peer::run(&PeerOptions::flags(ENDLESS));
    founder.ticket();
    let other = joined(&invited(&founder, &[]));
    other.wait_for_view(2);
    let dirs = [(); 2].map(|()| Arc::new(TempDir::new().expect("a temp dir")));
    let ids = dirs.each_ref().map(|dir| said(dir.path(), &["id"]).expect("an id"));
    let keepers = [0, 1].map(|at| {
        let ticket = invited(&founder, &["--role", "keeper", "--for", &ids[at]]);
        let keeper = Peer::keep_in(dirs[at].clone(), &ticket, &PeerOptions::default());
        founder.wait_for("its name", |event| event["event"] == "named" && event["peer"].as_str() == Some(&ids[at]));
        keeper
    });
    let listed = || said(other.dir().path(), &["members", "--json"]).expect("a list");
    let is_keeper = |row: &Value| row["role"] == "keeper" && row["peer"].as_str() == Some(&ids[1]);
    let rows = || serde_json::from_str::<Value>(&listed()).expect("JSON")["members"].as_array().cloned();
    eventually("keeper", || rows().expect("a list").iter().any(is_keeper).then_some(()));
    let is_member = |row: &Value| row["role"] == "member" && row["invitation"] == "open" && !row["since"].is_null();
    let members = || rows().expect("a list").iter().filter(|row| is_member(row)).count();
    eventually("two members", || (members() == 2).then_some(()));
    said(founder.dir().path(), &["revoke", &ids[0]]).expect("revoked");
    let [gone, stays] = keepers;
    refused(&gone.finish(), "revoked this machine's key");
    eventually("revocation", || listed().contains(&format!("\"revoked\":[\"{}", ids[0])).then_some(()));
    // Of the other one it is said once more where it is: it is connected still, or again.
    stays.signal("INT");
    stays.finish().summary();
}

#[test]
fn a_public_run_with_a_list_of_keys_is_closed_to_others() {
    let dir = Arc::new(TempDir::new().expect("a temp dir"));
    let id = said(dir.path(), &["id"]).expect("an id");
    let founder = Peer::run(&PeerOptions::flags(&format!("{ENDLESS} --public --allow {id}")));
    let address = founder.address();
    refused(&joined(&address).finish(), "takes an invitation");
    Peer::join_in(dir, &address, &PeerOptions::default()).wait_for_view(2);
}

/// A key that is to have the founder's place, in this directory: its file, and its public half.
fn made_key(dir: &Path) -> (String, String) {
    let file = dir.join("founder2.key").to_str().expect("a text path").to_owned();
    let key = said(dir, &["id", "--key", &file]).expect("made");
    assert_eq!(said(dir, &["id", "--key", &file]), Ok(key.clone()), "it is made once");
    (file, key)
}

/// What tells that a key has the founder's place now.
fn is_appointed(event: &Value, key: &str) -> bool {
    let place = format!("the key {key} has the founder's place now");
    event["event"] == "warning" && event["message"].as_str().is_some_and(|message| message.starts_with(&place))
}

#[test]
fn a_quorum_appoints_another_founder_and_the_lost_key_counts_no_more() {
    let flags = ENDLESS.replace("--checkpoint-every 0", "--checkpoint-every 50");
    let founder = Peer::run(&PeerOptions::flags(&flags));
    let ticket = founder.ticket();
    let [first, second, third] = [(); 3].map(|()| joined(&ticket));
    let all = [&founder, &first, &second, &third];
    all.iter().for_each(|member| drop(member.wait_for_votes(4)));
    // The key is lost, and somebody else has it, with all that lay beside it.
    let thief = TempDir::new().expect("a temp dir");
    std::fs::create_dir(thief.path().join("state")).expect("made");
    for entry in std::fs::read_dir(founder.data_dir()).expect("listed").filter_map(Result::ok) {
        if entry.file_type().is_ok_and(|it| it.is_file()) {
            let _gone = std::fs::copy(entry.path(), thief.path().join("state").join(entry.file_name()));
        }
    }
    std::fs::remove_file(founder.data_dir().join("founder.key")).expect("lost");
    let home = TempDir::new().expect("a temp dir");
    let (file, key) = made_key(home.path());
    let is_told = |event: &Value| is_appointed(event, &key);
    let has_told = |member: &&Peer| member.told().iter().any(is_told);
    // Two of four are no quorum without the casting vote.
    for member in [&first, &second] {
        said(member.dir().path(), &["appoint", &key]).expect("said");
        let error = said(member.dir().path(), &["invite", "--once", "--key", &file]).expect_err("not yet");
        assert!(error.contains("not the key of this run's founder"), "{error}");
    }
    let own = first.id();
    let error = said(first.dir().path(), &["appoint", &own]).expect_err("no founder's key");
    assert!(error.contains("a member's id"), "{error}");
    all.iter().for_each(|member| _ = member.wait_for_step(member.reached() + 200));
    assert!(!all.iter().any(has_told));
    said(third.dir().path(), &["appoint", &key]).expect("said");
    all.iter().for_each(|member| drop(member.wait_for("who has the place", is_told)));
    let said_again = eventually("that it is so", || {
        said(third.dir().path(), &["appoint", &key]).ok().filter(|text| text.contains("already"))
    });
    assert!(said_again.contains(&key));
    // It invites.
    let by_new = ["invite", "--once", "--key", &file];
    let invites = |member: &Peer| eventually("a ticket", || said(member.dir().path(), &by_new).ok());
    let guest = joined(&invites(&second));
    all.iter().for_each(|member| drop(member.wait_for_votes(5)));
    // The other one revokes nobody any more, whatever its thief leaves where.
    let stolen = thief.path().join("state").join("founder.key");
    let words = ["revoke", &own, "--key", stolen.to_str().expect("a text path")];
    let error = eventually("refusal", || said(second.dir().path(), &words).err());
    assert!(error.contains("not the key of this run's founder"), "{error}");
    said(thief.path(), &words[..2]).expect("signed, where nobody has heard of it");
    let lists = std::fs::read_dir(thief.path().join("state")).expect("listed").filter_map(Result::ok);
    let list =
        lists.map(|entry| entry.path()).find(|path| path.to_string_lossy().contains("revocations-")).expect("a list");
    std::fs::copy(&list, second.data_dir().join(list.file_name().expect("a name"))).expect("left there");
    all.iter().for_each(|member| _ = member.wait_for_step(member.reached() + 200));
    // The new one does: with it end the invitations of the one before.
    let gone = guest.id();
    said(third.dir().path(), &["revoke", &gone, "--key", &file]).expect("revoked");
    refused(&guest.finish(), "revoked this machine's key");
    for member in all {
        let view = member.wait_for("a view without it", |event| is_view(event, 4, &[&own], &[&gone]));
        goes_on_from(member, &view);
    }
    refused(&joined(&ticket).finish(), "before somebody was revoked");
    // All are killed. They know it still.
    let members = [founder, first, second, third];
    let dirs = members.each_ref().map(Peer::dir);
    members.iter().for_each(|member| member.signal("KILL"));
    drop(members);
    let [a, rest @ ..] = dirs;
    let founder = Peer::run_in(a, &PeerOptions::flags(&format!("{flags} --resume")));
    let others = rest.map(|dir| Peer::join_in(dir, &ticket, &PeerOptions::default()));
    founder.wait_for("all of them", |event| is_view(event, 4, &[&own], &[&gone]));
    let late = joined(&invites(&others[0]));
    late.wait_for_view(5);
    refused(&joined(&ticket).finish(), "before somebody was revoked");
    let error = said(others[1].dir().path(), &words).expect_err("not its any more");
    assert!(error.contains("not the key of this run's founder"), "{error}");
}

#[test]
fn who_was_cut_off_a_keeper_and_who_comes_later_hear_of_another_founder() {
    let lan = Lan::wide(6).expect("a network");
    let founder = Peer::run(&on(&lan, 0, ENDLESS));
    let ticket = founder.ticket();
    let [first, second, away] = [1, 2, 3].map(|host| Peer::join(&ticket, &on(&lan, host, "")));
    let all = [&founder, &first, &second, &away];
    all.iter().for_each(|member| drop(member.wait_for_votes(4)));
    let dir = Arc::new(TempDir::new().expect("a temp dir"));
    let id = said(dir.path(), &["id"]).expect("an id");
    let names_some = |ticket: &String| TicketHolder::named(ticket) == 3;
    let words = ["--role", "keeper", "--for", &id];
    let keeps = eventually("a ticket", || Some(invited(&founder, &words)).filter(names_some));
    let keeper = Peer::keep_in(dir, &keeps, &on(&lan, 4, ""));
    founder.wait_for("its name", |event| event["event"] == "named" && event["peer"].as_str() == Some(&id));
    let (here, there): (&[usize], &[usize]) = (&[0, 1, 2], &[3, 4]);
    lan.split(here, there).expect("cut");
    let away_id = away.id();
    for member in [&founder, &first, &second] {
        member.wait_for("a view without it", |event| is_view(event, 3, &[], &[&away_id]));
    }
    let home = TempDir::new().expect("a temp dir");
    let (file, key) = made_key(home.path());
    let is_told = |event: &Value| is_appointed(event, &key);
    for member in [&first, &second] {
        said(member.dir().path(), &["appoint", &key]).expect("said");
    }
    for member in [&founder, &first, &second] {
        member.wait_for("who has the place", is_told);
    }
    lan.heal(here, there).expect("healed");
    away.wait_for("who has the place", is_told);
    // With a ticket of before, as long as nobody is revoked.
    let late = Peer::join(&ticket, &on(&lan, 5, ""));
    late.wait_for_view(5);
    late.wait_for("who has the place", is_told);
    keeper.wait_for("who has the place", is_told);
    said(late.dir().path(), &["revoke", &id, "--key", &file]).expect("revoked");
    refused(&keeper.finish(), "revoked this machine's key");
    for member in [founder, first, second, away, late] {
        member.signal("INT");
        assert_eq!(member.finish().summary()["outcome"], "left");
    }
}
