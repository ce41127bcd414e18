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
                None if known.len() < SECRETS_MAX => known.push(secret),
                // The pod that it belongs to will pull again.
                None => {}
            }
        }
        for account in other.kubernetes_service_accounts {
            let known = &mut self.kubernetes_service_accounts;
            if !known.contains(&account) && known.len() < SECRETS_MAX {
                known.push(account);
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
        credentials: impl IntoIterator<Item = &'a CredentialSource>,
    ) -> Access {
        if self.is_open(repository) {
            return Access::Granted;
        }
        let known = match self {
            Self::Pulled(record) => record.credential_mapping.get(repository),
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
