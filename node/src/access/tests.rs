use super::*;
use crate::credentials::appointment::{Consent, Line};
use crate::credentials::founder::FounderKey;
use crate::credentials::invitation::{InvitationSpec, Role};
use crate::credentials::revocations::RevocationUpdate;
use starling_topology::{Contact, JoinRequest, Signer, View};

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

    fn member(&self, identity: &Identity, terms: InvitationSpec) -> Access {
        let credentials = self.credentials(terms);
        let me = identity.peer_id();
        let dir = self.dir.path().join(me.to_string());
        let access = Access::open(me, (RUN, Some(self.key.public())), &credentials, &[], &dir).expect("opened");
        access.enter(&[name(identity)], &[]);
        access
    }

    fn credentials(&self, terms: InvitationSpec) -> Credentials {
        self.bearing(&self.grant(terms))
    }

    fn grant(&self, terms: InvitationSpec) -> InvitationKey {
        InvitationKey::sign(&self.key, RUN, terms)
    }

    fn bearing(&self, grant: &InvitationKey) -> Credentials {
        Credentials { secret: SECRET, invitation: Some(grant.clone()), bearer: None }
    }

    fn pass(&self, identity: &Identity, terms: InvitationSpec) -> Vec<u8> {
        self.pass_by(identity, &self.grant(terms))
    }

    fn pass_by(&self, identity: &Identity, grant: &InvitationKey) -> Vec<u8> {
        Access::visiting(identity.peer_id(), Some(RUN), &self.bearing(grant)).pass()
    }

    fn renewal(&self, before: Option<&RevocationUpdate>, gone: &Identity) -> RevocationUpdate {
        let now = before.map_or(SECRET, |before| before.secrets.first().copied());
        RevocationUpdate::after(before, &self.key, RUN, name(gone), now)
    }
}

/// Both connect: what each says.
fn meet((a, of_a): (&Access, &Identity), (b, of_b): (&Access, &Identity)) -> [Option<DenialReason>; 2] {
    [denied(a, of_b, &b.pass()), denied(b, of_a, &a.pass())]
}

/// What `teller` tells this peer, if it tells it anything.
fn told(teller: &Access, to: &Identity) -> Option<Vec<u8>> {
    let told = teller.next_update(name(to), true);
    assert!(told.is_none() || teller.next_update(name(to), false).is_none(), "it has been told");
    told
}

fn name(identity: &Identity) -> PeerId {
    from_libp2p(&identity.peer_id()).expect("an Ed25519 key")
}

fn joiner(identity: &Identity, pass: Vec<u8>) -> JoinRequest {
    JoinRequest { pass, ..JoinRequest::new(Contact { peer: name(identity), addresses: Vec::new() }, 1) }
}

/// What these tell of the members that they have seen.
fn tell(access: &Access, teller: &Identity, members: &[(PeerId, PresentedInvitation)]) -> bool {
    access.learn(
        teller.peer_id(),
        &postcard::to_allocvec(&(None::<RevocationUpdate>, members, Consents::default(), 0u32)).expect("encoded"),
    )
}

fn denied(access: &Access, identity: &Identity, pass: &[u8]) -> Option<DenialReason> {
    access.judge(identity.peer_id(), Secret::new(access.secret()), pass).err().map(|(denial, _)| denial)
}

#[test]
fn whoever_is_neither_known_nor_invited_stays_out() {
    let world = World::new();
    let [founder, guest, stranger] = [(); 3].map(|()| Identity::generate());
    let access = world.member(&founder, InvitationSpec::default());
    let nothing =
        Access::visiting(stranger.peer_id(), Some(RUN), &Credentials { secret: SECRET, ..Credentials::default() });
    assert_eq!(denied(&access, &stranger, &nothing.pass()), Some(DenialReason::NotInvited));
    assert_eq!(denied(&access, &stranger, b"\x01"), Some(DenialReason::NotInvited), "no pass at all");
    let once = InvitationSpec { expires: Some(1), ..InvitationSpec::default() };
    assert_eq!(denied(&access, &guest, &world.pass(&guest, once)), Some(DenialReason::Expired));
    assert_eq!(denied(&access, &guest, &world.pass(&guest, InvitationSpec::default())), None);
    // It was a member: its invitation may be as old as it likes.
    access.enter(&[name(&founder), name(&guest)], &[]);
    access.enter(&[name(&founder)], &[]);
    assert_eq!(denied(&access, &guest, &world.pass(&guest, once)), None);
    // Also after this process is gone.
    access.store().expect("stored");
    let again = world.member(&founder, InvitationSpec::default());
    assert_eq!(denied(&again, &guest, &nothing.pass()), None);
    assert_eq!(
        again.may_join(name(&guest), b""),
        Err(Doubt::Denied(DenialReason::NotInvited)),
        "others could not tell"
    );
    assert_eq!(denied(&again, &guest, &world.pass(&guest, once)), None);
    assert!(again.may_join(name(&guest), b"").is_ok());
}

#[test]
fn a_visitor_counts_as_who_has_sent_it() {
    let world = World::new();
    let [founder, guest, visitor] = [(); 3].map(|()| Identity::generate());
    let access = world.member(&founder, InvitationSpec::default());
    access.enter(&[name(&founder), name(&guest)], &[]);
    let sent = Credentials { secret: SECRET, bearer: Some(guest), ..Credentials::default() };
    let pass = Access::visiting(visitor.peer_id(), Some(RUN), &sent).pass();
    assert_eq!(denied(&access, &visitor, &pass), None);
    assert_eq!(denied(&access, &Identity::generate(), &pass), Some(DenialReason::NotInvited), "another shows it");
}

#[test]
fn a_keeper_never_becomes_a_member() {
    let world = World::new();
    let [founder, keeper] = [(); 2].map(|()| Identity::generate());
    let access = world.member(&founder, InvitationSpec::default());
    let terms = InvitationSpec { role: Role::Keeper, ..InvitationSpec::default() };
    assert_eq!(denied(&access, &keeper, &world.pass(&keeper, terms)), None);
    assert_eq!(access.may_join(name(&keeper), b""), Err(Doubt::Denied(DenialReason::KeepersOnly)));
}

