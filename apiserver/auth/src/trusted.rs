//! Reading objects that grant access: absence and failure both mean no.

use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_meta::{GroupResource, ObjectKey};

/// The object, unless it is absent or cannot be read (which goes to the log).
pub(crate) async fn get(
    reader: &dyn ObjectReader,
    group: &str,
    resource: &str,
    key: &ObjectKey,
) -> Option<ReadObject> {
    match reader.get(&GroupResource::new(group, resource), key).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "reading an object for authorization");
            None
        }
    }
}
