//! Clients that stay with an endpoint (`sessionAffinity: ClientIP`).
//!
//! The kernel notes by itself where a client's connection went, for as long as the service says after the last one
//! (`affinity` in [`mod@crate::table`]); it notes only endpoints that the service still has (`sticky…`). Here is what
//! has to be done from outside: notes of endpoints that are gone are taken away, and when the table is rewritten
//! its notes go with it.

use crate::elements::{Elements, Frontend, Key};
use machinery_views::Protocol;
use node_sys::nftables::PresentElement;
use std::net::Ipv4Addr;
use std::time::Duration;

/// Times for which the table has sets. A time between two of them is rounded up, so that a tenant with a thousand
/// times of its own does not make a thousand rules that every connection passes.
pub const STEPS: [u32; 20] = [
    1, 2, 3, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400,
];

/// The step of a time.
pub fn step(seconds: u32) -> u32 {
    let found = STEPS.into_iter().find(|step| seconds <= *step);
    found.unwrap_or(STEPS[STEPS.len() - 1])
}

/// A note of the kernel's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AffinityEntry {
    pub client: Ipv4Addr,
    /// Address to which the client connected.
    pub address: Ipv4Addr,
    pub protocol: Protocol,
    pub port: u16,
    /// Endpoint to which it was sent.
    pub target: (Ipv4Addr, u16),
    pub expires_in: Duration,
}

impl AffinityEntry {
    /// Reads an element of the map.
    pub fn read(element: &PresentElement) -> Option<Self> {
        let key = element.key.first_chunk::<16>()?;
        let data = element.data.first_chunk::<8>()?;
        let address =
            |bytes: &[u8], at: usize| Ipv4Addr::new(bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]);
        Some(Self {
            client: address(key, 0),
            address: address(key, 4),
            protocol: Protocol::ALL.into_iter().find(|one| one.number() == key[8])?,
            port: u16::from_be_bytes([key[12], key[13]]),
            target: (address(data, 0), u16::from_be_bytes([data[4], data[5]])),
            expires_in: element.expires_in?,
        })
    }

    /// The key of its element.
    pub fn key(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..4].copy_from_slice(&self.client.octets());
        out[4..8].copy_from_slice(&self.address.octets());
        out[8] = self.protocol.number();
        out[12..14].copy_from_slice(&self.port.to_be_bytes());
        out
    }

    /// Reports whether the service still has this endpoint.
    pub fn holds(&self, elements: &Elements) -> bool {
        let frontends = [
            Frontend::Address(self.address, self.protocol, self.port),
            Frontend::NodePort(self.protocol, self.port),
        ];
        let sticky = |frontend| elements.get(&Key::Sticky(frontend, self.target)).is_some();
        frontends.into_iter().any(sticky)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_is_read_and_named_as_the_kernel_does() {
        let note = AffinityEntry {
            client: Ipv4Addr::new(192, 0, 2, 9),
            address: Ipv4Addr::new(10, 96, 0, 5),
            protocol: Protocol::Udp,
            port: 53,
            target: (Ipv4Addr::new(10, 244, 0, 2), 5353),
            expires_in: Duration::from_secs(7),
        };
        let element = PresentElement {
            key: note.key().to_vec(),
            data: vec![10, 244, 0, 2, 0x14, 0xe9, 0, 0],
            expires_in: Some(Duration::from_secs(7)),
        };
        assert_eq!(AffinityEntry::read(&element), Some(note));
    }

    #[test]
    fn affinity_time_is_rounded_up_to_a_step() {
        assert_eq!(
            [1, 4, 10_800, 10_801, 86_400].map(step),
            [1, 5, 10_800, 21_600, 86_400]
        );
    }
}
