//! Key usages as the API writes them, and as certificates do (upstream's `keyUsagesFromStrings`).

use crate::der::OBJECT_IDENTIFIER;
use crate::writer::{element, named_bits, sequence};

/// Usages of the key, by the number of their bit (RFC 5280, 4.2.1.3).
const OF_KEY: [(&str, u16); 10] = [
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// `id-kp` (1.3.6.1.5.5.7.3), and a number.
const KEY_PURPOSE: [u8; 7] = [0x2b, 6, 1, 5, 5, 7, 3];

/// An extended usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Numbered(u8),
    Other(&'static [u8]),
}

/// Extended usages, in the order in which Go writes them.
const EXTENDED: [(&str, Purpose); 13] = [
    ("any", Purpose::Other(&[0x55, 0x1d, 0x25, 0])),
    ("server auth", Purpose::Numbered(1)),
    ("client auth", Purpose::Numbered(2)),
    ("code signing", Purpose::Numbered(3)),
    ("email protection", Purpose::Numbered(4)),
    ("s/mime", Purpose::Numbered(4)),
    ("ipsec end system", Purpose::Numbered(5)),
    ("ipsec tunnel", Purpose::Numbered(6)),
    ("ipsec user", Purpose::Numbered(7)),
    ("timestamping", Purpose::Numbered(8)),
    ("ocsp signing", Purpose::Numbered(9)),
    // 1.3.6.1.4.1.311.10.3.3 and 2.16.840.1.113730.4.1.
    (
        "microsoft sgc",
        Purpose::Other(&[0x2b, 6, 1, 4, 1, 0x82, 0x37, 10, 3, 3]),
    ),
    (
        "netscape sgc",
        Purpose::Other(&[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 4, 1]),
    ),
];

/// Words that name no usage.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unrecognized usage values: {0:?}")]
pub struct UnknownUsages(Vec<String>);

/// The usages of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usages {
    key: u16,
    extended: Vec<Purpose>,
}

impl Usages {
    /// Reads the API's words.
    ///
    /// # Errors
    /// Some of them name no usage.
    pub fn of<S: AsRef<str>>(words: &[S]) -> Result<Self, UnknownUsages> {
        let is_requested = |name: &str| words.iter().any(|word| word.as_ref() == name);
        let known = |word: &str| {
            let names = OF_KEY.iter().map(|(name, _)| *name);
            names
                .chain(EXTENDED.iter().map(|(name, _)| *name))
                .any(|name| name == word)
        };
        let unknown = words.iter().map(AsRef::as_ref).filter(|word| !known(word));
        let unknown: Vec<String> = unknown.map(str::to_owned).collect();
        if !unknown.is_empty() {
            return Err(UnknownUsages(unknown));
        }
        let of_key = OF_KEY.iter().filter(|(name, _)| is_requested(name));
        let extended = EXTENDED.iter().filter(|(name, _)| is_requested(name));
        let mut extended: Vec<Purpose> = extended.map(|(_, purpose)| *purpose).collect();
        extended.dedup();
        Ok(Self {
            key: of_key.fold(0, |bits, (_, bit)| bits | 1 << bit),
            extended,
        })
    }

    /// The value of `keyUsage`; `None` where there is none.
    pub(crate) fn key_usage(&self) -> Option<Vec<u8>> {
        (self.key != 0).then(|| named_bits(self.key))
    }

    /// The value of `extKeyUsage`; `None` where there is none.
    pub(crate) fn extended_key_usage(&self) -> Option<Vec<u8>> {
        let each = self.extended.iter().map(|purpose| match purpose {
            Purpose::Numbered(number) => element(OBJECT_IDENTIFIER, &[&KEY_PURPOSE, &[*number]]),
            Purpose::Other(id) => element(OBJECT_IDENTIFIER, &[id]),
        });
        let each: Vec<u8> = each.flatten().collect();
        (!each.is_empty()).then(|| sequence(&[&each]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &[&str], key: u16, extended: &[u8]) {
        let extended: Vec<Purpose> = extended.iter().map(|number| Purpose::Numbered(*number)).collect();
        assert_eq!(Usages::of(words), Ok(Usages { key, extended }), "{words:?}");
    }

    /// Upstream's `TestKeyUsagesFromStrings`.
    #[test]
    fn usages_are_upstreams() {
        check(&["signing"], 1, &[]);
        check(&["client auth"], 0, &[2]);
        check(&["client auth", "client auth"], 0, &[2]);
        check(&["cert sign", "encipher only"], 1 << 5 | 1 << 7, &[]);
        check(
            &["ocsp signing", "crl sign", "s/mime", "content commitment"],
            1 << 6 | 1 << 1,
            &[4, 9],
        );
        check(&["email protection", "s/mime"], 0, &[4]);
        let unknown = Usages::of(&["unsupported string"]).unwrap_err();
        assert_eq!(
            unknown.to_string(),
            r#"unrecognized usage values: ["unsupported string"]"#
        );
    }
}
