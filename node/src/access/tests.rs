use super::*;
use crate::founder::FounderKey;
use crate::invitation::Terms;

const RUN: RunId = RunId([3; 32]);
const SECRET: Option<[u8; 32]> = Some([9; 32]);

struct World {
    key: FounderKey,
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self { key: FounderKey::generate(), dir: tempfile::tempdir().expect("a temp dir") }
    }

    fn member(&self, identity: &Identity, terms: Terms) -> Access {
        let credentials = self.credentials(terms);
        let me = identity.peer_id();
        let dir = self.dir.path().join(me.to_string());
        let access = Access::open(me, (RUN, Some(self.key.public())), &credentials, &[], &dir).expect("opened");
        access.enter(&[name(identity)]);
        access
    }

    fn credentials(&self, terms: Terms) -> Credentials {
        let invitation = Some(Invitation::sign(&self.key, RUN, terms));
        Credentials { secret: SECRET, invitation, bearer: None }
    }

    fn pass(&self, identity: &Identity, terms: Terms) -> Vec<u8> {
        Access::visiting(identity.peer_id(), Some(RUN), &self.credentials(terms)).pass()
    }
}

fn name(identity: &Identity) -> PeerId {
    from_libp2p(&identity.peer_id()).expect("an Ed25519 key")
}

fn denied(access: &Access, identity: &Identity, pass: &[u8]) -> Option<Denial> {
    access.judge(identity.peer_id(), pass).err().map(|(denial, _)| denial)
}

#[test]
fn whoever_is_neither_known_nor_invited_stays_out() {
    let world = World::new();
    let [founder, guest, stranger] = [(); 3].map(|()| Identity::generate());
    let access = world.member(&founder, Terms::default());
    let nothing =
        Access::visiting(stranger.peer_id(), Some(RUN), &Credentials { secret: SECRET, ..Credentials::default() });
    assert_eq!(denied(&access, &stranger, &nothing.pass()), Some(Denial::NotInvited));
    assert_eq!(denied(&access, &stranger, b"\x01"), Some(Denial::NotInvited), "no pass at all");
    let once = Terms { expires: Some(1), ..Terms::default() };
    assert_eq!(denied(&access, &guest, &world.pass(&guest, once)), Some(Denial::Expired));
    assert_eq!(denied(&access, &guest, &world.pass(&guest, Terms::default())), None);
    // It was a member: its invitation may be as old as it likes.
    access.enter(&[name(&founder), name(&guest)]);
    access.enter(&[name(&founder)]);
    assert_eq!(denied(&access, &guest, &world.pass(&guest, once)), None);
    // Also after this process is gone.
    access.store().expect("stored");
    let again = world.member(&founder, Terms::default());
    assert_eq!(denied(&again, &guest, &nothing.pass()), None);
    assert!(again.may_join(name(&guest)).is_ok());
}

#[test]
fn a_visitor_counts_as_who_has_sent_it() {
    let world = World::new();
    let [founder, guest, visitor] = [(); 3].map(|()| Identity::generate());
    let access = world.member(&founder, Terms::default());
    access.enter(&[name(&founder), name(&guest)]);
    let sent = Credentials { secret: SECRET, bearer: Some(guest), ..Credentials::default() };
    let pass = Access::visiting(visitor.peer_id(), Some(RUN), &sent).pass();
    assert_eq!(denied(&access, &visitor, &pass), None);
    assert_eq!(denied(&access, &Identity::generate(), &pass), Some(Denial::NotInvited), "another shows it");
}

#[test]
fn a_keeper_never_becomes_a_member() {
    let world = World::new();
    let [founder, keeper] = [(); 2].map(|()| Identity::generate());
    let access = world.member(&founder, Terms::default());
    let terms = Terms { role: Role::Keeper, ..Terms::default() };
    assert_eq!(denied(&access, &keeper, &world.pass(&keeper, terms)), None);
    assert_eq!(access.may_join(name(&keeper)), Err(Doubt::Denied(Denial::KeepersOnly)));
}

#[test]
fn an_invitation_for_one_admits_one() {
    let world = World::new();
    let [founder, first, second] = [(); 3].map(|()| Identity::generate());
    let access = world.member(&founder, Terms::default());
    let once = Terms { once: Some([7; 16]), ..Terms::default() };
    for bearer in [&first, &second] {
        assert_eq!(denied(&access, bearer, &world.pass(bearer, once)), None, "nobody has come by it");
    }
    assert_eq!(access.may_join(name(&first)), Ok(()));
    assert_eq!(access.may_join(name(&first)), Ok(()), "it asks again");
    assert_eq!(access.may_join(name(&second)), Err(Doubt::NotYet));
    assert_eq!(access.enter(&[name(&founder), name(&first)]), []);
    assert_eq!(access.may_join(name(&second)), Err(Doubt::Denied(Denial::Used)));
    assert_eq!(denied(&access, &second, &world.pass(&second, once)), Some(Denial::Used));
    assert_eq!(denied(&access, &first, &world.pass(&first, once)), None, "it may come back");
    // Another member hears of it before it has seen anything, and one that has seen nothing of a member waits.
    let (other, third) = (Identity::generate(), Identity::generate());
    let elsewhere = world.member(&other, Terms::default());
    assert!(!elsewhere.learn(founder.peer_id(), &access.update()), "it is no member there");
    elsewhere.enter(&[name(&other), name(&founder)]);
    assert!(elsewhere.learn(founder.peer_id(), &access.update()));
    assert_eq!(denied(&elsewhere, &second, &world.pass(&second, once)), Some(Denial::Used));
    let another = Terms { once: Some([8; 16]), ..Terms::default() };
    assert_eq!(denied(&elsewhere, &third, &world.pass(&third, another)), None);
    elsewhere.enter(&[name(&other), name(&second)]);
    assert_eq!(elsewhere.may_join(name(&third)), Err(Doubt::NotYet), "who knows by what the second came");
    assert_eq!(elsewhere.silent(), [name(&second)]);
}

