//! Pods that may use an image, by the record of its pulls. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::shares::{ENTRY_BYTES, OfNamespace, push_by_share};
use crate::images::credentials::repository_of;

/// A secret, and a digest of what it held for the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::images) struct SecretCredential {
    pub(in crate::images) uid: String,
    pub(in crate::images) namespace: String,
    pub(in crate::images) name: String,
    pub(in crate::images) credential_hash: String,
}

/// A service account, by whose token a plugin gave credentials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::images) struct ServiceAccountCredential {
    pub(in crate::images) uid: String,
    pub(in crate::images) namespace: String,
    pub(in crate::images) name: String,
}

/// Origin of credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::images) enum CredentialSource {
    /// The node itself: every pod has them.
    Node,
    Secret(SecretCredential),
    ServiceAccount(ServiceAccountCredential),
}

impl SecretCredential {
    fn same_secret(&self, other: &Self) -> bool {
        (&self.uid, &self.namespace, &self.name) == (&other.uid, &other.namespace, &other.name)
    }
}

impl OfNamespace for SecretCredential {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn bytes(&self) -> usize {
        let texts = [&self.uid, &self.namespace, &self.name, &self.credential_hash];
        ENTRY_BYTES + texts.iter().map(|text| text.len()).sum::<usize>()
    }
}

impl OfNamespace for ServiceAccountCredential {
    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn bytes(&self) -> usize {
        ENTRY_BYTES + self.uid.len() + self.namespace.len() + self.name.len()
    }
}

/// Credentials with which an image was pulled under one name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::images) struct PulledWith {
    /// Without credentials: every pod of the node may use it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(in crate::images) node_pods_accessible: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::images) kubernetes_secrets: Vec<SecretCredential>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(in crate::images) kubernetes_service_accounts: Vec<ServiceAccountCredential>,
}

impl PulledWith {
    /// The credential that a pull succeeded with; without one, any would do.
    pub(in crate::images) fn credential(used: Option<SecretCredential>) -> Self {
        Self {
            node_pods_accessible: used.is_none(),
            kubernetes_secrets: used.into_iter().collect(),
            ..Self::default()
        }
    }

    /// The origin of the credential that a pull succeeded with; without one, any would do.
    pub(in crate::images) fn source(used: Option<CredentialSource>) -> Self {
        match used {
            None | Some(CredentialSource::Node) => Self::credential(None),
            Some(CredentialSource::Secret(secret)) => Self::credential(Some(secret)),
            Some(CredentialSource::ServiceAccount(account)) => Self {
                kubernetes_service_accounts: vec![account],
                ..Self::default()
            },
        }
    }

    pub(super) fn merge(&mut self, other: Self) {
        if self.node_pods_accessible || other.node_pods_accessible {
            *self = Self::credential(None);
            return;
        }
        for secret in other.kubernetes_secrets {
            let known = &mut self.kubernetes_secrets;
            match known.iter().position(|known| known.same_secret(&secret)) {
                Some(place) => known[place] = secret,
                // One that finds no place is of a pod that will pull again.
                None => push_by_share(known, secret),
            }
        }
        for account in other.kubernetes_service_accounts {
            let known = &mut self.kubernetes_service_accounts;
            if !known.contains(&account) {
                push_by_share(known, account);
            }
        }
    }
}

/// Credentials for a repository.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Mapped {
    #[serde(flatten)]
    pub(super) with: PulledWith,
    /// Namespace whose pod pulled it first; empty in a record of an older agent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    /// Greater than those of all repositories before it.
    pub(super) added: u64,
}

/// One image that was pulled here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::images) struct PullRecord {
    pub(super) image_ref: String,
    /// Names, by tag and digest, under which the node's owner had put it here before it was first pulled.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) preloaded: BTreeSet<String>,
    /// By the image's repository.
    pub(super) credential_mapping: BTreeMap<String, Mapped>,
}

impl PullRecord {
    /// Adds what a pod of a namespace pulled with.
    pub(super) fn add(&mut self, repository: &str, namespace: &str, with: PulledWith) {
        let newest = self.credential_mapping.values().map(|entry| entry.added).max();
        let next = || Mapped {
            namespace: namespace.to_owned(),
            added: newest.unwrap_or_default().saturating_add(1),
            ..Mapped::default()
        };
        let entry = self.credential_mapping.entry(repository.to_owned());
        entry.or_insert_with(next).with.merge(with);
    }

    fn of(&self, image: &str) -> Option<&PulledWith> {
        let entry = self.credential_mapping.get(&repository_of(image));
        entry.map(|entry| &entry.with)
    }
}

/// Record of a present image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::images) enum History {
    /// The image was not pulled by this agent.
    Preloaded,
    /// It was pulled, and with what is not known.
    Unknown,
    /// It was pulled with these.
    Pulled(PullRecord),
}

/// Decision whether a pod may use a present image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::images) enum Access {
    Granted,
    /// By a secret whose name or content has changed since; it is to be recorded too.
    GrantedBy(SecretCredential),
    /// It must be pulled with what the pod has.
    Verify,
}

impl History {
    /// Reports whether every pod may use the image under this name, whatever its credentials.
    pub(in crate::images) fn is_open(&self, image: &str) -> bool {
        match self {
            Self::Preloaded => true,
            Self::Unknown => false,
            Self::Pulled(record) => {
                record.preloaded.contains(image)
                    || record.of(image).is_some_and(|with| with.node_pods_accessible)
            }
        }
    }

    /// Decides whether a pod with these credentials may use the image under this name.
    pub(in crate::images) fn access<'a>(
        &self,
        image: &str,
        credentials: impl IntoIterator<Item = &'a CredentialSource>,
    ) -> Access {
        if self.is_open(image) {
            return Access::Granted;
        }
        let known = match self {
            Self::Pulled(record) => record.of(image),
            _ => None,
        };
        let Some(known) = known else {
            return Access::Verify;
        };
        for own in credentials {
            let own = match own {
                CredentialSource::Secret(own) => own,
                CredentialSource::ServiceAccount(own) if known.kubernetes_service_accounts.contains(own) => {
                    return Access::Granted;
                }
                CredentialSource::ServiceAccount(_) | CredentialSource::Node => continue,
            };
            for known in &known.kubernetes_secrets {
                let same_content = known.credential_hash == own.credential_hash;
                match (same_content, known.same_secret(own)) {
                    (true, true) => return Access::Granted,
                    (true, false) | (false, true) => return Access::GrantedBy(own.clone()),
                    (false, false) => {}
                }
            }
        }
        Access::Verify
    }
}
