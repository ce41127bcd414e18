//! Stored objects as their types in the table have them: the one reading for callers that decide by another object.

use crate::schema_for;
use machinery_schema::{DecodeError, Strictness, Tree, decode_json};

/// The stored text is not an object of its kind; a caller that decides by it refuses.
#[derive(Debug, thiserror::Error)]
pub enum StoredError {
    #[error("{0} is no built-in kind")]
    UnknownKind(String),
    #[error("the stored {kind} cannot be read")]
    Unreadable {
        kind: String,
        #[source]
        cause: DecodeError,
    },
}

/// A stored object of a built-in kind. Null is absence, members of no meaning are left out, a member of another type
/// than the table's is an error.
///
/// # Errors
/// [`StoredError`] where the kind is unknown or the text is no object of it.
pub fn read_stored(group: &str, version: &str, kind: &str, json: &[u8]) -> Result<Tree, StoredError> {
    let (schema, ty) =
        schema_for(group, version, kind).ok_or_else(|| StoredError::UnknownKind(kind.to_owned()))?;
    match decode_json(schema, ty, json, Strictness::Ignore) {
        Ok(decoded) => Ok(decoded.tree),
        Err(cause) => Err(StoredError::Unreadable {
            kind: kind.to_owned(),
            cause,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::PodView;

    #[test]
    fn stored_pod_of_other_types_is_an_error() {
        let read = |json: &str| read_stored("", "v1", "Pod", json.as_bytes());
        let absent =
            read(r#"{"metadata":{"name":"p"},"spec":{"nodeName":null,"volumes":null,"containers":null}}"#);
        let absent = absent.unwrap();
        assert_eq!(PodView::new(absent.root()).node_name(), "");
        for wrong in [
            r#"{"spec":{"nodeName":1}}"#,
            r#"{"spec":[]}"#,
            r#"{"spec":{"volumes":{}}}"#,
            r#"{"metadata":{"annotations":{"a":1}}}"#,
            "nonsense",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert!(read_stored("", "v1", "None", b"{}").is_err());
    }
}