#[test]
fn an_invitation_for_one_admits_one() {
    let world = World::new();
    let [founder, first, second] = [(); 3].map(|()| Identity::generate());
    let access = world.member(&founder, InvitationSpec::default());
    let once = world.grant(InvitationSpec { once: true, ..InvitationSpec::default() });
    for bearer in [&first, &second] {
        assert_eq!(denied(&access, bearer, &world.pass_by(bearer, &once)), None, "nobody has come by it");
    }
    assert_eq!(access.may_join(name(&first), b""), Ok(()));
    assert_eq!(access.may_join(name(&first), b""), Ok(()), "it asks again");
    assert_eq!(access.may_join(name(&second), b""), Err(Doubt::NotYet));
    assert_eq!(access.enter(&[name(&founder), name(&first)], &[]), []);
    assert_eq!(access.may_join(name(&second), b""), Err(Doubt::Denied(DenialReason::Used)));
    assert_eq!(denied(&access, &second, &world.pass_by(&second, &once)), Some(DenialReason::Used));
    assert_eq!(denied(&access, &first, &world.pass_by(&first, &once)), None, "it may come back");
    // Another member hears of it before it has seen anything, and one that has seen nothing of a member waits.
    let (other, third) = (Identity::generate(), Identity::generate());
    let elsewhere = world.member(&other, InvitationSpec::default());
    assert_eq!(meet((&access, &founder), (&elsewhere, &other)), [None, None]);
    let update = told(&access, &other).expect("an update");
    assert!(!elsewhere.learn(founder.peer_id(), &update), "it is no member there");
    elsewhere.enter(&[name(&other), name(&founder)], &[]);
    assert!(elsewhere.learn(founder.peer_id(), &update));
    assert_eq!(denied(&elsewhere, &second, &world.pass_by(&second, &once)), Some(DenialReason::Used));
    let another = world.grant(InvitationSpec { once: true, ..InvitationSpec::default() });
    assert_eq!(denied(&elsewhere, &third, &world.pass_by(&third, &another)), None);
    elsewhere.enter(&[name(&other), name(&second)], &[]);
    assert_eq!(elsewhere.may_join(name(&third), b""), Err(Doubt::NotYet), "who knows by what the second came");
    assert_eq!(elsewhere.silent(), [name(&second)]);
}

#[test]
fn of_those_who_come_by_one_invitation_as_many_may_vote_as_it_says() {
    let world = World::new();
    let founder = Identity::generate();
    let access = world.member(&founder, InvitationSpec::default());
    let clerk = Clerk { identity: founder, access: access.clone() };
    let [mut a, mut b, unknown] = [(); 3].map(|()| Identity::generate());
    if name(&b) < name(&a) {
        std::mem::swap(&mut a, &mut b);
    }
    let one = world.grant(InvitationSpec { voters: Some(1), ..InvitationSpec::default() });
    let members = [&clerk.identity, &a, &b, &unknown].map(name);
    access.enter(&members, &[&a, &b].map(|bearer| joiner(bearer, one.present(name(bearer)).encode())));
    let founded = View::found(RUN, members[0]).succeed(members);
    let may = |newcomers: &[&Identity]| {
        let view = founded.clone().with_newcomers(newcomers.iter().map(|it| name(it)));
        let mut newcomers: Vec<PeerId> = newcomers.iter().map(|it| name(it)).collect();
        newcomers.sort_unstable();
        clerk.may_vote(newcomers, &view)
    };
    assert_eq!(may(&[&a, &b]), [name(&a)], "all that have heard of both find the same one");
    assert_eq!((may(&[&a]), may(&[&b])), (vec![], vec![]), "the other one votes");
    assert_eq!(may(&[&unknown]), [], "who knows by what it came");
    // What it shows, or a member tells of it, does not count against the decree.
    assert_eq!(denied(&access, &b, &world.pass(&b, InvitationSpec::default())), None);
    tell(&access, &a, &[(name(&b), world.grant(InvitationSpec::default()).present(name(&b)))]);
    access.enter(&members, &[]);
    assert_eq!(may(&[&b]), []);
    let open = world.grant(InvitationSpec::default());
    access.enter(&members, &[joiner(&unknown, open.present(name(&unknown)).encode())]);
    assert_eq!(may(&[&a, &unknown]), [name(&unknown)], "by an invitation of its own, which says nothing");
    let public = Credentials { secret: None, ..world.bearing(&one) };
    let dir = world.dir.path().join("public");
    let me = clerk.identity.peer_id();
    let access = Access::open(me, (RUN, Some(world.key.public())), &public, &[], &dir).expect("opened");
    access.enter(&members, &[&a, &b].map(|bearer| joiner(bearer, one.present(name(bearer)).encode())));
    let (view, clerk) = (founded.clone().with_newcomers([name(&b)]), Clerk { identity: clerk.identity, access });
    assert_eq!(clerk.may_vote(vec![name(&b)], &view), [name(&b)], "where nobody needs one");
}

#[test]
fn nobody_uses_up_an_invitation_whose_key_it_does_not_hold() {
    let world = World::new();
    let [founder, member, bearer] = [(); 3].map(|()| Identity::generate());
    let access = world.member(&founder, InvitationSpec::default());
    let once = world.grant(InvitationSpec { once: true, ..InvitationSpec::default() });
    // The member has seen what the bearer shows, and shows it as its own, and says of another that it came by it.
    let shown = once.present(name(&bearer));
    let stolen = Pass { presented: Some(shown.clone()), ..Pass::default() }.encode();
    assert_eq!(denied(&access, &member, &stolen), Some(DenialReason::NotItsBearer));
    access.enter(&[name(&founder), name(&member)], &[]);
    assert_eq!(denied(&access, &member, &stolen), None, "it is a member");
    let members = vec![(name(&Identity::generate()), shown)];
    let update =
        postcard::to_allocvec(&(None::<RevocationUpdate>, members, Consents::default(), 0u32)).expect("encoded");
    assert!(!access.learn(member.peer_id(), &update));
    assert_eq!(denied(&access, &bearer, &world.pass_by(&bearer, &once)), None);
    assert_eq!(access.may_join(name(&bearer), b""), Ok(()));
}

