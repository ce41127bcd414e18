//! The identity of this server, as upstream makes it of the name of the host.

use sha2::{Digest, Sha256};
use std::fmt::Write as _;

const COMPONENT: &str = "kube-apiserver";
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
const BITS: u32 = 5;
/// Bytes of the digest that the identity has.
const KEPT: usize = 16;

/// SHA-256 of the identity, as metrics have it; empty where the host has no name.
pub(super) fn hash() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match host.trim() {
        "" => String::new(),
        host => hash_of(identity(host)),
    }
}

/// SHA-256 as labels have it.
pub(super) fn hash_of(identity: impl AsRef<[u8]>) -> String {
    let mut text = String::from("sha256:");
    for byte in Sha256::digest(identity) {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

fn identity(host: &str) -> String {
    let mut digest = Sha256::new();
    for part in [host, COMPONENT] {
        let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
        digest.update(length.to_be_bytes());
        digest.update(part);
    }
    format!("apiserver-{}", base32(&digest.finalize()[..KEPT]))
}

/// RFC 4648's, in lower case and without padding.
fn base32(bytes: &[u8]) -> String {
    let mut text = String::new();
    let (mut held, mut bits) = (0_u32, 0_u32);
    let mut push = |five: u32| text.push(char::from(ALPHABET[(five & 31) as usize]));
    for byte in bytes {
        held = ((held << 8) | u32::from(*byte)) & 0xfff;
        bits += 8;
        while bits >= BITS {
            bits -= BITS;
            push(held >> bits);
        }
    }
    if bits > 0 {
        push(held << (BITS - bits));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Go makes them.
    #[test]
    fn server_identity_is_made_of_the_host_name() {
        assert_eq!(identity("node-1"), "apiserver-lgabes5ywnaqeagh5dny4zlzs4");
        let expected = "sha256:301f0ab033485d02da8c424142b92d830c6cb0fe2a367f125571d58c8d83307e";
        assert_eq!(hash_of(identity("node-1")), expected);
    }
}
