//! Service accounts for plugins: their token, and the annotations that a plugin reads (KEP 4412).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::{Api, Client};
use node_volume::{ObjectSource, TokenRequest};
use sha2::{Digest, Sha256};

use super::config::TokenAttributes;
use super::plugin::AccountData;
use crate::images::pull_records::ServiceAccountCredential;
use crate::pods::{name, namespace, spec, uid};

/// Seconds of a token: the default of the API.
const TOKEN_SECONDS: i64 = 3_600;

/// A service account that counts for an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) credential: ServiceAccountCredential,
    pub(super) data: AccountData,
    /// Digest of the token, where an answer counts for that token alone.
    pub(super) token_hash: Option<String>,
}

/// Mode in which a plugin is called for a pod.
#[derive(Debug)]
pub(super) enum Asking {
    /// Not at all: the account lacks what the plugin requires.
    Passed,
    Without,
    With(Box<Account>),
}

/// The account of a pod, as these attributes want it.
pub(super) async fn of(
    client: &Client,
    pod: &Pod,
    attributes: Option<&TokenAttributes>,
    objects: &dyn ObjectSource,
) -> Result<Asking, String> {
    let Some(attributes) = attributes else {
        return Ok(Asking::Without);
    };
    let account = spec(pod).service_account_name.as_deref().unwrap_or_default();
    if account.is_empty() {
        return Ok(match attributes.require_service_account {
            Some(false) => Asking::Without,
            _ => Asking::Passed,
        });
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace(pod));
    let found = accounts.get(account).await;
    let found = found.map_err(|error| format!("failed to get service account: {error}"))?;
    let Some(annotations) = annotations(&found, attributes) else {
        return Ok(Asking::Passed);
    };
    let request = TokenRequest {
        namespace: namespace(pod).to_owned(),
        service_account: account.to_owned(),
        audience: attributes.service_account_token_audience.clone(),
        expiration_seconds: TOKEN_SECONDS,
        pod: (name(pod).to_owned(), uid(pod).to_owned()),
    };
    let token = objects.token(&request).await;
    let token = token.map_err(|error| format!("failed to get service account token: {error}"))?;
    let hash = || crate::images::digest::hex(&Sha256::digest(&token));
    Ok(Asking::With(Box::new(Account {
        token_hash: (attributes.cache_type == "Token").then(hash),
        credential: ServiceAccountCredential {
            uid: found.metadata.uid.unwrap_or_default(),
            namespace: namespace(pod).to_owned(),
            name: account.to_owned(),
        },
        data: AccountData { token, annotations },
    })))
}

/// The annotations that a plugin reads; `None` where one that it requires is absent.
fn annotations(account: &ServiceAccount, attributes: &TokenAttributes) -> Option<BTreeMap<String, String>> {
    let given = account.metadata.annotations.as_ref();
    let value = |key: &String| given.and_then(|given| given.get(key)).cloned();
    let mut annotations = BTreeMap::new();
    for key in &attributes.required_service_account_annotation_keys {
        annotations.insert(key.clone(), value(key)?);
    }
    for key in &attributes.optional_service_account_annotation_keys {
        annotations.extend(value(key).map(|value| (key.clone(), value)));
    }
    Some(annotations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_of_an_account_are_those_that_a_plugin_names() {
        let mut account = ServiceAccount::default();
        let pairs = [("a", "1"), ("b", "2"), ("c", "3")];
        account.metadata.annotations = Some(
            pairs
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
        );
        let of = |required: &[&str], optional: &[&str]| {
            let keys = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
            let attributes = TokenAttributes {
                required_service_account_annotation_keys: keys(required),
                optional_service_account_annotation_keys: keys(optional),
                ..TokenAttributes::default()
            };
            annotations(&account, &attributes).map(|found| found.into_values().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(of(&["a"], &["b", "z"]).as_deref(), Some("1 2"));
        assert_eq!(of(&["z"], &["a"]), None);
        assert_eq!(of(&[], &[]).as_deref(), Some(""));
    }
}