#[test]
fn whom_a_member_proposes_the_others_look_at_themselves() {
    let world = World::new();
    let [member, guest, other, gone] = [(); 4].map(|()| Identity::generate());
    let access = world.member(&member, InvitationSpec::default());
    access.enter(&[&member, &gone].map(name), &[]);
    assert!(access.adopt(world.renewal(None, &gone)));
    let clerk = Clerk { identity: member, access: access.clone() };
    let by = |identity: &Identity, grant: &InvitationKey| joiner(identity, grant.present(name(identity)).encode());
    let judged = |joiner: JoinRequest| (clerk.is_invited(&joiner), clerk.admits(&[joiner]));
    let now = InvitationSpec { epoch: 1, ..InvitationSpec::default() };
    let open = world.grant(now);
    assert_eq!(judged(by(&guest, &open)), (true, true));
    // Who holds no invitation of its own is in no honest proposal.
    let copied = joiner(&other, open.present(name(&guest)).encode());
    let keepers = world.grant(InvitationSpec { role: Role::Keeper, ..now });
    let theirs = world.grant(InvitationSpec { whom: Some(name(&guest)), ..now });
    let forged = InvitationKey::sign(&FounderKey::generate(), RUN, now);
    for joiner in [copied, joiner(&guest, Vec::new()), by(&guest, &keepers), by(&other, &theirs), by(&guest, &forged)] {
        assert_eq!(judged(joiner), (false, false));
    }
    // Whether it still holds, others may see otherwise: it may have been a member.
    let expired = world.grant(InvitationSpec { expires: Some(1), ..now });
    for joiner in [by(&other, &expired), by(&other, &world.grant(InvitationSpec::default())), by(&gone, &open)] {
        assert_eq!(judged(joiner), (true, false));
    }
    let once = world.grant(InvitationSpec { once: true, ..now });
    assert!(clerk.admits(&[by(&guest, &once)]) && !clerk.admits(&[by(&guest, &once), by(&other, &once)]));
    // It came in, so nobody has to ask by what.
    access.enter(&[&clerk.identity, &guest].map(name), &[by(&guest, &once)]);
    assert_eq!((access.silent(), judged(by(&other, &once))), (vec![], (true, false)));
    assert_eq!(judged(by(&guest, &expired)), (true, true), "it was a member");
}

#[test]
fn at_two_members_that_hear_nothing_of_each_other_one_bearer_comes_in() {
    let world = World::new();
    let [a, b, first, second] = [(); 4].map(|()| Identity::generate());
    let once = world.grant(InvitationSpec { once: true, ..InvitationSpec::default() });
    let sides = [&a, &b].map(|identity| world.member(identity, InvitationSpec::default()));
    assert_eq!(meet((&sides[0], &a), (&sides[1], &b)), [None, None]);
    for side in &sides {
        side.enter(&[name(&a), name(&b)], &[]);
    }
    for (side, bearer) in sides.iter().zip([&first, &second]) {
        assert_eq!(denied(side, bearer, &world.pass_by(bearer, &once)), None);
        assert_eq!(side.may_join(name(bearer), b""), Ok(()), "each side knows of one");
    }
    // The decree was one side's.
    let view = [name(&a), name(&b), name(&first)];
    assert_eq!((sides[0].enter(&view, &[]), sides[1].enter(&view, &[])), (vec![], vec![name(&second)]));
    assert_eq!(sides[1].may_join(name(&second), b""), Err(Doubt::NotYet), "how did the first come?");
    assert_eq!(denied(&sides[1], &first, &world.pass_by(&first, &once)), None);
    assert_eq!(sides[1].may_join(name(&second), b""), Err(Doubt::Denied(DenialReason::Used)));
}

#[test]
fn what_the_decree_did_not_admit_is_asked_anew() {
    let world = World::new();
    let [founder, first, second] = [(); 3].map(|()| Identity::generate());
    let access = world.member(&founder, InvitationSpec::default());
    let once = world.grant(InvitationSpec { once: true, ..InvitationSpec::default() });
    for bearer in [&first, &second] {
        assert_eq!(denied(&access, bearer, &world.pass_by(bearer, &once)), None);
    }
    assert_eq!(access.may_join(name(&second), b""), Ok(()));
    // Another proposer had heard the first one first.
    assert_eq!(access.enter(&[name(&founder), name(&first)], &[]), [name(&second)]);
    assert_eq!(access.may_join(name(&second), b""), Err(Doubt::Denied(DenialReason::Used)));
}

#[test]
fn who_is_revoked_is_out_and_so_are_open_invitations_of_before() {
    let world = World::new();
    let [founder, guest, old, bound] = [(); 4].map(|()| Identity::generate());
    let access = world.member(&founder, InvitationSpec::default());
    access.enter(&[name(&founder), name(&guest)], &[]);
    let renewal = world.renewal(None, &guest);
    let forged = RevocationUpdate::after(None, &FounderKey::generate(), RUN, name(&founder), SECRET);
    let secret = renewal.secrets.first().copied();
    assert!(!access.adopt(forged) && access.adopt(renewal.clone()) && !access.adopt(renewal), "once");
    assert_eq!(access.secret(), secret);
    assert_eq!(access.secrets().len(), 2, "members that were away know the old one");
    let (denial, proof) = access
        .judge(guest.peer_id(), Secret::new(SECRET), &world.pass(&guest, InvitationSpec::default()))
        .expect_err("out");
    assert_eq!(denial, DenialReason::Revoked);
    let joiner = world.member(&guest, InvitationSpec::default());
    assert!(joiner.is_put_out(guest.peer_id(), &proof) && !joiner.is_put_out(old.peer_id(), &proof));
    assert!(
        !access.may_stay(name(&guest))
            && access.may_join(name(&guest), b"") == Err(Doubt::Denied(DenialReason::Revoked))
    );
    assert_eq!(denied(&access, &old, &world.pass(&old, InvitationSpec::default())), Some(DenialReason::Outdated));
    let new = InvitationSpec { epoch: 1, ..InvitationSpec::default() };
    assert_eq!(denied(&access, &old, &world.pass(&old, new)), None);
    let whom = InvitationSpec { whom: Some(name(&bound)), ..InvitationSpec::default() };
    assert_eq!(denied(&access, &bound, &world.pass(&bound, whom)), None, "it was made for its key");
    // Others learn of it from whoever passes it on, and nobody can talk a revoked one back in.
    let elsewhere = world.member(&bound, whom);
    elsewhere.enter(&[name(&bound), name(&founder)], &[]);
    assert_eq!(meet((&access, &founder), (&elsewhere, &bound)), [None, None]);
    assert!(elsewhere.learn(founder.peer_id(), &told(&access, &bound).expect("an update")));
    assert_eq!((elsewhere.secret(), elsewhere.revoked()), (secret, vec![name(&guest)]));
    let members = vec![(name(&guest), world.grant(InvitationSpec::default()).present(name(&guest)))];
    let stale =
        postcard::to_allocvec(&(None::<RevocationUpdate>, members, Consents::default(), 0u32)).expect("encoded");
    assert!(!elsewhere.learn(founder.peer_id(), &stale));
    assert_eq!(denied(&elsewhere, &guest, &world.pass(&guest, InvitationSpec::default())), Some(DenialReason::Revoked));
}

