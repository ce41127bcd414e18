//! Acting as somebody else: the `Impersonate-*` headers, what they need to be allowed, and who results.

use crate::authz::attributes::{ResourceTarget, Target};
use crate::authz::{Attributes, AuthorizerChain, Forbidden};
use http::HeaderMap;
use machinery_meta::UserInfo;
use std::collections::BTreeMap;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA_PREFIX: &str = "impersonate-extra-";
/// How many headers of this kind one request may carry.
const MAX_HEADERS: usize = 256;

/// Why the request does not go on under another name.
#[derive(Debug, thiserror::Error)]
pub enum ImpersonationError {
    #[error("requested {0} without impersonating a user name")]
    WithoutUser(String),
    #[error("too many impersonation headers")]
    TooMany,
    #[error("{}", .0.message())]
    Forbidden(Box<Forbidden>),
}

/// What the headers ask for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Requested {
    name: String,
    groups: Vec<String>,
    uid: String,
    extra: BTreeMap<String, Vec<String>>,
}

/// The user to go on as, when the headers ask for one and `user` may act as it.
pub async fn impersonate(
    user: &UserInfo,
    headers: &HeaderMap,
    chain: &AuthorizerChain,
) -> Result<Option<UserInfo>, ImpersonationError> {
    let Some(requested) = requested(headers)? else {
        return Ok(None);
    };
    for target in requested.targets() {
        let attributes = Attributes {
            user,
            verb: "impersonate",
            target: Target::Resource(target),
        };
        let decision = chain.authorize(&attributes).await;
        if !decision.is_allowed() {
            return Err(ImpersonationError::Forbidden(Box::new(Forbidden::new(
                &attributes,
                &decision,
            ))));
        }
    }
    Ok(Some(requested.user()))
}

/// Takes the headers away, so that nobody behind sees them.
pub fn strip(headers: &mut HeaderMap) {
    let names: Vec<_> = headers
        .keys()
        .filter(|name| name.as_str().starts_with("impersonate-"))
        .cloned()
        .collect();
    for name in names {
        headers.remove(name);
    }
}

fn requested(headers: &HeaderMap) -> Result<Option<Requested>, ImpersonationError> {
    if headers
        .keys()
        .filter(|name| name.as_str().starts_with("impersonate-"))
        .count()
        == 0
    {
        return Ok(None);
    }
    let values = |name: &str| -> Vec<String> {
        headers
            .get_all(name)
            .iter()
            .filter_map(|value| value.to_str().ok())
            .map(str::to_owned)
            .collect()
    };
    let mut found = Requested {
        groups: values(GROUP),
        ..Requested::default()
    };
    found.name = values(USER).into_iter().next().unwrap_or_default();
    found.uid = values(UID).into_iter().next().unwrap_or_default();
    for header in headers.keys() {
        if let Some(key) = header.as_str().strip_prefix(EXTRA_PREFIX) {
            found.extra.insert(unescape(key), values(header.as_str()));
        }
    }
    if found.groups.len() + found.extra.values().map(Vec::len).sum::<usize>() > MAX_HEADERS {
        return Err(ImpersonationError::TooMany);
    }
    if !found.name.is_empty() {
        return Ok(Some(found));
    }
    let nothing = found.groups.is_empty() && found.uid.is_empty() && found.extra.is_empty();
    if nothing {
        Ok(None)
    } else {
        Err(ImpersonationError::WithoutUser(found.described()))
    }
}

/// Header names are lower case and percent-escaped.
pub(crate) fn unescape(key: &str) -> String {
    let bytes = key.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%').then(|| key.get(at + 1..at + 3)).flatten();
        match escaped.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| key.to_owned())
}

