//! The secret that admits to a private run.

use std::path::{Path, PathBuf};

use starling_run::Manifest;
use starling_topology::RunId;

use crate::access::Credentials;
use crate::credentials::appointment::Office;
use crate::credentials::founder::FounderKey;
use crate::credentials::invitation::{InvitationKey, InvitationSpec};
use crate::credentials::revocations::RevocationUpdate;
use crate::error::NodeError;
use crate::store::private_file;

/// Proof of membership in a run. 32 random bytes for a private run; a constant that everybody knows for a public one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret([u8; 32]);

impl std::fmt::Debug for Secret {
    /// Leaves the secret out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    pub(crate) fn new(bytes: Option<[u8; 32]>) -> Self {
        Self(bytes.unwrap_or_else(|| blake3::derive_key("starling 2026 a public run admits everybody", &[])))
    }

    /// A message authentication code of `parts`, each behind its length.
    pub(crate) fn authenticate(&self, parts: &[&[u8]]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hasher.finalize()
    }
}

fn path(data_dir: &Path, run: RunId) -> PathBuf {
    data_dir.join(format!("secret-{}", &run.to_string()[..16]))
}

/// Where the same bytes lie once more, behind their blake3.
fn copy_path(data_dir: &Path, run: RunId) -> PathBuf {
    path(data_dir, run).with_extension("copy")
}

/// Bits in which a file may differ from its copy and be damaged. One that somebody has put in its place differs in many more.
const MAX_FLIPPED: u32 = 8;

/// What was `read`, or what its `copy` says that it was before some bits of it flipped, it was cut off, or overwritten with
/// what is no secret: nobody would admit us with that.
fn mended(read: Vec<u8>, copy: &[u8]) -> Vec<u8> {
    let Some((hash, whole)) = copy.split_first_chunk::<32>() else { return read };
    let flipped: u32 = read.iter().zip(whole).map(|(ours, theirs)| (ours ^ theirs).count_ones()).sum();
    let has_flipped = read.len() == whole.len() && (1..=MAX_FLIPPED).contains(&flipped);
    let is_damaged = has_flipped || parse(&read).is_none();
    if is_damaged && blake3::hash(whole) == *hash { whole.to_vec() } else { read }
}

/// What admits to `run`, as it is kept in `data_dir`, if anything: the secret, and behind it the invitation.
///
/// # Errors
/// [`NodeError::File`] if the file can't be read or holds no secret.
pub(crate) fn load(data_dir: &Path, run: RunId) -> Result<Credentials, NodeError> {
    let path = path(data_dir, run);
    let Some(bytes) = private_file::read(&path)? else { return Ok(Credentials::default()) };
    // A copy that can't be read mends nothing.
    let bytes = mended(bytes, &private_file::read(&copy_path(data_dir, run)).ok().flatten().unwrap_or_default());
    let (secret, invitation) = parse(&bytes).ok_or_else(|| {
        let message = format!(
            "a secret has 32 bytes, and an invitation may follow; this file has {} bytes, and no copy of it is whole: remove it, and \
             come with a ticket of the run again",
            bytes.len()
        );
        NodeError::file("read", &path, std::io::Error::new(std::io::ErrorKind::InvalidData, message))
    })?;
    Ok(Credentials { secret: Some(secret), invitation, bearer: None })
}

/// A secret's bytes, and an invitation if one follows.
pub fn parse(bytes: &[u8]) -> Option<([u8; 32], Option<InvitationKey>)> {
    let (secret, rest) = bytes.split_first_chunk()?;
    let invitation = if rest.is_empty() { None } else { Some(InvitationKey::decode(rest)?) };
    Some((*secret, invitation))
}

/// Keeps what admits to a private run in `data_dir` (mode 0600).
pub(crate) fn store(data_dir: &Path, run: RunId, credentials: &Credentials) -> Result<(), NodeError> {
    let Credentials { secret: Some(secret), invitation, .. } = credentials else { return Ok(()) };
    let invitation = invitation.as_ref().map(InvitationKey::encode).unwrap_or_default();
    let bytes = [&secret[..], &invitation].concat();
    private_file::write(&copy_path(data_dir, run), &[blake3::hash(&bytes).as_bytes(), &bytes[..]].concat())?;
    private_file::write(&path(data_dir, run), &bytes)
}