#[test]
fn keys_that_a_member_plants_before_it_is_revoked_go_with_it() {
    let world = World::new();
    let [founder, gone, planted, honest, known] = [(); 5].map(|()| Identity::generate());
    let access = world.member(&founder, InvitationSpec::default());
    let tellers = [&gone, &honest].map(|teller| (teller, world.member(teller, InvitationSpec::default())));
    access.enter(&[&founder, &gone, &honest].map(name), &[]);
    // It holds the key of the invitation by which it came.
    let open = world.grant(InvitationSpec::default());
    let entry = |identity: &Identity| (name(identity), open.present(name(identity)));
    let tell = |teller: &Identity, members: Vec<_>| {
        access.learn(
            teller.peer_id(),
            &postcard::to_allocvec(&(None::<RevocationUpdate>, members, Consents::default(), 0u32)).expect("encoded"),
        )
    };
    assert!(!tell(&gone, vec![entry(&planted)]), "it has to be connected");
    tellers.iter().for_each(|(teller, theirs)| _ = meet((&access, &founder), (theirs, teller)));
    assert!(tell(&gone, vec![entry(&planted), entry(&known)]) && tell(&honest, vec![entry(&known)]));
    assert!(access.adopt(world.renewal(None, &gone)));
    assert_eq!(denied(&access, &planted, &world.pass_by(&planted, &open)), Some(DenialReason::Outdated));
    assert_eq!(denied(&access, &known, &world.pass_by(&known, &open)), None, "another knows it too");
    assert!(!tell(&gone, vec![entry(&planted)]));
}

#[test]
fn one_peer_can_tell_so_many_and_then_slowly() {
    let world = World::new();
    let [founder, teller] = [(); 2].map(|()| Identity::generate());
    let (access, theirs) =
        (world.member(&founder, InvitationSpec::default()), world.member(&teller, InvitationSpec::default()));
    access.enter(&[&founder, &teller].map(name), &[]);
    assert_eq!(meet((&access, &founder), (&theirs, &teller)), [None, None]);
    let shown = world.grant(InvitationSpec::default()).present(name(&teller));
    // Each costs two signatures to look at, be they right or wrong.
    let members: Vec<_> = (0..100u8).map(|at| (PeerId([at; 32]), shown.clone())).collect();
    let update =
        postcard::to_allocvec(&(None::<RevocationUpdate>, members, Consents::default(), 0u32)).expect("encoded");
    let before = Instant::now();
    let left = || access.lock().shown.get_mut(&name(&teller)).expect("there").allowance.take(1, Instant::now());
    for _ in 0..TOLD.0 / 100 + 1 {
        assert!(!access.learn(teller.peer_id(), &update) && access.lock().roster.get(&PeerId([0; 32])).is_none());
    }
    // It gets eight more in each second that this takes.
    assert!(!left() || before.elapsed() > Duration::from_millis(100));
    let is_there = |access: &Access| access.lock().shown.contains_key(&name(&teller));
    access.forget_gone(|_| false);
    assert!(is_there(&access), "it may be connecting again");
}

#[test]
fn who_is_in_no_view_tells_the_secret_to_those_who_may_have_it() {
    let world = World::new();
    let [founder, guest, back, stranger, gone, bound] = [(); 6].map(|()| Identity::generate());
    let dir = world.dir.path().join("back");
    let parties = (RUN, Some(world.key.public()));
    let open = |grant| Access::open(back.peer_id(), parties, &world.bearing(&grant), &[], &dir).expect("opened");
    let returner = open(world.grant(InvitationSpec::default()));
    returner.enter(&[&back, &founder, &gone].map(name), &[]);
    assert!(returner.adopt(world.renewal(None, &gone)));
    returner.store().expect("stored");
    // It comes back, and has not heard who is a member now.
    let returner = open(world.grant(InvitationSpec::default()));
    let whom = InvitationSpec { whom: Some(name(&bound)), ..InvitationSpec::default() };
    let outdated = |identity: &Identity| world.pass(identity, InvitationSpec::default());
    let passes = [(&guest, outdated(&guest)), (&stranger, Pass::default().encode()), (&founder, outdated(&founder))];
    for (peer, pass) in passes.iter().chain([&(&bound, world.pass(&bound, whom))]) {
        assert_eq!(denied(&returner, peer, pass), None, "it can't judge");
    }
    assert_eq!([&guest, &stranger].map(|peer| told(&returner, peer)), [None, None]);
    assert!([&founder, &bound].iter().all(|peer| told(&returner, peer).is_some()));
    // Once it can, who has become a member meanwhile may.
    returner.enter(&[&back, &founder, &guest].map(name), &[]);
    assert!(told(&returner, &guest).is_some() && told(&returner, &stranger).is_none());
}

#[test]
fn who_knows_an_old_secret_is_judged_also_by_those_who_came_after_it() {
    let world = World::new();
    let [founder, first, second, late] = [(); 4].map(|()| Identity::generate());
    let access = world.member(&founder, InvitationSpec::default());
    access.enter(&[name(&founder)], &[]);
    let once = world.renewal(None, &first);
    let twice = world.renewal(Some(&once), &second);
    assert!(access.adopt(once) && access.adopt(twice.clone()));
    access.store().expect("stored");
    let again = world.member(&founder, InvitationSpec::default());
    assert_eq!(again.secrets().len(), 3, "the first one too, after any number of restarts");
    assert!(again.secret() == twice.secrets.first().copied() && again.secrets().contains(&Secret::new(SECRET)));
    // Who joins later with the newest alone hears of those before.
    let grant = world.grant(InvitationSpec { epoch: 2, ..InvitationSpec::default() });
    let credentials = Credentials { secret: again.secret(), ..world.bearing(&grant) };
    let (dir, parties) = (world.dir.path().join("late"), (RUN, Some(world.key.public())));
    let joiner = Access::open(late.peer_id(), parties, &credentials, &[], &dir).expect("opened");
    assert_eq!(meet((&again, &founder), (&joiner, &late)), [None, None]);
    assert!(joiner.learn(founder.peer_id(), &told(&again, &late).expect("an update")));
    assert_eq!(joiner.secrets().len(), 3);
    // A peer that does not take the newest, since it has been away, is shown an earlier one the next time.
    let (shown, peer) = (|| joiner.secret_for(&first.peer_id()), first.peer_id());
    assert!(shown() == Secret::new(joiner.secret()));
    joiner.was_refused_by(peer);
    joiner.was_refused_by(peer);
    assert!(shown() == Secret::new(SECRET));
}

