//! OpenAPI of an extension: the address of its OpenAPI v3 document, which is passed on, and its part of the v2
//! document, which is read.

use super::Aggregation;
use super::documents::{Caller, TaggedV2, Wanted};
use super::table::Extension;
use apiserver_endpoints::OpenApiV2;
use http::StatusCode;
use machinery_api::openapi::v2::OtherDocument;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_ROOT_BYTES: usize = 256 << 10;
const MAX_DOCUMENT_BYTES: usize = 4 << 20;
const MAX_ADDRESS_BYTES: usize = 1_024;

impl Aggregation {
    /// Reads both anew; reports whether anything changed. An unreadable one stays as it was.
    pub(super) async fn read_openapi(&self, extension: &Extension) -> bool {
        let documents = &extension.documents;
        let (root, document) = (self.root(extension).await, self.document(extension).await);
        let is_new_root = match root {
            Ok(address) => documents.set_openapi_v3(address),
            Err(error) => {
                tracing::debug!(
                    error,
                    name = extension.name,
                    "reading the OpenAPI root of an API service"
                );
                false
            }
        };
        let is_new_document = match document {
            Ok(Some(document)) => documents.set_openapi_v2(document),
            Ok(None) => false,
            Err(error) => {
                tracing::debug!(
                    error,
                    name = extension.name,
                    "reading the OpenAPI document of an API service"
                );
                false
            }
        };
        is_new_root || is_new_document
    }

    /// The address of the v3 document of the group version; `None` where the extension has none.
    async fn root(&self, extension: &Extension) -> Result<Option<Arc<str>>, String> {
        let wanted = Wanted {
            path: "/openapi/v3",
            accept: "application/json",
            caller: Caller::Documents,
            etag: "",
            limit: MAX_ROOT_BYTES,
            within: TIMEOUT,
        };
        let answer = self.fetch(extension, wanted).await?;
        match answer.status {
            StatusCode::OK => address_of(&answer.body, &extension.root()),
            StatusCode::NOT_FOUND => Ok(None),
            other => Err(format!("failed to download the root of OpenAPI: {other}")),
        }
    }

    /// The v2 document, and in it whether there is one; `None` where it is the one that is there already.
    async fn document(&self, extension: &Extension) -> Result<Option<Option<TaggedV2>>, String> {
        let known = extension.documents.openapi_v2();
        let wanted = Wanted {
            path: "/openapi/v2",
            accept: "application/json",
            caller: Caller::Documents,
            etag: (*known).as_ref().map_or("", |known| &known.etag),
            limit: MAX_DOCUMENT_BYTES,
            within: TIMEOUT,
        };
        let answer = self.fetch(extension, wanted).await?;
        match answer.status {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED => return Ok(None),
            StatusCode::NOT_FOUND => return Ok(Some(None)),
            other => return Err(format!("failed to retrieve openAPI spec, http error: {other}")),
        }
        let digest: Arc<[u8]> = Sha256::digest(&answer.body).to_vec().into();
        if (*known).as_ref().is_some_and(|known| known.part.digest == digest) {
            return Ok(None);
        }
        let (group, version) = (extension.group.clone(), extension.version.clone());
        let etag = answer.etag().to_owned();
        // One at a time: read, a document takes many times its bytes.
        let turn = self.reading.lock().await;
        let reading = self
            .runtime
            .blocking(move || OtherDocument::read(&answer.body, &group, &version));
        let read = reading.await.map_err(|error| error.to_string())?;
        drop(turn);
        let document = Arc::new(read.ok_or("the document cannot be read")?);
        let part = OpenApiV2 { document, digest };
        Ok(Some(Some(TaggedV2 { part, etag })))
    }
}

#[derive(Deserialize)]
struct Root {
    #[serde(default)]
    paths: BTreeMap<String, RootPath>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RootPath {
    #[serde(rename = "serverRelativeURL")]
    server_relative_url: String,
}

/// The address of the document of what lies below a path.
fn address_of(body: &[u8], path: &str) -> Result<Option<Arc<str>>, String> {
    let root: Root = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let path = path.trim_start_matches('/');
    let Some(found) = root.paths.get(path) else {
        return Ok(None);
    };
    // An address elsewhere would be followed by clients, with their credentials.
    let expected = format!("/openapi/v3/{path}");
    let rest = found.server_relative_url.strip_prefix(&expected);
    let is_own = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('?'));
    let is_plain = found
        .server_relative_url
        .bytes()
        .all(|byte| byte.is_ascii_graphic());
    let address = match is_own && is_plain && found.server_relative_url.len() <= MAX_ADDRESS_BYTES {
        true => found.server_relative_url.as_str(),
        false => expected.as_str(),
    };
    Ok(Some(address.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(said: &str, expected: &str) {
        let root = serde_json::json!({"paths": {"apis/a.b/v1": {"serverRelativeURL": said}}}).to_string();
        let address = address_of(root.as_bytes(), "/apis/a.b/v1").unwrap();
        assert_eq!(address.as_deref(), Some(expected), "{said}");
        assert_eq!(address_of(root.as_bytes(), "/apis/other/v1").unwrap(), None);
    }

    #[test]
    fn openapi_address_of_an_extension_stays_on_this_server() {
        let own = "/openapi/v3/apis/a.b/v1";
        check("/openapi/v3/apis/a.b/v1?hash=A", "/openapi/v3/apis/a.b/v1?hash=A");
        for elsewhere in [
            "https://elsewhere/openapi/v3/apis/a.b/v1",
            "/openapi/v3/apis/apps/v1?hash=A",
            "/openapi/v3/apis/a.b/v1/../../apps/v1",
            "/openapi/v3/apis/a.b/v1?a b",
            "",
        ] {
            check(elsewhere, own);
        }
        check(&format!("{own}?{}", "a".repeat(2_000)), own);
    }
}
