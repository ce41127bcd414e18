//! Bounds of a record. Pure.
//!
//! The namespace with the most in a record that is too long loses its newest: a pod of that namespace pulls the image again, and
//! could have used what is there. Names under which the image was preloaded stay, and repositories that an
//! older agent recorded without a namespace.

use std::collections::HashMap;

use super::history::{PullRecord, PulledWith};
use super::shares::{ENTRY_BYTES, OfNamespace as _};

/// Bytes of a record that is written.
pub(super) const RECORD_BYTES_MAX: usize = 256 << 10;

impl PullRecord {
    /// The record as it is written: what is too much is removed. `None` where nothing may go any more.
    pub(super) fn bounded_text(&mut self) -> serde_json::Result<Option<Vec<u8>>> {
        loop {
            let text = serde_json::to_vec(self)?;
            if text.len() <= RECORD_BYTES_MAX {
                return Ok(Some(text));
            }
            if !self.remove_newest_of_the_greatest() {
                return Ok(None);
            }
        }
    }

    fn remove_newest_of_the_greatest(&mut self) -> bool {
        let mut shares: HashMap<&str, usize> = HashMap::new();
        for (repository, entry) in &self.credential_mapping {
            let own = (entry.namespace.as_str(), ENTRY_BYTES + repository.len());
            for (namespace, bytes) in entry.with.shares().chain([own]) {
                *shares.entry(namespace).or_default() += bytes;
            }
        }
        let known = shares.into_iter().filter(|(namespace, _)| !namespace.is_empty());
        let Some((namespace, _)) = known.max_by_key(|(namespace, bytes)| (*bytes, *namespace)) else {
            return false;
        };
        let namespace = namespace.to_owned();
        let has = |with: &PulledWith| with.shares().any(|(own, _)| own == namespace);
        let mapping = self.credential_mapping.iter_mut();
        let newest = mapping
            .filter(|(_, entry)| entry.namespace == namespace || has(&entry.with))
            .max_by_key(|(_, entry)| entry.added);
        let Some((repository, entry)) = newest else {
            return false;
        };
        if has(&entry.with) {
            entry.with.remove_newest_of(&namespace);
        } else if let Some((other, _)) = entry.with.shares().next() {
            // Credentials of others stay, and the name is theirs.
            entry.namespace = other.to_owned();
        }
        if entry.with.shares().next().is_none() {
            let repository = repository.clone();
            self.credential_mapping.remove(&repository);
        }
        true
    }
}

impl PulledWith {
    /// Bytes of each credential, with its namespace.
    fn shares(&self) -> impl Iterator<Item = (&str, usize)> {
        let secrets = self.kubernetes_secrets.iter();
        let secrets = secrets.map(|own| (own.namespace(), own.bytes()));
        let accounts = self.kubernetes_service_accounts.iter();
        secrets.chain(accounts.map(|own| (own.namespace(), own.bytes())))
    }

    fn remove_newest_of(&mut self, namespace: &str) {
        let (secrets, accounts) = (
            &mut self.kubernetes_secrets,
            &mut self.kubernetes_service_accounts,
        );
        if let Some(newest) = secrets.iter().rposition(|own| own.namespace == namespace) {
            secrets.remove(newest);
        } else if let Some(newest) = accounts.iter().rposition(|own| own.namespace == namespace) {
            accounts.remove(newest);
        }
    }
}