#[test]
fn two_lists_of_one_number_end_as_one_everywhere() {
    let world = World::new();
    let [a, b, first, second] = [(); 4].map(|()| Identity::generate());
    let sides = [&a, &b].map(|identity| world.member(identity, InvitationSpec::default()));
    let lists = [&first, &second].map(|gone| world.renewal(None, gone));
    for (side, list) in sides.iter().zip(&lists) {
        side.enter(&[&a, &b, &first, &second].map(name), &[]);
        assert!(side.adopt(list.clone()) && side.take_warning().is_none());
    }
    assert_eq!(meet((&sides[0], &a), (&sides[1], &b)), [None, None]);
    let updates = [told(&sides[0], &b).expect("an update"), told(&sides[1], &a).expect("an update")];
    sides[1].learn(a.peer_id(), &updates[0]);
    sides[0].learn(b.peer_id(), &updates[1]);
    let wins = if lists[0].list.precedes(&lists[1].list) { &lists[0] } else { &lists[1] };
    let lost = if lists[0].list.precedes(&lists[1].list) { &second } else { &first };
    for side in &sides {
        assert_eq!((side.revoked(), side.secret()), (wins.list.peers.clone(), wins.secrets.first().copied()));
        let warning = side.take_warning().expect("it is told");
        assert!(warning.contains(&lost.peer_id().to_string()), "{warning}");
    }
    // Who knows no other secret than that of the list that lost gets as far as to be told.
    let losing = if wins == &lists[0] { 1 } else { 0 };
    assert!(sides[losing].secrets().contains(&Secret::new(lists[losing].secrets.first().copied())));
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
    assert_eq!(denied(&closed, &other, &nothing(&other)), Some(DenialReason::NotInvited));
}

#[tokio::test]
async fn what_is_new_is_written_by_one_thread_however_much_there_is() {
    let world = World::new();
    let founder = Identity::generate();
    let access = world.member(&founder, InvitationSpec::default());
    let holders = || Arc::strong_count(&access.0);
    {
        // A disk that hangs.
        let _writing = access.0.writing.lock().expect("not poisoned");
        (0..50).for_each(|_| access.keep());
        assert_eq!(holders(), 2);
    }
    while holders() > 1 {
        tokio::task::yield_now().await;
    }
    assert!(world.member(&founder, InvitationSpec::default()).lock().roster.has_seen(&name(&founder)));
    let _writing = access.0.writing.lock().expect("not poisoned");
    access.keep();
    assert_eq!(holders(), 2, "and the next time");
}

#[test]
fn what_the_decree_says_counts_and_not_what_its_bearer_shows_besides() {
    let world = World::new();
    let [member, guest, other] = [(); 3].map(|()| Identity::generate());
    let access = world.member(&member, InvitationSpec::default());
    let once = world.grant(InvitationSpec { once: true, ..InvitationSpec::default() });
    let by = once.present(name(&guest)).encode();
    // It connects here by another one, and is let in by a decree of members at which it has shown the first.
    assert_eq!(denied(&access, &guest, &world.pass(&guest, InvitationSpec::default())), None);
    let decreed = [joiner(&guest, by.clone())];
    assert!(access.admits(&decreed));
    access.enter(&[&member, &guest].map(name), &decreed);
    assert_eq!(denied(&access, &other, &world.pass_by(&other, &once)), Some(DenialReason::Used));
    // Nor does another one that it asks by: signatures of its making are not looked at.
    let asks = |pass: Vec<u8>| access.may_join(name(&guest), &pass);
    assert_eq!((asks(by), asks(Vec::new())), (Err(Doubt::NotShown), Ok(())));
    // What it has used up stays so when it comes back otherwise.
    let back = [joiner(&guest, world.grant(InvitationSpec::default()).present(name(&guest)).encode())];
    access.enter(&[name(&member)], &[]);
    access.enter(&[&member, &guest].map(name), &back);
    assert_eq!(denied(&access, &other, &world.pass_by(&other, &once)), Some(DenialReason::Used));
}

#[test]
fn one_bad_entry_silences_nobody() {
    let world = World::new();
    let [member, teller, bad, good] = [(); 4].map(|()| Identity::generate());
    let (access, theirs) =
        (world.member(&member, InvitationSpec::default()), world.member(&teller, InvitationSpec::default()));
    access.enter(&[&member, &teller].map(name), &[]);
    assert_eq!(meet((&access, &member), (&theirs, &teller)), [None, None]);
    let open = world.grant(InvitationSpec::default());
    let entries = [(name(&bad), open.present(name(&good))), (name(&good), open.present(name(&good)))];
    assert!(tell(&access, &teller, &entries));
    let roster = access.lock().roster.clone();
    assert!(roster.get(&name(&bad)).is_none() && roster.get(&name(&good)).is_some());
}

#[test]
fn a_wrong_ticket_does_not_take_the_place_of_a_good_one() {
    let world = World::new();
    let [me, member] = [(); 2].map(|()| Identity::generate());
    let dir = world.dir.path().join("back");
    let parties = (RUN, Some(world.key.public()));
    let good = world.bearing(&world.grant(InvitationSpec::default()));
    crate::credentials::secret::store_first(&dir, RUN, &good).expect("stored");
    let kept =
        || crate::credentials::secret::load(&dir, RUN).map(|kept| (kept.secret, kept.invitation)).expect("there");
    let open = |ticket: &Credentials| {
        crate::credentials::secret::store_first(&dir, RUN, ticket).expect("kept");
        Access::open(me.peer_id(), parties, ticket, &[], &dir).expect("opened")
    };
    let shows = |access: &Access, secret| {
        let pass = world.pass(&member, InvitationSpec::default());
        assert!(access.judge(member.peer_id(), Secret::new(secret), &pass).is_ok());
        access.store().expect("stored");
    };
    // Another secret, as somebody has made it up who lets everybody in; and an invitation of nobody's.
    let wrong = Credentials { secret: Some([8; 32]), ..world.bearing(&world.grant(InvitationSpec::default())) };
    let access = open(&wrong);
    shows(&access, wrong.secret);
    assert_eq!(kept(), (good.secret, good.invitation.clone()), "that one is in no view of ours");
    let forged = world.bearing(&InvitationKey::sign(&FounderKey::generate(), RUN, InvitationSpec::default()));
    let access = open(&forged);
    access.enter(&[&me, &member].map(name), &[]);
    shows(&access, SECRET);
    assert_eq!(kept(), (good.secret, good.invitation), "it was not let in by that");
    // One by which a member lets it in is.
    let newer = world.bearing(&world.grant(InvitationSpec::default()));
    let access = open(&newer);
    shows(&access, SECRET);
    assert_ne!(kept().1, newer.invitation);
    access.enter(&[&me, &member].map(name), &[]);
    access.store().expect("stored");
    assert_eq!(kept(), (newer.secret, newer.invitation));
}

