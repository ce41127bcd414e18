//! Bootstrap tokens: `id.secret`, kept as secrets `bootstrap-token-<id>` in `kube-system`, for nodes that join.

use super::token::{ShownToken, TokenAuthenticator};
use super::{Authenticated, AuthnFuture, Outcome, Refusal};
use crate::trusted;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use machinery_meta::reader::ObjectReader;
use machinery_meta::{ObjectKey, UserInfo, go_time};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
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

/// Compares in a time that does not depend on how much was right.
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
    let expired = !expiration.is_empty() && go_time::parse(&expiration).is_none_or(|until| until <= now);
    if expired {
        return Err("it has expired");
    }
    if stored.text("usage-bootstrap-authentication") != "true" {
        return Err("it is not for authentication");
    }
    let groups = groups(&stored.text("auth-extra-groups"))?;
    Ok(UserInfo::named(format!("system:bootstrap:{id}"), groups))
}

/// The default group and those that the Secret names, sorted and each once.
fn groups(extra: &str) -> Result<BTreeSet<String>, &'static str> {
    let mut groups = BTreeSet::from([DEFAULT_GROUP.to_owned()]);
    if extra.is_empty() {
        return Ok(groups);
    }
    for group in extra.split(',') {
        if !is_group(group) {
            return Err("it names a group that is none of bootstrap tokens");
        }
        groups.insert(group.to_owned());
    }
    Ok(groups)
}

/// `system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]`.
fn is_group(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let own = name.strip_prefix("system:bootstrappers:").unwrap_or_default();
    let Some((last, before)) = own.as_bytes().split_last() else {
        return false;
    };
    plain(*last) && before.len() <= 255 && before.iter().all(|byte| plain(*byte) || b":-".contains(byte))
}

impl TokenAuthenticator for BootstrapTokens {
    fn authenticate_token<'a>(&'a self, shown: ShownToken<'a>) -> AuthnFuture<'a, Outcome> {
        Box::pin(self.identify(shown.token, shown.now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(own: &[(&str, &str)]) -> Secret {
        let all = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        let data = all.iter().chain(own);
        Secret {
            r#type: SECRET_TYPE.to_owned(),
            data: data
                .map(|(name, text)| ((*name).to_owned(), STANDARD.encode(text)))
                .collect(),
        }
    }

    fn ask(own: &[(&str, &str)]) -> Result<UserInfo, &'static str> {
        let now = "2026-11-28T00:00:00Z".parse().unwrap();
        check(&secret(own), "abcdef", "0123456789abcdef", now)
    }

    #[track_caller]
    fn check_groups(extra: &str, expected: Option<&[&str]>) {
        let expected = expected.map(|groups| UserInfo::named("system:bootstrap:abcdef", groups.to_vec()));
        assert_eq!(ask(&[("auth-extra-groups", extra)]).ok(), expected, "{extra:?}");
    }

    #[test]
    fn groups_are_of_bootstrap_tokens_sorted_and_each_once() {
        const ALL: &str = "system:bootstrappers";
        const A: &str = "system:bootstrappers:a";
        const B: &str = "system:bootstrappers:b-1:c";
        check_groups("", Some(&[ALL]));
        check_groups(&[B, A, B].join(","), Some(&[ALL, A, B]));
        let longest = format!("{ALL}:{}", "a".repeat(256));
        check_groups(&longest, Some(&[ALL, &longest]));
        for refused in [
            format!("{A}, {A}"),
            format!("{A},"),
            format!("{ALL}:"),
            format!("{ALL}:a:"),
            format!("{ALL}:Ops Team"),
            format!("{longest}a"),
            "system:masters".to_owned(),
            ALL.to_owned(),
        ] {
            check_groups(&refused, None);
        }
    }

    #[test]
    fn expiration_that_is_no_rfc_3339_time_is_over() {
        assert!(ask(&[("expiration", "2027-01-01T00:00:00Z")]).is_ok());
        for over in [
            "2026-11-28T00:00:00Z",
            "2027-01-01T00:00Z",
            "20270101T000000Z",
            "never",
        ] {
            assert!(ask(&[("expiration", over)]).is_err(), "{over}");
        }
    }
}
