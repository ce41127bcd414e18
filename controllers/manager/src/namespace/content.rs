//! Deletes what one resource has in a namespace, and counts what is left.

use super::plan::Findings;
use jiff::Timestamp;
use machinery_client::client::{decode, with_query};
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, DiscoveredResource, Propagation};
use machinery_meta::ObjectKey;
use serde::{Deserialize, Deserializer};

/// Objects listed per resource in a reconcile; the others are deleted in the next one.
const LIST_LIMIT: usize = 500;
/// Longest requeue interval in seconds, whatever grace periods the namespace's pods have.
const LONGEST_GRACE_SECONDS: i64 = 3_600;
/// Objects without what is in them.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// Deletes and counts; failures become findings.
pub(super) async fn empty(
    client: &Client,
    resource: &DiscoveredResource,
    namespace: &str,
    deleted_at: Timestamp,
    now: Timestamp,
    findings: &mut Findings,
) {
    if let Err(error) = try_empty(client, resource, namespace, deleted_at, now, findings).await {
        // A resource that vanished (its CRD went) holds nothing.
        if !error.is_not_found() && error.reason() != "MethodNotAllowed" {
            findings.failed(error.chain());
        }
    }
}

async fn try_empty(
    client: &Client,
    resource: &DiscoveredResource,
    namespace: &str,
    deleted_at: Timestamp,
    now: Timestamp,
    findings: &mut Findings,
) -> Result<(), ClientError> {
    let bound = if resource.has_verbs(&["deletecollection"]) {
        1
    } else {
        LIST_LIMIT
    };
    // One object is enough to know that there is something to delete: most resources of most namespaces are
    // empty.
    let left = list(client, &resource.resource, namespace, bound).await?;
    if left.items.is_empty() {
        return Ok(());
    }
    let options = DeleteOptions {
        propagation: Some(Propagation::Background),
        ..DeleteOptions::default()
    };
    if resource.has_verbs(&["deletecollection"]) {
        client
            .delete_collection(&resource.resource, namespace, &[], &options)
            .await?;
    } else {
        for item in &left.items {
            let key = ObjectKey::new(namespace, &item.metadata.name);
            match client.delete(&resource.resource, &key, &options).await {
                Err(error) if !error.is_not_found() => return Err(error),
                _ => {}
            }
        }
    }
    // Listed again after the deletion: finalizers and grace periods keep objects.
    let left = list(client, &resource.resource, namespace, LIST_LIMIT).await?;
    if left.items.is_empty() {
        return Ok(());
    }
    count(&left, &resource.resource, deleted_at, now, findings);
    Ok(())
}

fn count(
    left: &List,
    resource: &ApiResource,
    deleted_at: Timestamp,
    now: Timestamp,
    findings: &mut Findings,
) {
    let more = left.metadata.remaining_item_count.unwrap_or(0);
    let number = left.items.len().saturating_add(more);
    findings
        .remaining
        .insert(format!("{}.{}", resource.plural, resource.group), number);
    let mut estimate = 0;
    for item in &left.items {
        for finalizer in &item.metadata.finalizers {
            findings.finalizer(finalizer);
        }
        // A pod may take its grace period, from when the namespace was deleted.
        let grace = item.metadata.deletion_grace_period_seconds.unwrap_or(0);
        let grace = grace.clamp(0, LONGEST_GRACE_SECONDS);
        estimate = estimate.max(grace - now.duration_since(deleted_at).as_secs());
    }
    findings.estimate_seconds = findings.estimate_seconds.max(estimate);
}

/// Lists what is there without the objects themselves: those of a namespace may be larger than any answer.
async fn list(
    client: &Client,
    resource: &ApiResource,
    namespace: &str,
    limit: usize,
) -> Result<List, ClientError> {
    let path = with_query(
        &resource.collection_path(namespace),
        &[("limit", limit.to_string())],
    );
    decode("a list", &client.get_path_as(&path, METADATA).await?)
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(default, deserialize_with = "items")]
    items: Vec<Item>,
}

/// An API extension says `null` of an empty list.
fn items<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Item>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    remaining_item_count: Option<usize>,
}

#[derive(Deserialize)]
struct Item {
    metadata: Meta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    name: String,
    #[serde(default)]
    finalizers: Vec<String>,
    #[serde(default)]
    deletion_grace_period_seconds: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_an_extension_are_any() {
        let left = r#"{"metadata": {"remainingItemCount": 18446744073709551615}, "items": [{"metadata": {"name": "a"}}]}"#;
        let left: List = serde_json::from_str(left).unwrap();
        let boats = ApiResource {
            group: "boats.example".into(),
            version: "v1".into(),
            plural: "boats".into(),
            kind: "Boat".into(),
            namespaced: true,
        };
        let mut findings = Findings::default();
        count(&left, &boats, Timestamp::MIN, Timestamp::MAX, &mut findings);
        assert_eq!(findings.remaining["boats.boats.example"], usize::MAX);
    }
}
