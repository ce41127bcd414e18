//! Paths and queries of requests.

use crate::error::ClientError;
use crate::resource::ApiResource;
use machinery_meta::{ObjectKey, syntax};

/// The path of an object. References that tenants write hold any text as a name: one with a slash would be the path of
/// a subresource or of another namespace's object.
pub(super) fn path_of(
    resource: &ApiResource,
    key: &ObjectKey,
    subresource: &str,
) -> Result<String, ClientError> {
    let names = [&key.namespace, &key.name];
    let rules = names.map(|name| (name, syntax::path_segment_name(name)));
    let empty = key.name.is_empty().then(|| vec!["may not be empty".to_owned()]);
    let mut all = rules
        .into_iter()
        .chain(empty.map(|problems| (&key.name, problems)));
    if let Some((name, problems)) = all.find(|(_, problems)| !problems.is_empty()) {
        return Err(ClientError::Name {
            name: name.clone(),
            problems: problems.join(", "),
        });
    }
    Ok(resource.object_path(&key.namespace, &key.name, subresource))
}

/// Appends query pairs, percent-encoded.
pub fn with_query(path: &str, query: &[(&str, String)]) -> String {
    let mut out = path.to_owned();
    for (at, (name, value)) in query.iter().enumerate() {
        out.push(if at == 0 && !path.contains('?') { '?' } else { '&' });
        out.push_str(name);
        out.push('=');
        push_encoded(&mut out, value, b"-_.~");
    }
    out
}

/// Appends text, percent-encoded but for letters, digits and these.
pub(crate) fn push_encoded(out: &mut String, text: &str, plain: &[u8]) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || plain.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_encoded() {
        let query = [
            ("labelSelector", "a in (b,c)".to_owned()),
            ("limit", "5".to_owned()),
        ];
        assert_eq!(
            with_query("/x", &query),
            "/x?labelSelector=a%20in%20%28b%2Cc%29&limit=5"
        );
    }
}
