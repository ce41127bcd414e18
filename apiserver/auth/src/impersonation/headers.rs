//! The `Impersonate-*` headers.

use super::ImpersonationError;
use http::HeaderMap;
use std::collections::BTreeMap;

const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA_PREFIX: &str = "impersonate-extra-";
/// Impersonation headers that one request may carry.
const MAX_HEADERS: usize = 256;

/// The user that the headers request, as they say it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Wanted {
    pub(super) name: String,
    pub(super) groups: Vec<String>,
    pub(super) uid: String,
    pub(super) extra: BTreeMap<String, Vec<String>>,
}

/// Takes the headers away, so that no handler behind sees them.
pub fn strip(headers: &mut HeaderMap) {
    let names = headers.keys().filter(|name| name.as_str().starts_with(PREFIX));
    let names: Vec<_> = names.cloned().collect();
    for name in names {
        headers.remove(name);
    }
}

/// All values of a header. One that is no UTF-8 names no user, and is not passed over: the request would go on as its
/// sender.
fn values(headers: &HeaderMap, name: &str) -> Result<Vec<String>, ImpersonationError> {
    let all = headers.get_all(name).iter();
    all.map(|value| String::from_utf8(value.as_bytes().to_vec()).map_err(|_| ImpersonationError::NotText))
        .collect()
}

/// `None` where no header requests impersonation.
pub(super) fn wanted(headers: &HeaderMap) -> Result<Option<Wanted>, ImpersonationError> {
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(None);
    }
    let first = |name: &str| -> Result<String, ImpersonationError> {
        Ok(values(headers, name)?.into_iter().next().unwrap_or_default())
    };
    let mut found = Wanted {
        name: first(USER)?,
        uid: first(UID)?,
        groups: values(headers, GROUP)?,
        extra: BTreeMap::new(),
    };
    for header in headers.keys() {
        if let Some(key) = header.as_str().strip_prefix(EXTRA_PREFIX) {
            let all = found.extra.entry(unescape(key)).or_default();
            all.extend(values(headers, header.as_str())?);
        }
    }
    if found.groups.len() + found.extra.values().map(Vec::len).sum::<usize>() > MAX_HEADERS {
        return Err(ImpersonationError::TooMany);
    }
    if !found.name.is_empty() {
        return Ok(Some(found));
    }
    if found == Wanted::default() {
        Ok(None)
    } else {
        Err(ImpersonationError::WithoutUser(found.described()))
    }
}

/// The key of an extra from the name of its header, which is lower case and percent-escaped. One with a bad escape is
/// taken as it stands, as Go's `url.PathUnescape` leaves it.
pub(crate) fn unescape(key: &str) -> String {
    unescaped(key).unwrap_or_else(|| key.to_owned())
}

fn unescaped(key: &str) -> Option<String> {
    let mut bytes = key.bytes();
    let mut out = Vec::with_capacity(key.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(out).ok()
}

impl Wanted {
    /// The requested user as Go prints it.
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
}