/// The same unless something is there: what a new ticket says takes its place once a member has let us in by it
/// ([`crate::access::Access::store`]). Until then that may be better.
pub(crate) fn store_first(data_dir: &Path, run: RunId, credentials: &Credentials) -> Result<(), NodeError> {
    if load(data_dir, run)?.secret.is_some() { Ok(()) } else { store(data_dir, run, credentials) }
}

/// What admits to a run that we founded, or came back to: from the data directory, or a fresh secret.
pub(crate) fn own(data_dir: &Path, manifest: &Manifest) -> Result<Credentials, NodeError> {
    let run = manifest.run_id();
    let kept = load(data_dir, run)?;
    let secret = kept.secret.unwrap_or_else(rand::random);
    let invitation = own_invitation(data_dir, manifest, kept.invitation)?;
    let credentials = Credentials { secret: Some(secret), invitation, bearer: None };
    store(data_dir, run, &credentials)?;
    Ok(credentials)
}

/// With which whoever has the founder's key comes, and everybody whom it hands its ticket: what was `kept`, or a new one if that
/// has ended.
pub(crate) fn own_invitation(
    data_dir: &Path,
    manifest: &Manifest,
    kept: Option<InvitationKey>,
) -> Result<Option<InvitationKey>, NodeError> {
    let run = manifest.run_id();
    let key = FounderKey::load(&FounderKey::file(data_dir))?;
    let office = manifest.founder.map(|founder| Office::load(data_dir, run, founder));
    let Some((key, office)) = key.zip(office).filter(|(key, office)| key.public() == office.holder()) else {
        return Ok(kept);
    };
    let renewal = RevocationUpdate::load(data_dir, run)?;
    let epoch = office.epoch(renewal.as_ref());
    let holds = |kept: &InvitationKey| !office.has_ended(&kept.invitation, renewal.as_ref());
    let fresh = || InvitationKey::sign(&key, run, InvitationSpec::open(epoch));
    Ok(Some(kept.filter(holds).unwrap_or_else(fresh)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_that_flip_are_mended_and_what_was_put_in_its_place_stays() {
        let folder = tempfile::tempdir().expect("a temp dir");
        let (dir, run) = (folder.path(), RunId([7; 32]));
        let credentials = |secret| Credentials { secret: Some(secret), invitation: None, bearer: None };
        let kept = || load(dir, run).expect("a secret").secret;
        store(dir, run, &credentials([5; 32])).expect("stored");
        for (at, bit) in [(0, 1), (17, 0x80), (31, 4)] {
            for file in [path(dir, run), copy_path(dir, run)] {
                store(dir, run, &credentials([5; 32])).expect("stored");
                let mut bytes = std::fs::read(&file).expect("there");
                bytes[at] ^= bit;
                std::fs::write(&file, bytes).expect("written");
                assert_eq!(kept(), Some([5; 32]), "{} at {at}", file.display());
            }
        }
        // Cut off, emptied, longer than it was.
        for damaged in [&[5_u8; 31][..], &[], &[5; 40]] {
            store(dir, run, &credentials([5; 32])).expect("stored");
            std::fs::write(path(dir, run), damaged).expect("written");
            assert_eq!(kept(), Some([5; 32]), "{} bytes", damaged.len());
        }
        // One of another member, by hand.
        std::fs::write(path(dir, run), [9; 32]).expect("written");
        assert_eq!(kept(), Some([9; 32]));
        std::fs::remove_file(copy_path(dir, run)).expect("there");
        assert_eq!(kept(), Some([9; 32]));
        assert_eq!(load(dir, RunId([8; 32])).expect("none").secret, None);
        std::fs::write(path(dir, run), [9; 31]).expect("written");
        let error = load(dir, run).expect_err("nothing mends it").to_string();
        assert!(error.contains("31 bytes, and no copy"), "{error}");
    }
}
