//! The certificates of a connection's peer, and findings about them.

use crate::certificate::Certificate;
use crate::text::MAX_SHOWN;
use crate::unverified::Unverified;
use crate::user::UserError;
use jiff::Timestamp;
use machinery_meta::UserInfo;
use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use std::fmt::Write as _;
use std::sync::Arc;

/// A refusal is believed for so many seconds: certificates begin to count, and time is cheaper than signatures.
const BELIEVED_SECONDS: i64 = 10;
/// Sets of authorities that look at the same peer: clients' and front proxies'.
const MAX_FINDINGS: usize = 4;

/// Identity in a verified certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// Its last common name, and nothing where there is none.
    pub common_name: String,
    /// `None` where it has no common name.
    pub user: Result<Option<UserInfo>, UserError>,
}

/// The chain that a peer presented. Cloned with its connection's requests by reference.
#[derive(Debug)]
pub struct PeerCertificate {
    chain: Vec<CertificateDer<'static>>,
    not_after: Option<Timestamp>,
    identifier: String,
    findings: Mutex<Vec<Finding>>,
}

/// Last result of one set of authorities.
#[derive(Debug, Clone)]
pub(crate) struct Finding {
    /// Number of the set.
    pub(crate) of: u64,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    pub(crate) found: Result<Arc<Verified>, Unverified>,
}

impl Finding {
    /// A refusal, which is believed for a while.
    pub(crate) fn refused(of: u64, now: Timestamp, why: Unverified) -> Self {
        let until = now.saturating_add(jiff::SignedDuration::from_secs(BELIEVED_SECONDS));
        Self {
            of,
            from: now,
            until: until.unwrap_or(now),
            found: Err(why),
        }
    }
}

impl PeerCertificate {
    /// `None` when the peer sent no certificate.
    pub fn new(chain: &[CertificateDer<'_>]) -> Option<Self> {
        let leaf = Certificate::read(chain.first()?);
        Some(Self {
            not_after: leaf.as_ref().ok().map(|leaf| leaf.not_after),
            identifier: leaf.as_ref().map(identifier).unwrap_or_default(),
            chain: chain.iter().map(|one| one.clone().into_owned()).collect(),
            findings: Mutex::default(),
        })
    }

    /// The peer's own certificate.
    pub fn leaf(&self) -> &[u8] {
        self.chain.first().map_or(&[], AsRef::as_ref)
    }

    /// The peer's own certificate, and those that lead from it to an authority.
    pub(crate) fn chain(&self) -> &[CertificateDer<'static>] {
        &self.chain
    }

    /// The last moment at which the peer's own certificate counts; `None` where it cannot be read.
    pub fn not_after(&self) -> Option<Timestamp> {
        self.not_after
    }

    /// Serial number and identifiers of keys, as upstream names a certificate in an error.
    pub fn identifier(&self) -> &str {
        &self.identifier
    }

    pub(crate) fn finding(&self, of: u64, now: Timestamp) -> Option<Result<Arc<Verified>, Unverified>> {
        let findings = self.findings.lock();
        let counts = |own: &&Finding| own.of == of && own.from <= now && now <= own.until;
        findings.iter().find(counts).map(|own| own.found.clone())
    }

    /// Keeps a finding in place of the set's last one.
    pub(crate) fn keep(&self, finding: Finding, last: u64) {
        let mut findings = self.findings.lock();
        findings.retain(|own| own.of != last && own.of != finding.of);
        if findings.len() >= MAX_FINDINGS {
            findings.remove(0);
        }
        findings.push(finding);
    }
}

fn identifier(leaf: &Certificate<'_>) -> String {
    let [skid, akid] = [leaf.extensions.subject_key_id, leaf.extensions.authority_key_id].map(hex);
    format!("SN={}, SKID={skid}, AKID={akid}", decimal(leaf.serial))
}

/// Pairs of digits with colons between them.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for byte in bytes.iter().take(MAX_SHOWN / 3) {
        let colon = if text.is_empty() { "" } else { ":" };
        let _ = write!(text, "{colon}{byte:02X}");
    }
    text
}

/// A number of any length in decimal; a serial number has 20 bytes at most (RFC 5280), and a longer one is cut.
fn decimal(bytes: &[u8]) -> String {
    const LIMB: u64 = 1_000_000_000;
    let mut limbs: Vec<u64> = vec![0];
    for byte in bytes.iter().take(21) {
        let mut carry = u64::from(*byte);
        for limb in &mut limbs {
            let value = (*limb << 8) + carry;
            (*limb, carry) = (value % LIMB, value / LIMB);
        }
        if carry > 0 {
            limbs.push(carry);
        }
    }
    let mut text = limbs.pop().unwrap_or_default().to_string();
    for limb in limbs.iter().rev() {
        let _ = write!(text, "{limb:09}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_of_certificates_are_upstreams() {
        assert_eq!(hex(&[0, 0xab, 1]), "00:AB:01");
        assert_eq!(hex(&[]), "");
        assert_eq!(decimal(&[0]), "0");
        assert_eq!(decimal(&[1, 0]), "256");
        assert_eq!(decimal(&[0x3b, 0x9a, 0xca, 0]), "1000000000");
        assert_eq!(decimal(&[0xff; 16]), u128::MAX.to_string());
        assert!(decimal(&[0xff; 60_000]).len() < 60);
    }
}