#[test]
fn forged_lists_are_looked_at_a_few_times() {
    let world = World::new();
    let [member, liar, honest, gone] = [(); 4].map(|()| Identity::generate());
    let access = world.member(&member, InvitationSpec::default());
    for other in [&liar, &honest] {
        let theirs = world.member(other, InvitationSpec::default());
        assert_eq!(meet((&access, &member), (&theirs, other)), [None, None]);
    }
    let nobody = Vec::<(PeerId, PresentedInvitation)>::new();
    let update = |renewal: RevocationUpdate| {
        postcard::to_allocvec(&(Some(renewal), &nobody, Consents::default(), 0u32)).expect("encoded")
    };
    let bytes = update(RevocationUpdate::after(None, &FounderKey::generate(), RUN, name(&member), SECRET));
    let left = || access.lock().shown.get_mut(&name(&liar)).expect("there").allowance.take(64, Instant::now());
    let before = Instant::now();
    (0..TOLD.0 / 64).for_each(|_| assert!(!access.learn(liar.peer_id(), &bytes)));
    assert!(!left() || before.elapsed() > Duration::from_secs(1), "each has its cost");
    let right = update(world.renewal(None, &gone));
    assert!(access.learn(honest.peer_id(), &right) && access.is_revoked(&name(&gone)));
}

#[test]
fn a_keeper_forgets_the_other_keys_of_whoever_is_revoked() {
    let world = World::new();
    let [keeper, founder, member, gone, second, third] = [(); 6].map(|()| Identity::generate());
    let (dir, parties) = (world.dir.path().join("keeper"), (RUN, Some(world.key.public())));
    let credentials = world.credentials(InvitationSpec { role: Role::Keeper, ..InvitationSpec::default() });
    let access = Access::open(keeper.peer_id(), parties, &credentials, &[], &dir).expect("opened");
    let access = access.keeping([name(&founder)], Quorum::Majority);
    let open = world.grant(InvitationSpec::default());
    for peer in [&founder, &member, &gone, &second, &third] {
        assert_eq!(denied(&access, peer, &world.pass_by(peer, &open)), None);
    }
    let entry = |identity: &Identity| (name(identity), open.present(name(identity)));
    assert!(tell(&access, &founder, &[&founder, &member, &gone].map(entry)));
    // Keys of one and the same vouch for each other, and for themselves.
    assert!(tell(&access, &gone, &[entry(&second)]) && !tell(&access, &second, &[entry(&second)]));
    assert!(tell(&access, &second, &[entry(&third)]) && tell(&access, &third, &[entry(&second)]));
    tell(&access, &member, &[&founder, &member].map(entry));
    assert!(access.adopt(world.renewal(None, &gone)));
    let knows = |access: &Access| {
        [&founder, &member, &gone, &second, &third].map(|peer| access.lock().roster.get(&name(peer)).is_some())
    };
    assert_eq!(knows(&access), [true, true, false, false, false]);
    assert_eq!(denied(&access, &second, &world.pass_by(&second, &open)), Some(DenialReason::Outdated));
    assert!(!access.may_stay(name(&third)) && !tell(&access, &third, &[entry(&second)]));
    // Nor do they begin anew with one who knows nobody, and has the founder's list.
    let fresh =
        Access::open(keeper.peer_id(), parties, &credentials, &[], &dir).expect("opened").keeping([], Quorum::Majority);
    assert!(fresh.adopt(world.renewal(None, &gone)));
    denied(&fresh, &second, &world.pass_by(&second, &open));
    assert!(!tell(&fresh, &second, &[&second, &third].map(entry)));
}

#[test]
fn who_waits_to_be_let_in_serves_those_whose_invitation_holds() {
    let world = World::new();
    let [me, member, gone, old, guest, visitor] = [(); 6].map(|()| Identity::generate());
    let dir = world.dir.path().join("back");
    let parties = (RUN, Some(world.key.public()));
    let credentials = world.credentials(InvitationSpec::default());
    let open = || Access::open(me.peer_id(), parties, &credentials, &[], &dir).expect("opened");
    let access = open();
    access.enter(&[&me, &member].map(name), &[]);
    assert!(access.adopt(world.renewal(None, &gone)));
    access.store().expect("stored");
    let access = open();
    let new = world.pass(&guest, InvitationSpec { epoch: 1, ..InvitationSpec::default() });
    for (peer, pass) in
        [(&old, world.pass(&old, InvitationSpec::default())), (&guest, new), (&member, Pass::default().encode())]
    {
        assert_eq!(denied(&access, peer, &pass), None, "it can't judge");
    }
    assert_eq!([&old, &guest, &member, &gone].map(|peer| access.may_fetch(name(peer))), [false, true, true, false]);
    let sent = Credentials { secret: SECRET, bearer: Some(member), ..Credentials::default() };
    let pass = Access::visiting(visitor.peer_id(), Some(RUN), &sent).pass();
    assert!(denied(&access, &visitor, &pass).is_none() && access.may_fetch(name(&visitor)), "it speaks for a member");
    access.enter(&[&me, &old].map(name), &[]);
    assert!(access.may_fetch(name(&old)), "it is a member");
}

#[test]
fn what_is_written_to_logs_has_no_secret() {
    let world = World::new();
    let [me, gone] = [(); 2].map(|()| Identity::generate());
    let secret = [171; 32];
    let credentials = Credentials { secret: Some(secret), ..world.credentials(InvitationSpec::default()) };
    let renewal = RevocationUpdate::after(None, &world.key, RUN, name(&gone), Some(secret));
    let access = Access::visiting(me.peer_id(), Some(RUN), &credentials);
    let target = crate::settings::Target::Address("/ip4/192.0.2.1/tcp/1".parse().expect("an address"));
    let expected = crate::settings::ExpectedSettings::default();
    let joining =
        crate::settings::JoinOptions { target, secret: Some(secret), invitation: None, expected, alone: false };
    for text in [format!("{credentials:?}"), format!("{renewal:?}"), format!("{access:?}"), format!("{joining:?}")] {
        assert!(!text.contains("171, 171"), "{text}");
    }
}

