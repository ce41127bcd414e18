//! Pods that may use an image, by the record of its pulls. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A record names no more secrets than this; upstream's.
const SECRETS_MAX: usize = 100;

/// A secret, and a digest of what it held for the registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::images) struct SecretCredential {
    pub(in crate::images) uid: String,
    pub(in crate::images) namespace: String,
    pub(in crate::images) name: String,
    pub(in crate::images) credential_hash: String,
}

impl SecretCredential {
    fn same_secret(&self, other: &Self) -> bool {
        (&self.uid, &self.namespace, &self.name) == (&other.uid, &other.namespace, &other.name)
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
}

impl PulledWith {
    /// The credential that a pull succeeded with; without one, any would do.
    pub(in crate::images) fn credential(used: Option<SecretCredential>) -> Self {
        Self {
            node_pods_accessible: used.is_none(),
            kubernetes_secrets: used.into_iter().collect(),
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
                None if known.len() < SECRETS_MAX => known.push(secret),
                // The pod that it belongs to will pull again.
                None => {}
            }
        }
    }
}

/// One image that was pulled here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(in crate::images) struct PullRecord {
    pub(super) image_ref: String,
    /// By the image's repository.
    pub(super) credential_mapping: BTreeMap<String, PulledWith>,
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
    /// Reports whether every pod may use the image, whatever its credentials.
    pub(in crate::images) fn is_open(&self, repository: &str) -> bool {
        match self {
            Self::Preloaded => true,
            Self::Unknown => false,
            Self::Pulled(record) => record
                .credential_mapping
                .get(repository)
                .is_some_and(|with| with.node_pods_accessible),
        }
    }

    /// Decides whether a pod with these credentials may use the image under this name.
    pub(in crate::images) fn access<'a>(
        &self,
        repository: &str,
        credentials: impl IntoIterator<Item = &'a SecretCredential>,
    ) -> Access {
        if self.is_open(repository) {
            return Access::Granted;
        }
        let known = match self {
            Self::Pulled(record) => record.credential_mapping.get(repository),
            _ => None,
        };
        let known = known
            .map(|with| with.kubernetes_secrets.as_slice())
            .unwrap_or_default();
        for own in credentials {
            for known in known {
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