#[test]
fn what_the_decree_did_not_admit_is_asked_anew() {
    let world = World::new();
    let [founder, first, second] = [(); 3].map(|()| Identity::generate());
    let access = world.member(&founder, Terms::default());
    let once = Terms { once: Some([7; 16]), ..Terms::default() };
    for bearer in [&first, &second] {
        assert_eq!(denied(&access, bearer, &world.pass(bearer, once)), None);
    }
    assert_eq!(access.may_join(name(&second)), Ok(()));
    // Another proposer had heard the first one first.
    assert_eq!(access.enter(&[name(&founder), name(&first)]), [name(&second)]);
    assert_eq!(access.may_join(name(&second)), Err(Doubt::Denied(Denial::Used)));
}

#[test]
fn who_is_revoked_is_out_and_so_are_open_invitations_of_before() {
    let world = World::new();
    let [founder, guest, old, bound] = [(); 4].map(|()| Identity::generate());
    let access = world.member(&founder, Terms::default());
    access.enter(&[name(&founder), name(&guest)]);
    let renewal = Renewal::after(None, &world.key, RUN, name(&guest), Some([8; 32]));
    let forged = Renewal::after(None, &FounderKey::generate(), RUN, name(&founder), Some([8; 32]));
    assert!(!access.adopt(forged) && access.adopt(renewal.clone()) && !access.adopt(renewal), "once");
    assert_eq!(access.secret(), Some([8; 32]));
    assert_eq!(access.secrets().len(), 2, "members that were away know the old one");
    let (denial, proof) = access.judge(guest.peer_id(), &world.pass(&guest, Terms::default())).expect_err("out");
    assert_eq!(denial, Denial::Revoked);
    let joiner = world.member(&guest, Terms::default());
    assert!(joiner.is_put_out(guest.peer_id(), &proof) && !joiner.is_put_out(old.peer_id(), &proof));
    assert!(!access.may_stay(name(&guest)) && access.may_join(name(&guest)) == Err(Doubt::Denied(Denial::Revoked)));
    assert_eq!(denied(&access, &old, &world.pass(&old, Terms::default())), Some(Denial::Outdated));
    let new = Terms { epoch: 1, ..Terms::default() };
    assert_eq!(denied(&access, &old, &world.pass(&old, new)), None);
    let whom = Terms { whom: Some(name(&bound)), ..Terms::default() };
    assert_eq!(denied(&access, &bound, &world.pass(&bound, whom)), None, "it was made for its key");
    // Others learn of it from a member, and nobody can talk a revoked one back in.
    let elsewhere = world.member(&bound, Terms::default());
    assert!(elsewhere.learn(founder.peer_id(), &access.update()), "the founder's list counts, whoever passes it on");
    assert_eq!((elsewhere.secret(), elsewhere.revoked()), (Some([8; 32]), vec![name(&guest)]));
    let stale = world.member(&Identity::generate(), Terms::default());
    stale.enter(&[name(&guest)]);
    elsewhere.learn(bound.peer_id(), &stale.update());
    assert_eq!(denied(&elsewhere, &guest, &world.pass(&guest, Terms::default())), Some(Denial::Revoked));
}

#[test]
fn a_list_of_keys_lets_in_and_closes_a_public_run() {
    let [founder, guest, other] = [(); 3].map(|()| Identity::generate());
    let dir = tempfile::tempdir().expect("a temp dir");
    let key = FounderKey::generate();
    let public = Credentials::default();
    let open = |allowed: &[PeerId]| {
        Access::open(founder.peer_id(), (RUN, Some(key.public())), &public, allowed, dir.path()).expect("opened")
    };
    let nothing = |identity: &Identity| Access::visiting(identity.peer_id(), Some(RUN), &public).pass();
    assert_eq!(denied(&open(&[]), &other, &nothing(&other)), None);
    let closed = open(&[name(&guest)]);
    assert_eq!(denied(&closed, &guest, &nothing(&guest)), None);
    assert_eq!(denied(&closed, &other, &nothing(&other)), Some(Denial::NotInvited));
}
