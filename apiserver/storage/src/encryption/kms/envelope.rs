//! The stored form: data encrypted with a key of its own (DEK), and that key, or the seed of it, encrypted by the plugin.
//!
//! With a seed each value has a key of its own: HKDF-SHA256, expanded with the 32 random bytes in front of the value.

use super::api::{EncryptResponse, EncryptedObject};
use crate::encryption::provider::{Cipher, random};
use crate::encryption::transformer::aggregate;
use machinery_meta::syntax::{dns1123_label, dns1123_subdomain};
use prost::Message;
use ring::hkdf::{HKDF_SHA256, Prk};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Types of what the plugin encrypted.
const KEY: i32 = 0;
const SEED: i32 = 1;
pub(super) const SEED_BYTES: usize = 32;
const INFO_BYTES: usize = 32;
const MAX_ANNOTATIONS_BYTES: usize = 32 * 1024;
const MAX_KEY_ID_BYTES: usize = 1024;
const MAX_SOURCE_BYTES: usize = 1024;
const TOO_SHORT: &str = "the stored data was shorter than the required size";

/// A decrypted key of data, or the seed of such keys.
pub(super) enum Dek {
    /// With the hash of its bytes.
    Key(Cipher, [u8; 32]),
    Seed(Vec<u8>),
}

/// A key or seed as the plugin encrypted it, which lies beside each value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) key_id: String,
    pub(super) encrypted: Vec<u8>,
    pub(super) annotations: BTreeMap<String, Vec<u8>>,
    kind: i32,
}

/// Identifies a source.
pub(super) type SourceHash = [u8; 32];

impl Dek {
    /// A new random seed.
    pub(super) fn new_seed() -> [u8; SEED_BYTES] {
        random()
    }

    /// The key that a plugin has decrypted.
    pub(super) fn of(source: &Source, plain: Vec<u8>) -> Result<Self, String> {
        if source.kind == KEY {
            let invalid = || format!("crypto/aes: invalid key size {}", plain.len());
            let cipher = Cipher::gcm(&plain).ok_or_else(invalid)?;
            return Ok(Self::Key(cipher, Sha256::digest(&plain).into()));
        }
        if plain.len() < SEED_BYTES {
            return Err(format!(
                "invalid seed length {} used for key generation",
                plain.len()
            ));
        }
        Ok(Self::Seed(plain))
    }

    /// Reports whether it is this very key or seed.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key(_, own), Self::Key(_, other)) => own == other,
            (Self::Seed(own), Self::Seed(other)) => own == other,
            _ => false,
        }
    }

    /// Encrypts a value, bound to its place.
    pub(super) fn seal(&self, plain: &[u8], place: &[u8]) -> Vec<u8> {
        match self {
            Self::Key(cipher, _) => cipher.seal(plain, place),
            Self::Seed(seed) => {
                let info: [u8; INFO_BYTES] = random();
                [&info[..], &derived(seed, &info).seal(plain, place)].concat()
            }
        }
    }

    pub(super) fn open(&self, data: &[u8], place: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            Self::Key(cipher, _) => cipher.open(data, place),
            Self::Seed(seed) => match data.split_at_checked(INFO_BYTES) {
                Some((info, sealed)) => derived(seed, info).open(sealed, place),
                None => Err(TOO_SHORT),
            },
        }
        .map_err(str::to_owned)
    }
}

/// The key of one value.
fn derived(seed: &[u8], info: &[u8]) -> Cipher {
    let mut key = [0; 32];
    let info = [info];
    let seed = Prk::new_less_safe(HKDF_SHA256, seed);
    let expanded = seed.expand(&info, HKDF_SHA256);
    let filled = expanded.and_then(|expanded| expanded.fill(&mut key));
    filled.expect("HKDF-SHA256 gives 32 bytes, whatever the info is");
    Cipher::gcm(&key).expect("AES has keys of 32 bytes")
}

impl Source {
    /// The answer of a plugin that has encrypted a seed.
    pub(super) fn of_seed(answer: EncryptResponse) -> Result<Self, String> {
        let own = Self {
            key_id: answer.key_id,
            encrypted: answer.ciphertext,
            annotations: answer.annotations,
            kind: SEED,
        };
        own.check()?;
        Ok(own)
    }

    /// The stored form of encrypted data.
    pub(super) fn stored_with(&self, encrypted_data: Vec<u8>) -> Vec<u8> {
        let object = EncryptedObject {
            encrypted_data,
            key_id: self.key_id.clone(),
            encrypted_dek_source: self.encrypted.clone(),
            annotations: self.annotations.clone(),
            encrypted_dek_source_type: self.kind,
        };
        object.encode_to_vec()
    }

