//! A front proxy that proved itself with a certificate names the user in headers (`--requestheader-*`).

use super::{Authenticator, AuthnFuture, Credentials, Outcome, Refusal, authenticated};
use http::{HeaderMap, HeaderName, HeaderValue};
use machinery_meta::UserInfo;
use machinery_x509::{Authorities, AuthoritiesError};
use rustls::pki_types::CertificateDer;

/// Headers in which front proxies name a user; all but the prefixes in asking order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontProxyHeaders {
    pub username: Vec<HeaderName>,
    pub uid: Vec<HeaderName>,
    pub group: Vec<HeaderName>,
    /// In lower case.
    pub extra_prefix: Vec<String>,
}

impl Default for FrontProxyHeaders {
    fn default() -> Self {
        Self {
            username: vec![HeaderName::from_static("x-remote-user")],
            uid: vec![HeaderName::from_static("x-remote-uid")],
            group: vec![HeaderName::from_static("x-remote-group")],
            extra_prefix: vec!["x-remote-extra-".to_owned()],
        }
    }
}

impl FrontProxyHeaders {
    /// Takes them out of a request.
    pub(super) fn forget(&self, headers: &mut HeaderMap) {
        for name in self.username.iter().chain(&self.uid).chain(&self.group) {
            headers.remove(name);
        }
        let is_extra = |name: &&HeaderName| {
            self.extra_prefix
                .iter()
                .any(|prefix| name.as_str().starts_with(prefix))
        };
        let extra: Vec<HeaderName> = headers.keys().filter(is_extra).cloned().collect();
        for name in extra {
            headers.remove(name);
        }
    }

    /// `None` where no header names a user.
    fn user(&self, headers: &HeaderMap) -> Result<Option<UserInfo>, Refusal> {
        let Some(name) = first(headers, &self.username)? else {
            return Ok(None);
        };
        let mut user = UserInfo {
            name,
            uid: first(headers, &self.uid)?.unwrap_or_default(),
            ..UserInfo::default()
        };
        for group in self.group.iter().flat_map(|name| headers.get_all(name)) {
            let group = text(group)?;
            if !group.is_empty() {
                user.groups.push(group);
            }
        }
        // By prefix first, so that values of one key stand in the order of the prefixes.
        for prefix in &self.extra_prefix {
            for name in headers.keys() {
                let Some(key) = name.as_str().strip_prefix(prefix.as_str()) else {
                    continue;
                };
                let values: Result<Vec<String>, _> = headers.get_all(name).iter().map(text).collect();
                let key = crate::impersonation::unescape(key);
                user.extra.entry(key).or_default().extend(values?);
            }
        }
        Ok(Some(user))
    }
}

/// The first value of the first header that has one.
fn first(headers: &HeaderMap, names: &[HeaderName]) -> Result<Option<String>, Refusal> {
    for name in names {
        let value = headers.get(name).map(text).transpose()?;
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            return Ok(Some(value));
        }
    }
    Ok(None)
}

/// Go takes the bytes as they are. Values that are no UTF-8 could not be compared with any rule, and count as no name at all.
fn text(value: &HeaderValue) -> Result<String, Refusal> {
    String::from_utf8(value.as_bytes().to_vec())
        .map_err(|_| Refusal::new("a header of the front proxy is no UTF-8"))
}

/// Front proxies and what they may say; the authorities can be replaced while running.
#[derive(Debug)]
pub struct RequestHeader {
    authorities: Authorities,
    allowed_names: Vec<String>,
    headers: FrontProxyHeaders,
    refuses_others: bool,
}

impl RequestHeader {
    /// Trusts certificates of these authorities whose common name is one of `allowed_names` (empty: any).
    pub fn new(
        authorities: &[CertificateDer<'static>],
        allowed_names: Vec<String>,
        headers: FrontProxyHeaders,
    ) -> Result<Self, AuthoritiesError> {
        Ok(Self {
            authorities: Authorities::new(authorities.to_vec())?,
            allowed_names,
            headers,
            refuses_others: false,
        })
    }

    /// Refuses the certificates of clients that are no front proxies, as upstream does where it is given front proxies: a peer
    /// that another authenticator knows is still that user, and no other is anonymous.
    #[must_use]
    pub fn refusing_others(self) -> Self {
        Self {
            refuses_others: true,
            ..self
        }
    }

    /// Replaces the authorities, for connections that are open too.
    pub fn replace(&self, authorities: &[CertificateDer<'static>]) -> Result<(), AuthoritiesError> {
        self.authorities.replace(authorities.to_vec())
    }

    pub fn authorities(&self) -> Vec<CertificateDer<'static>> {
        self.authorities.certificates()
    }

    pub fn allowed_names(&self) -> &[String] {
        &self.allowed_names
    }

    pub fn headers(&self) -> &FrontProxyHeaders {
        &self.headers
    }

    fn identify(&self, credentials: &Credentials<'_>) -> Outcome {
        let names_user = |name: &HeaderName| credentials.headers.contains_key(name);
        let Some(peer) = credentials
            .peer
            .filter(|_| self.refuses_others || self.headers.username.iter().any(names_user))
        else {
            return Outcome::Pass;
        };
        let refused = |why: String| match self.refuses_others {
            true => Outcome::Refused(Refusal::new(why)),
            false => Outcome::Pass,
        };
        let name = match self.authorities.verified(peer, credentials.now) {
            Ok(proxy) => proxy.common_name.clone(),
            Err(why) => return refused(why.to_string()),
        };
        if !self.allowed_names.is_empty() && !self.allowed_names.contains(&name) {
            return refused(format!("x509: subject with cn={name} is not in the allowed list"));
        }
        match self.headers.user(credentials.headers) {
            Ok(Some(user)) => Outcome::User(authenticated(user)),
            Ok(None) => Outcome::Pass,
            Err(refusal) => Outcome::Refused(refusal),
        }
    }
}

impl Authenticator for RequestHeader {
    fn name(&self) -> &'static str {
        "request-header"
    }

    fn authenticate<'a>(&'a self, credentials: &'a Credentials<'a>) -> AuthnFuture<'a, Outcome> {
        Box::pin(std::future::ready(self.identify(credentials)))
    }
}

#[cfg(test)]
mod tests;
