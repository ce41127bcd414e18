//! Transport protocols of ports.

use serde::Deserialize;

/// A transport protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
pub enum Protocol {
    /// `TCP`, the default.
    #[default]
    #[serde(rename = "TCP")]
    Tcp,
    /// `UDP`.
    #[serde(rename = "UDP")]
    Udp,
    /// `SCTP`.
    #[serde(rename = "SCTP")]
    Sctp,
}

impl Protocol {
    /// Every protocol that a Service may have.
    pub const ALL: [Self; 3] = [Self::Tcp, Self::Udp, Self::Sctp];

    /// Its number in the header of a packet.
    pub fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
            Self::Sctp => 132,
        }
    }

    /// Its name in lower case, as nft and SRV records write it.
    pub fn lower(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Sctp => "sctp",
        }
    }
}
