//! Bootstrap tokens: `id.secret`, kept as secrets `bootstrap-token-<id>` in `kube-system`, for nodes that join.

use super::token::TokenAuthenticator;
use super::{Authenticated, AuthnFuture, Outcome, Refusal};
use crate::trusted;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use machinery_meta::reader::ObjectReader;
use machinery_meta::{ObjectKey, UserInfo};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

const NAMESPACE: &str = "kube-system";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const DEFAULT_GROUP: &str = "system:bootstrappers";

/// See the module.
pub struct BootstrapTokens(Arc<dyn ObjectReader>);

impl fmt::Debug for BootstrapTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BootstrapTokens").finish_non_exhaustive()
    }
}

impl BootstrapTokens {
    pub fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self(reader)
    }

    async fn identify(&self, token: &str, now: Timestamp) -> Outcome {
        let Some((id, secret)) = split(token) else {
            return Outcome::Pass;
        };
        let key = ObjectKey::new(NAMESPACE, format!("bootstrap-token-{id}"));
        let Some(found) = trusted::get(&*self.0, "", "secrets", &key).await else {
            return Outcome::Pass;
        };
        let Ok(stored) = serde_json::from_slice::<Secret>(&found.json) else {
            return Outcome::Pass;
        };
        if found.header.is_deleting() {
            return Outcome::Pass;
        }
        match check(&stored, id, secret, now) {
            Ok(user) => Outcome::User(Authenticated::new(user)),
            Err(why) => Outcome::Refused(Refusal::new(format!("bootstrap token {id}: {why}"))),
        }
    }
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Secret {
    r#type: String,
    data: BTreeMap<String, String>,
}

impl Secret {
    fn text(&self, key: &str) -> String {
        let decoded = self.data.get(key).and_then(|value| STANDARD.decode(value).ok());
        decoded
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .unwrap_or_default()
    }
}

/// `[a-z0-9]{6}.[a-z0-9]{16}`.
fn split(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (id.len() == 6 && secret.len() == 16 && plain(id) && plain(secret)).then_some((id, secret))
}

/// Compares without telling by its time how much was right.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len()
        && a.bytes()
            .zip(b.bytes())
            .fold(0, |differs, (x, y)| differs | (x ^ y))
            == 0
}

fn check(stored: &Secret, id: &str, secret: &str, now: Timestamp) -> Result<UserInfo, &'static str> {
    if stored.r#type != SECRET_TYPE {
        return Err("its secret has another type");
    }
    if !same(&stored.text("token-secret"), secret) || stored.text("token-id") != id {
        return Err("the secret is wrong");
    }
    let expiration = stored.text("expiration");
    let expired =
        !expiration.is_empty() && expiration.parse::<Timestamp>().map_or(true, |until| until <= now);
    if expired {
        return Err("it has expired");
    }
    if stored.text("usage-bootstrap-authentication") != "true" {
        return Err("it is not for authentication");
    }
    let mut groups = vec![DEFAULT_GROUP.to_owned()];
    let extra = stored.text("auth-extra-groups");
    for group in extra.split(',').map(str::trim).filter(|group| !group.is_empty()) {
        if !group.starts_with("system:bootstrappers:") {
            return Err("it names a group outside of system:bootstrappers:");
        }
        groups.push(group.to_owned());
    }
    Ok(UserInfo::named(format!("system:bootstrap:{id}"), groups))
}

impl TokenAuthenticator for BootstrapTokens {
    fn authenticate_token<'a>(
        &'a self,
        token: &'a str,
        _audiences: &'a [String],
        now: Timestamp,
    ) -> AuthnFuture<'a, Outcome> {
        Box::pin(self.identify(token, now))
    }
}
