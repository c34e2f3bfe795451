//! What members sign to decide a view: proposals, promises, echoes, the certificate that proves a decision, and what is written down of
//! them.

pub mod certificate;
pub mod echo;
pub mod promise;
pub mod proposal;
pub mod quorum;
pub mod record;
pub mod slot;
