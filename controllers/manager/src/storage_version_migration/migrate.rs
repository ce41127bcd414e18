//! Walks over the objects of a resource, page by page.

use machinery_client::{ApiResource, Client, ClientError, Patch};
use machinery_meta::{ObjectKey, Revision};
use serde::Deserialize;
use serde_json::json;

/// Objects of a page.
const PAGE: usize = 100;

/// Objects that were looked at, and those of them that are still to be written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) all: usize,
    pub(super) left: usize,
}

#[derive(Deserialize)]
pub(super) struct Page {
    #[serde(default)]
    pub(super) metadata: PageMeta,
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PageMeta {
    pub(super) resource_version: String,
    r#continue: String,
}

#[derive(Deserialize)]
struct Item {
    metadata: ItemMeta,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ItemMeta {
    namespace: String,
    name: String,
    resource_version: String,
}

/// A page of a resource's objects; of the first one, without objects of interest, the revision is the newest.
pub(super) async fn page(
    client: &Client,
    resource: &ApiResource,
    (limit, token): (usize, &str),
) -> Result<Page, ClientError> {
    let mut query = vec![("limit", limit.to_string())];
    if !token.is_empty() {
        query.push(("continue", token.to_owned()));
    }
    client.list_as(resource, "", &query).await
}

/// Writes every object anew that is not newer than this revision. Returns the counts, and the error that ended the walk.
pub(super) async fn walk(
    client: &Client,
    resource: &ApiResource,
    newest: Revision,
) -> (Counts, Option<ClientError>) {
    let (mut counts, mut token) = (Counts::default(), String::new());
    loop {
        let page = match page(client, resource, (PAGE, &token)).await {
            Ok(page) => page,
            Err(error) => return (counts, Some(error)),
        };
        counts.all += page.items.len();
        let of_interest = |item: &Item| {
            let revision: Revision = item.metadata.resource_version.parse().unwrap_or(Revision::ZERO);
            revision <= newest
        };
        let items: Vec<Item> = page.items.into_iter().filter(of_interest).collect();
        counts.left += items.len();
        for item in items {
            match rewrite(client, resource, &item.metadata).await {
                // Written by another, or gone: it needs no more.
                Err(error) if !error.is_conflict() && !error.is_not_found() => return (counts, Some(error)),
                _ => counts.left -= 1,
            }
        }
        token = page.metadata.r#continue;
        if token.is_empty() {
            return (counts, None);
        }
    }
}

/// Sends a patch that changes nothing.
async fn rewrite(client: &Client, resource: &ApiResource, item: &ItemMeta) -> Result<(), ClientError> {
    let body = json!({"apiVersion": resource.api_version(), "kind": &*resource.kind,
        "metadata": {"resourceVersion": item.resource_version}});
    let key = ObjectKey::new(&*item.namespace, &*item.name);
    client
        .patch(resource, &key, "", &Patch::Merge, &body)
        .await
        .map(drop)
}

/// Reports whether a write may succeed when it is tried again.
pub(super) fn is_transient(error: &ClientError) -> bool {
    matches!(error.code(), 0 | 429 | 500 | 503 | 504)
}
