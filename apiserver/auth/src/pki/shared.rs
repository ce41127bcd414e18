//! Secrets that all servers of one cluster share: the authorities and the key of service account tokens.
//!
//! Each server signs its own serving and client certificates with them, so a certificate or token of one is valid for
//! all.

use super::authority::Authority;
use super::files::Store;
use super::{PkiError, load_signing_key};
use crate::jwt::SigningKey;
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// The files and what is in them. A key stands before its certificate, which without it would be taken for damage.
const FILES: [&str; 6] = [
    "ca.key",
    "ca.crt",
    "front-proxy-ca.key",
    "front-proxy-ca.crt",
    "sa.pub",
    "sa.key",
];

/// See the module. Never printed.
#[derive(PartialEq, Eq)]
pub struct SharedKeys(BTreeMap<String, String>);

impl fmt::Debug for SharedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedKeys").finish_non_exhaustive()
    }
}

impl SharedKeys {
    /// Keys and certificates of a folder; missing ones are made, and not written.
    pub fn offer(folder: &Path, now: Timestamp) -> Result<Self, PkiError> {
        let store = Store::draft(folder);
        Authority::load(&store, "ca", "kubernetes", now)?;
        Authority::load(&store, "front-proxy-ca", "front-proxy-ca", now)?;
        let key = load_signing_key(&store)?;
        let mut files = BTreeMap::new();
        for name in FILES {
            // A folder may have the private key of a pair alone.
            let text = match store.read(name)? {
                Some(text) => text,
                None => key.public().to_pem(),
            };
            files.insert(name.to_owned(), text);
        }
        Ok(Self(files))
    }

    /// Encodes them as one value to store.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(&self.0).expect("texts by name are JSON")
    }

    /// Decodes a stored value; every part is checked, whatever wrote it.
    pub fn decode(value: &[u8]) -> Result<Self, PkiError> {
        let unreadable = |what: &str| PkiError::Unreadable {
            what: what.to_owned(),
        };
        let all = "the stored authorities and keys";
        let files: BTreeMap<String, String> = serde_json::from_slice(value).map_err(|_| unreadable(all))?;
        let part = |name: &str| files.get(name).ok_or_else(|| unreadable(all));
        for [key, certificate] in [["ca.key", "ca.crt"], ["front-proxy-ca.key", "front-proxy-ca.crt"]] {
            let found = Authority::read(part(certificate)?.clone(), part(key)?);
            found.ok_or_else(|| unreadable(certificate))?;
        }
        SigningKey::from_pem(part("sa.key")?)?;
        let known = FILES
            .iter()
            .map(|name| Ok(((*name).to_owned(), part(name)?.clone())));
        Ok(Self(known.collect::<Result<_, PkiError>>()?))
    }

    /// Puts them into a folder. Nothing is written, and [`PkiError::Another`] answered, where it has others.
    pub fn write(&self, folder: &Path) -> Result<(), PkiError> {
        let store = Store::folder(folder)?;
        let mut missing = Vec::new();
        for name in FILES {
            let text = &self.0[name];
            match store.read(name)? {
                Some(found) if found.trim() == text.trim() => {}
                Some(_) if name != "sa.pub" => {
                    let path = folder.join(name);
                    return Err(PkiError::Another { path });
                }
                _ => missing.push((name, text)),
            }
        }
        missing
            .into_iter()
            .try_for_each(|(name, text)| store.write(name, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pki::{Pki, ServingNames};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn names() -> ServingNames {
        ["localhost".to_owned()].into()
    }

    #[test]
    fn shared_keys_of_a_used_folder_are_its_own_and_make_another_folder_alike() {
        let (used, fresh) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = Pki::open(used.path(), &names(), NOW).unwrap();
        let offered = SharedKeys::offer(used.path(), NOW).unwrap();
        let shared = SharedKeys::decode(&offered.encode()).unwrap();
        assert_eq!(shared, offered);
        shared.write(used.path()).unwrap();
        shared.write(fresh.path()).unwrap();
        let second = Pki::open(fresh.path(), &names(), NOW).unwrap();
        assert_eq!(first.cluster.certificate_pem(), second.cluster.certificate_pem());
        assert_eq!(
            first.front_proxy.certificate_pem(),
            second.front_proxy.certificate_pem()
        );
        assert_eq!(
            first.service_accounts.public().id(),
            second.service_accounts.public().id()
        );
        assert_ne!(first.serving.certificate_pem(), second.serving.certificate_pem());
    }

    #[test]
    fn shared_keys_are_drafted_without_a_file_and_never_replace_others() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let draft = SharedKeys::offer(one.path(), NOW).unwrap();
        assert_eq!(std::fs::read_dir(one.path()).unwrap().count(), 0);
        Pki::open(other.path(), &names(), NOW).unwrap();
        let before = std::fs::read(other.path().join("ca.key")).unwrap();
        let refused = draft.write(other.path());
        assert!(matches!(refused, Err(PkiError::Another { .. })), "{refused:?}");
        assert_eq!(std::fs::read(other.path().join("ca.key")).unwrap(), before);
    }

    #[test]
    fn shared_keys_that_are_damaged_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let good = SharedKeys::offer(folder.path(), NOW).unwrap();
        for name in FILES {
            let mut files = good.0.clone();
            files.remove(name);
            assert!(
                SharedKeys::decode(&SharedKeys(files).encode()).is_err(),
                "without {name}"
            );
        }
        let mut files = good.0.clone();
        files.insert("ca.key".to_owned(), good.0["sa.key"].clone() + "x");
        files.insert("ca.crt".to_owned(), "x".to_owned());
        assert!(SharedKeys::decode(&SharedKeys(files).encode()).is_err());
        assert!(SharedKeys::decode(b"{").is_err());
    }
}
