//! Which ways a link's bytes may take, and which one they take.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Which transports a node uses for its links. Both ends of a link take the best that both have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransportPolicy {
    /// Shared memory within a machine, direct connections where they can be made, libp2p streams elsewhere.
    #[default]
    Auto,
    /// Direct connections only: a link that can't be direct is broken.
    Direct,
    /// Direct connections without encryption, for networks that only trusted people and machines can reach. Both ends
    /// must say so, or the link is broken. They still prove who they are.
    Plaintext,
    /// Shared memory only: a link to another machine or another user's process is broken.
    Local,
    /// libp2p streams only.
    Universal,
}

impl FromStr for TransportPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let at = Self::NAMES.iter().position(|name| *name == text);
        at.map(|at| Self::ALL[at]).ok_or_else(|| format!("`{text}` is none of {}", Self::NAMES.join(", ")))
    }
}

impl TransportPolicy {
    /// What they are called.
    pub const NAMES: [&str; 5] = ["auto", "direct", "local", "universal", "plaintext"];
    const ALL: [Self; 5] = [Self::Auto, Self::Direct, Self::Local, Self::Universal, Self::Plaintext];

    /// Whether a link that is not made over TCP is broken.
    pub(crate) fn insists(self) -> bool {
        match self {
            Self::Direct | Self::Plaintext | Self::Local => true,
            Self::Auto | Self::Universal => false,
        }
    }

    /// Whether a link may be local.
    pub(crate) fn shares_memory(self) -> bool {
        match self {
            Self::Auto | Self::Local => true,
            Self::Direct | Self::Plaintext | Self::Universal => false,
        }
    }
}

/// How the bytes of one link travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Over a TCP connection of its own, encrypted.
    Direct,
    /// The same, readable by everybody on the way.
    Plaintext,
    /// Through memory that two processes on one machine share.
    Local,
    /// Over a libp2p stream.
    Universal,
}

impl Transport {
    /// Whether what the two members send is encrypted. What is local never leaves the machine, and is not.
    pub fn is_encrypted(self) -> bool {
        match self {
            Self::Direct | Self::Universal => true,
            Self::Plaintext | Self::Local => false,
        }
    }
}

impl std::fmt::Display for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Plaintext => "plaintext",
            Self::Local => "local",
            Self::Universal => "universal",
        })
    }
}