/// Members of one view, which all are connected, and the key that is to have the founder's place.
struct Electorate {
    world: World,
    view: View,
    members: Vec<(Identity, Access)>,
    next: FounderKey,
}

impl Electorate {
    fn new(count: usize) -> Self {
        let (world, next) = (World::new(), FounderKey::generate());
        let identities: Vec<Identity> = (0..count).map(|_| Identity::generate()).collect();
        let view = View::found(RUN, name(&identities[0])).succeed(identities.iter().map(name));
        let members = identities.into_iter().map(|identity| {
            let access = world.member(&identity, InvitationSpec::default()).signing(&identity);
            (identity, access)
        });
        let this = Self { members: members.collect(), world, view, next };
        this.members.iter().for_each(|(_, access)| this.enter(access));
        for (at, (a, of_a)) in this.members.iter().enumerate() {
            for (b, of_b) in &this.members[at + 1..] {
                assert_eq!(meet((of_a, a), (of_b, b)), [None, None]);
            }
        }
        this
    }

    fn enter(&self, access: &Access) {
        access.counts_by(&self.view);
        access.enter(self.view.members(), &[]);
    }

    /// These all tell each other what is new, until nothing is.
    fn talk(&self, among: &[usize]) {
        while self.says_more(among) {}
    }

    fn says_more(&self, among: &[usize]) -> bool {
        let pairs =
            among.iter().flat_map(|from| among.iter().map(move |to| (*from, *to))).filter(|(from, to)| from != to);
        pairs.fold(false, |more, (from, to)| {
            let ((from, teller), (to, hearer)) = (&self.members[from], &self.members[to]);
            let told = told(teller, to);
            told.as_ref().is_some_and(|told| hearer.learn(from.peer_id(), told)) || more
        })
    }

    fn line(&self) -> Line {
        Line::default().followed_by(self.next.public())
    }

    fn consents(&self, member: usize) {
        let (identity, access) = &self.members[member];
        access.consent(&Consent::sign(self.line(), RUN, identity));
    }

    fn number(&self, member: usize) -> usize {
        self.members[member].1.lock().number()
    }

    fn revokes(&self, key: &FounderKey, before: Option<&RevocationUpdate>) -> RevocationUpdate {
        let now = before.map_or(SECRET, |before| before.secrets.first().copied());
        RevocationUpdate::after(before, key, RUN, PeerId([7; 32]), now)
    }
}

/// What a peer tells of consents alone.
fn tell_consents(access: &Access, teller: &Identity, told: &[(Line, PeerId, Vec<u8>)]) {
    let mut consents = Consents::default();
    told.iter().for_each(|(line, peer, signature)| consents.insert(line, *peer, signature.clone()));
    let update =
        postcard::to_allocvec(&(None::<RevocationUpdate>, Vec::<(PeerId, PresentedInvitation)>::new(), consents, 0u32));
    access.learn(teller.peer_id(), &update.expect("encoded"));
}

#[test]
fn a_quorum_appoints_and_the_key_before_revokes_and_invites_nobody_any_more() {
    let all = Electorate::new(4);
    let everybody = [0, 1, 2, 3];
    let old = all.revokes(&all.world.key, None);
    assert!(all.members[0].1.adopt(old.clone()));
    all.talk(&everybody);
    // Two are half of them, without the casting vote.
    for member in [1, 2] {
        all.consents(member);
        all.talk(&everybody);
        assert_eq!(everybody.map(|member| all.number(member)), [0; 4]);
    }
    let [early, late] = [(); 2].map(|()| all.revokes(&all.next, Some(&old)));
    assert!(!all.members[0].1.adopt(early), "it has not the place yet");
    all.consents(3);
    // One is cut off meanwhile.
    all.talk(&[1, 2, 3]);
    assert_eq!(everybody.map(|member| all.number(member)), [0, 1, 1, 1]);
    all.talk(&everybody);
    assert_eq!(everybody.map(|member| all.number(member)), [1; 4]);
    let guest = Identity::generate();
    let by_key = |key: &FounderKey, epoch| {
        let grant = InvitationKey::sign(key, RUN, InvitationSpec { epoch, ..InvitationSpec::default() });
        all.world.pass_by(&guest, &grant)
    };
    for (_, access) in &all.members {
        assert!(access.take_warning().is_some_and(|it| it.contains("founder's place")));
        assert!(access.revoked().contains(&PeerId([7; 32])), "what was revoked before stays so");
        assert!(!access.adopt(all.revokes(&all.world.key, Some(&old))), "the key before revokes nobody");
        assert_eq!(denied(access, &guest, &by_key(&all.next, 0)), None);
        assert_eq!(denied(access, &guest, &by_key(&all.world.key, 1)), None, "until the next revocation");
    }
    // The new key counts its own revocations, so that whoever stole the one before has used up nothing.
    assert_eq!(late.list.epoch, 1);
    assert!(all.members[2].1.adopt(late.clone()));
    all.talk(&everybody);
    for (_, access) in &all.members {
        assert_eq!(access.lock().renewal.as_ref().map(|renewal| renewal.list.mark()), Some(late.list.mark()));
        assert_eq!(denied(access, &guest, &by_key(&all.world.key, u64::MAX)), Some(DenialReason::Outdated));
        assert_eq!(denied(access, &guest, &by_key(&all.next, 0)), Some(DenialReason::Outdated));
        assert_eq!(denied(access, &guest, &by_key(&all.next, 1)), None);
        let endless = all.revokes(&all.world.key, Some(&late));
        assert!(!access.adopt(endless));
    }
    // All that is on disk.
    for (identity, access) in &all.members {
        access.store().expect("stored");
        let again = all.world.member(identity, InvitationSpec::default()).signing(identity);
        assert_eq!(again.lock().number(), 1);
        assert_eq!(again.lock().renewal.as_ref().map(|renewal| renewal.list.mark()), Some(late.list.mark()));
        assert!(!again.adopt(all.revokes(&all.world.key, Some(&old))));
    }
}