impl Requested {
    /// As Go prints the user that is asked for.
    fn described(&self) -> String {
        let list = |items: &[String]| {
            let items: Vec<String> = items.iter().map(|item| format!("{item:?}")).collect();
            format!("{{{}}}", items.join(", "))
        };
        let groups = match self.groups.as_slice() {
            [] => "(nil)".to_owned(),
            groups => list(groups),
        };
        let extra = if self.extra.is_empty() {
            "(nil)".to_owned()
        } else {
            let items = self
                .extra
                .iter()
                .map(|(key, values)| format!("{key:?}:[]string{}", list(values)));
            format!("{{{}}}", items.collect::<Vec<_>>().join(", "))
        };
        format!(
            "&user.DefaultInfo{{Name:\"\", UID:{:?}, Groups:[]string{groups}, Extra:map[string][]string{extra}}}",
            self.uid
        )
    }

    /// Namespace and name, when the user is a service account.
    fn service_account(&self) -> Option<(&str, &str)> {
        self.name.strip_prefix("system:serviceaccount:")?.split_once(':')
    }

    /// What must be allowed with verb `impersonate`, in upstream's order.
    fn targets(&self) -> Vec<ResourceTarget<'_>> {
        let core = ResourceTarget {
            version: "v1",
            ..ResourceTarget::default()
        };
        let authentication = ResourceTarget {
            group: "authentication.k8s.io",
            ..core
        };
        let mut targets = vec![match self.service_account() {
            Some((namespace, name)) => ResourceTarget {
                resource: "serviceaccounts",
                namespace,
                name,
                ..core
            },
            None => ResourceTarget {
                resource: "users",
                name: &self.name,
                ..core
            },
        }];
        targets.extend(self.groups.iter().map(|name| ResourceTarget {
            resource: "groups",
            name,
            ..core
        }));
        for (key, values) in &self.extra {
            targets.extend(values.iter().map(|name| ResourceTarget {
                resource: "userextras",
                subresource: key,
                name,
                ..authentication
            }));
        }
        if !self.uid.is_empty() {
            targets.push(ResourceTarget {
                resource: "uids",
                name: &self.uid,
                ..authentication
            });
        }
        targets
    }

    fn user(self) -> UserInfo {
        let mut groups = self.groups.clone();
        if let (true, Some((namespace, _))) = (groups.is_empty(), self.service_account()) {
            groups = vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
            ];
        }
        let standing = if self.name == "system:anonymous" {
            UserInfo::UNAUTHENTICATED
        } else {
            UserInfo::AUTHENTICATED
        };
        let stands = groups
            .iter()
            .any(|own| own == UserInfo::AUTHENTICATED || own == UserInfo::UNAUTHENTICATED);
        if !stands {
            groups.push(standing.to_owned());
        }
        UserInfo {
            name: self.name,
            uid: self.uid,
            groups,
            extra: self.extra,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(
                name.parse::<HeaderName>().unwrap(),
                HeaderValue::from_str(value).unwrap(),
            );
        }
        map
    }

    #[test]
    fn headers_become_a_user() {
        let map = headers(&[
            ("Impersonate-User", "jane"),
            ("Impersonate-Group", "dev"),
            ("Impersonate-Extra-acme%2ecom%2Fscope", "a"),
        ]);
        let asked = requested(&map).unwrap().unwrap();
        let names: Vec<_> = asked
            .targets()
            .iter()
            .map(|t| (t.resource, t.subresource.to_owned(), t.name.to_owned()))
            .collect();
        let expected = [
            ("users", "", "jane"),
            ("groups", "", "dev"),
            ("userextras", "acme.com/scope", "a"),
        ];
        assert_eq!(names, expected.map(|(a, b, c)| (a, b.to_owned(), c.to_owned())));
        assert_eq!(asked.user().groups, ["dev", "system:authenticated"]);
    }

    #[test]
    fn a_service_account_brings_its_groups() {
        let map = headers(&[("Impersonate-User", "system:serviceaccount:ns:sa")]);
        let user = requested(&map).unwrap().unwrap().user();
        assert_eq!(
            user.groups,
            [
                "system:serviceaccounts",
                "system:serviceaccounts:ns",
                "system:authenticated"
            ]
        );
    }

    #[test]
    fn groups_need_a_user() {
        assert!(requested(&headers(&[("Accept", "x")])).unwrap().is_none());
        assert!(requested(&headers(&[("Impersonate-Group", "x")])).is_err());
    }
}
