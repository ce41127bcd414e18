//! Fields of Secrets and of their accounts that are read. Tokens themselves are not kept in memory.

use super::{ACCOUNT_NAME, ACCOUNT_UID};
use crate::views::template::fnv;
use machinery_client::Projection;
use machinery_client::projection::{Index, IndexName};
use machinery_meta::ObjectHeader;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Secrets by `namespace/name` of the account they name.
pub(super) const BY_ACCOUNT: IndexName = IndexName("account");

/// A Secret with a token.
#[derive(Debug)]
pub(crate) struct TokenView {
    pub(super) account: Box<str>,
    pub(super) account_uid: Box<str>,
    pub(super) has_token: bool,
    pub(super) has_namespace: bool,
    authority: u64,
}

#[derive(Deserialize)]
struct Data {
    metadata: Metadata,
    data: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Metadata {
    annotations: Option<BTreeMap<String, String>>,
}

impl TokenView {
    /// The Secret's authority is this one, in base64.
    pub(super) fn has_authority(&self, encoded: &str) -> bool {
        self.authority == fnv(encoded.as_bytes())
    }
}

impl Projection for TokenView {
    const INDEXES: &'static [Index<Self>] = &[Index {
        name: BY_ACCOUNT,
        values: |object, each| {
            if !object.account.is_empty() {
                each(&format!("{}/{}", object.namespace(), object.account));
            }
        },
    }];

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let secret: Data = machinery_client::json::from_slice(json)?;
        let annotations = secret.metadata.annotations.unwrap_or_default();
        let data = secret.data.unwrap_or_default();
        let noted = |name: &str| annotations.get(name).cloned().unwrap_or_default().into();
        let has = |name: &str| data.get(name).is_some_and(|value| !value.is_empty());
        Ok(Self {
            account: noted(ACCOUNT_NAME),
            account_uid: noted(ACCOUNT_UID),
            has_token: has("token"),
            has_namespace: has("namespace"),
            authority: data.get("ca.crt").map_or(0, |own| fnv(own.as_bytes())),
        })
    }
}

/// A ServiceAccount and the Secrets it lists.
#[derive(Debug)]
pub(crate) struct AccountView {
    secrets: Vec<Box<str>>,
}

impl AccountView {
    pub(super) fn lists(&self, secret: &str) -> bool {
        self.secrets.iter().any(|own| **own == *secret)
    }
}

#[derive(Deserialize)]
struct Account {
    secrets: Option<Vec<Listed>>,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(default)]
    name: Box<str>,
}

impl Projection for AccountView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let listed = machinery_client::json::from_slice::<Account>(json)?.secrets;
        let listed = listed.unwrap_or_default().into_iter();
        Ok(Self {
            secrets: listed.map(|own| own.name).collect(),
        })
    }
}