#[test]
fn too_few_forged_replayed_and_other_runs_consents_appoint_nobody() {
    let all = Electorate::new(4);
    let (line, other) = (all.line(), Line::default().followed_by(PeerId([8; 32])));
    let strangers = [(); 4].map(|()| Identity::generate());
    let (teller, access) = (&all.members[1].0, &all.members[0].1);
    let of = |signer: &Identity, line: &Line, run| (line.clone(), name(signer), line.sign(run, signer));
    let members: Vec<&Identity> = all.members.iter().map(|(identity, _)| identity).collect();
    // A liar's own, and what it makes up for the others: signatures of its own, of other runs, of other lines, and empty ones.
    let mut told = vec![of(members[1], &line, RUN)];
    told.extend(members[2..].iter().map(|member| (line.clone(), name(member), line.sign(RUN, teller))));
    tell_consents(access, teller, &told);
    tell_consents(access, teller, &members[2..].iter().map(|it| of(it, &line, RunId([4; 32]))).collect::<Vec<_>>());
    let replayed = members[2..].iter().map(|it| (line.clone(), name(it), other.sign(RUN, it)));
    tell_consents(access, teller, &replayed.collect::<Vec<_>>());
    tell_consents(access, teller, &[(line.clone(), name(members[2]), Vec::new())]);
    // Any number of keys that are no members'.
    tell_consents(access, teller, &strangers.iter().map(|it| of(it, &line, RUN)).collect::<Vec<_>>());
    assert_eq!((all.number(0), access.lock().consents.iter().count()), (0, 1), "its own is all that is kept");
    // Of a line in which somebody comes back, not even that.
    let back = Line::default().followed_by(all.world.key.public());
    tell_consents(access, teller, &members.iter().map(|it| of(it, &back, RUN)).collect::<Vec<_>>());
    assert_eq!(all.number(0), 0);
    // A fork, in which these would be a quorum, decides nothing; what was heard counts in the next view that is none.
    let sound = [1, 2, 3].map(|at| of(members[at], &line, RUN));
    access.counts_by(&View::fork(RUN, name(members[0]), None));
    tell_consents(access, teller, &sound);
    assert_eq!(all.number(0), 0);
    access.counts_by(&all.view);
    assert_eq!(all.number(0), 1);
    // It can't be taken back by what counted before, nor by a shorter line.
    tell_consents(access, teller, &[1, 2, 3].map(|at| of(members[at], &Line::default(), RUN)));
    assert_eq!(all.number(0), 1);
}

#[test]
fn of_two_appointments_of_one_number_one_counts_everywhere() {
    let all = Electorate::new(3);
    let lines = [all.line(), Line::default().followed_by(PeerId([8; 32]))];
    let counts = lines.iter().reduce(|best, line| if line.precedes(best) { line } else { best }).expect("two");
    let of =
        |line: &Line| [0, 1].map(|at| (line.clone(), name(&all.members[at].0), line.sign(RUN, &all.members[at].0)));
    // The same two have consented to both, and each is heard elsewhere first.
    tell_consents(&all.members[2].1, &all.members[0].0, &of(&lines[0]));
    tell_consents(&all.members[0].1, &all.members[1].0, &of(&lines[1]));
    assert_eq!([all.number(0), all.number(2)], [1, 1]);
    all.talk(&[0, 1, 2]);
    for (_, access) in &all.members {
        assert_eq!(access.lock().office.as_ref().map(|office| &office.line), Some(counts));
    }
}

#[test]
fn who_comes_later_and_a_keeper_hear_who_has_the_place() {
    let all = Electorate::new(4);
    let everybody = [0, 1, 2, 3];
    all.consents(0);
    all.consents(1);
    all.talk(&everybody);
    assert_eq!(all.number(3), 1);
    // Those who decided leave, and others come, with a ticket of before.
    let late = Identity::generate();
    let joiner = Access::open(
        late.peer_id(),
        (RUN, Some(all.world.key.public())),
        &all.world.credentials(InvitationSpec::default()),
        &[],
        &all.world.dir.path().join("late"),
    );
    let joiner = joiner.expect("opened").signing(&late);
    let view = all.view.succeed([2, 3].map(|at| name(&all.members[at].0)).into_iter().chain([name(&late)]));
    for at in [2, 3] {
        let (identity, access) = &all.members[at];
        assert_eq!(meet((&joiner, &late), (access, identity)), [None, None]);
        // It hears of it before it knows who is in its view, and can't count.
        joiner.learn(identity.peer_id(), &told(access, &late).expect("news"));
        assert_eq!(joiner.lock().number(), 0);
        access.counts_by(&view);
        access.enter(view.members(), &[]);
    }
    joiner.counts_by(&view);
    joiner.enter(view.members(), &[]);
    assert_eq!(joiner.lock().number(), 1, "those who have stayed say so");
    // A keeper goes by those whom its ticket names.
    let keeps = Identity::generate();
    let open = |named: &[usize]| {
        let parties = (RUN, Some(all.world.key.public()));
        let dir = all.world.dir.path().join("keeper");
        let access =
            Access::open(keeps.peer_id(), parties, &all.world.credentials(InvitationSpec::default()), &[], &dir);
        access.expect("opened").keeping(named.iter().map(|at| name(&all.members[*at].0)), Quorum::Majority)
    };
    for (named, number) in [(&[0, 1, 2][..], 0), (&[2], 1), (&[2, 3], 1)] {
        let keeper = open(named);
        let (identity, access) = &all.members[2];
        assert_eq!(meet((&keeper, &keeps), (access, identity)), [None, None]);
        let sound: Vec<_> = [2, 3]
            .iter()
            .map(|at| {
                let identity = &all.members[*at].0;
                (all.line(), name(identity), all.line().sign(RUN, identity))
            })
            .collect();
        tell_consents(&keeper, identity, &sound);
        assert_eq!(keeper.lock().number(), number, "{named:?}");
    }
}

#[test]
fn whatever_bytes_are_told_appoint_nobody() {
    let all = Electorate::new(3);
    let (teller, access) = (&all.members[1].0, &all.members[0].1);
    all.consents(1);
    let bytes = told(&all.members[1].1, &all.members[0].0).expect("news");
    (0..bytes.len()).for_each(|length| _ = access.learn(teller.peer_id(), &bytes[..length]));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 0x55;
        access.learn(teller.peer_id(), &changed);
    }
    // A line of more keys than there may be, with as many who have consented to it.
    let long = (0..64).fold(Line::default(), |line, at| line.followed_by(PeerId([at; 32])));
    let names = (0..4096u32).map(|at| PeerId(*blake3::hash(&at.to_le_bytes()).as_bytes()));
    tell_consents(access, teller, &names.map(|name| (long.clone(), name, vec![0; 64])).collect::<Vec<_>>());
    access.learn(teller.peer_id(), &bytes);
    let kept = access.lock().consents.iter().count();
    assert_eq!((all.number(0), access.revoked(), kept), (0, vec![], 1), "what is right counts");
}