    /// The source beside a stored value, and the encrypted data.
    pub(super) fn read(stored: &[u8]) -> Result<(Self, Vec<u8>), String> {
        let object = EncryptedObject::decode(stored).map_err(|error| format!("proto: {error}"))?;
        if ![KEY, SEED].contains(&object.encrypted_dek_source_type) {
            return Err(format!(
                "unknown encryptedDEKSourceType: {}",
                object.encrypted_dek_source_type
            ));
        }
        if object.encrypted_data.is_empty() {
            return Err("encrypted data is empty".to_owned());
        }
        let own = Self {
            key_id: object.key_id,
            encrypted: object.encrypted_dek_source,
            annotations: object.annotations,
            kind: object.encrypted_dek_source_type,
        };
        own.check()?;
        Ok((own, object.encrypted_data))
    }

    /// Checks the sizes, in upstream's order.
    fn check(&self) -> Result<(), String> {
        let size = self.encrypted.len();
        let source = match size {
            0 => Err("encrypted DEK source is empty".to_owned()),
            1..=MAX_SOURCE_BYTES => Ok(()),
            _ => Err(format!(
                "encrypted DEK source is {size} bytes, which exceeds the max size of {MAX_SOURCE_BYTES}"
            )),
        };
        source.map_err(|why| format!("failed to validate encrypted DEK source: {why}"))?;
        check_key_id(&self.key_id).map_err(|(_, why)| format!("failed to validate key id: {why}"))?;
        check_annotations(&self.annotations).map_err(|why| format!("failed to validate annotations: {why}"))
    }

    /// Identifies it: no two sources have one hash.
    pub(super) fn hash(&self) -> SourceHash {
        let mut digest = Sha256::new();
        let mut add = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_be_bytes());
            digest.update(bytes);
        };
        add(&self.kind.to_be_bytes());
        add(&self.encrypted);
        add(self.key_id.as_bytes());
        for (name, value) in &self.annotations {
            add(name.as_bytes());
            add(value);
        }
        digest.finalize().into()
    }

    /// Reports whether new values have a source of another kind.
    pub(super) fn is_outdated(&self) -> bool {
        self.kind != SEED
    }
}

/// Checks the id of a key; the code is upstream's label of a metric.
pub(super) fn check_key_id(id: &str) -> Result<(), (&'static str, String)> {
    match id.len() {
        0 => Err(("empty", "keyID is empty".to_owned())),
        1..=MAX_KEY_ID_BYTES => Ok(()),
        size => Err((
            "too_long",
            format!("keyID is {size} bytes, which exceeds the max size of {MAX_KEY_ID_BYTES}"),
        )),
    }
}

fn check_annotations(annotations: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    let mut problems: Vec<String> = annotations.keys().filter_map(|name| name_problem(name)).collect();
    let sizes = annotations.iter().map(|(name, value)| name.len() + value.len());
    let size: usize = sizes.sum();
    if size > MAX_ANNOTATIONS_BYTES {
        problems.push(format!(
            "total size of annotations is {size}, which exceeds the max size of {MAX_ANNOTATIONS_BYTES}"
        ));
    }
    if problems.is_empty() {
        Ok(())
    } else {
        Err(aggregate(problems))
    }
}

/// The problem of a name that is no domain with at least two segments.
fn name_problem(name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("annotations: Required value".to_owned());
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let invalid = |value: &str, why: String| Some(format!("annotations: Invalid value: {value:?}: {why}"));
    let problems = dns1123_subdomain(name);
    if !problems.is_empty() {
        return invalid(name, problems.join(","));
    }
    if !name.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        return invalid(name, why.to_owned());
    }
    name.split('.').find_map(|label| {
        let problems = dns1123_label(label);
        if problems.is_empty() {
            None
        } else {
            invalid(label, problems.join(","))
        }
    })
}

/// The hash of a key's id for logs and metrics; nothing for none.
pub(super) fn hash_of_id(id: &str) -> String {
    if id.is_empty() {
        return String::new();
    }
    let mut text = "sha256:".to_owned();
    for byte in Sha256::digest(id.as_bytes()) {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A damaged value has its key decrypted again and again, which must not look like news.
    #[test]
    fn kms_key_that_is_decrypted_again_is_the_same() {
        for kind in [KEY, SEED] {
            let source = Source {
                key_id: "one".to_owned(),
                encrypted: Vec::new(),
                annotations: BTreeMap::new(),
                kind,
            };
            let dek = |byte| Dek::of(&source, vec![byte; SEED_BYTES]).unwrap_or_else(|why| panic!("{why}"));
            assert!(dek(1).is_same(&dek(1)));
            assert!(!dek(1).is_same(&dek(2)));
        }
    }
}
