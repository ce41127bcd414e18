//! Discovery of an extension: read every minute and whenever its condition changes, kept while it does not
//! answer.
//!
//! Only its own group version counts, in whatever document it claims others. Sizes are bounded: controllers and clients read
//! the documents of all extensions as one.

use super::Aggregation;
use super::documents::{Answer, Caller, Wanted};
use super::table::Extension;
use apiserver_endpoints::{ExtensionKind, ExtensionResource, ExtensionSubresource, null_as_default};
use http::StatusCode;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;

/// Time between two requests; longest time after failures.
const INTERVAL: Duration = Duration::from_secs(60);
/// Time after a first failure, which doubles.
const FIRST_RETRY: Duration = Duration::from_millis(500);
const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BYTES: usize = 1 << 20;
const ACCEPT_GROUPS: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// Runs as long as the extension is registered.
pub(super) async fn keep(aggregation: Arc<Aggregation>, extension: Arc<Extension>) {
    let mut failures: u32 = 0;
    loop {
        let changed = extension.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        let fetched = aggregation.resources(&extension).await;
        let documents = &extension.documents;
        let is_new = match fetched {
            Ok(resources) => {
                failures = 0;
                documents.set_resources(resources)
            }
            Err(error) => {
                tracing::debug!(error, name = extension.name, "discovery of an API service failed");
                failures = failures.saturating_add(1);
                documents.set_stale()
            }
        };
        let is_new_document = aggregation.read_openapi(&extension).await;
        if is_new || is_new_document {
            aggregation.show();
        }
        let wait = match failures {
            0 => INTERVAL,
            failed => FIRST_RETRY
                .saturating_mul(1 << (failed - 1).min(16))
                .min(INTERVAL),
        };
        aggregation.runtime.sleep(FIRST_RETRY).await;
        tokio::select! { biased;
            () = changed => {}
            () = aggregation.runtime.sleep(wait) => {}
        }
    }
}

impl Aggregation {
    async fn resources(&self, extension: &Extension) -> Result<Arc<[ExtensionResource]>, String> {
        let groups = Wanted {
            path: "/apis",
            accept: ACCEPT_GROUPS,
            caller: Caller::Aggregator,
            etag: "",
            limit: MAX_BYTES,
            within: TIMEOUT,
        };
        if !extension.group.is_empty() {
            let answer = self.fetch(extension, groups).await?;
            if answer.status == StatusCode::SERVICE_UNAVAILABLE {
                return Err("the service is unavailable".to_owned());
            }
            if answer.status == StatusCode::OK && is_aggregated(&answer) {
                return of_groups(&answer.body, extension);
            }
        }
        let root = extension.root();
        let version = Wanted {
            path: &root,
            accept: "application/json",
            ..groups
        };
        let answer = self.fetch(extension, version).await?;
        match answer.status {
            StatusCode::OK => of_version(&answer.body),
            other => Err(format!("failed to download legacy discovery: {other}")),
        }
    }
}

fn is_aggregated(answer: &Answer) -> bool {
    let kind = answer.content_type();
    kind.contains("as=APIGroupDiscoveryList") && kind.contains("g=apidiscovery.k8s.io")
}

#[derive(Deserialize)]
struct Groups {
    #[serde(default, deserialize_with = "null_as_default")]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default, deserialize_with = "null_as_default")]
    versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default, deserialize_with = "null_as_default")]
    resources: Vec<ExtensionResource>,
}

fn of_groups(body: &[u8], extension: &Extension) -> Result<Arc<[ExtensionResource]>, String> {
    let groups: Groups = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let own = groups
        .items
        .into_iter()
        .filter(|group| group.metadata.name == extension.group)
        .flat_map(|group| group.versions)
        .find(|version| version.version == extension.version);
    checked(own.map(|own| own.resources).unwrap_or_default())
}

/// The plain form: subresources are resources with a slash in their names.
#[derive(Deserialize)]
struct List {
    #[serde(default, deserialize_with = "null_as_default")]
    resources: Vec<Listed>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Listed {
    name: String,
    singular_name: String,
    namespaced: bool,
    group: String,
    version: String,
    kind: String,
    #[serde(deserialize_with = "null_as_default")]
    verbs: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    short_names: Vec<String>,
    #[serde(deserialize_with = "null_as_default")]
    categories: Vec<String>,
}

fn of_version(body: &[u8]) -> Result<Arc<[ExtensionResource]>, String> {
    let list: List = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let mut resources: Vec<ExtensionResource> = Vec::new();
    for listed in list.resources {
        let kind = ExtensionKind {
            group: listed.group,
            version: listed.version,
            kind: listed.kind,
        };
        let Some((resource, subresource)) = listed.name.split_once('/') else {
            resources.push(ExtensionResource {
                response_kind: Some(kind),
                scope: if listed.namespaced {
                    "Namespaced"
                } else {
                    "Cluster"
                }
                .to_owned(),
                singular_resource: listed.singular_name,
                verbs: listed.verbs,
                short_names: listed.short_names,
                categories: listed.categories,
                resource: listed.name,
                subresources: Vec::new(),
            });
            continue;
        };
        let parent = resources.iter_mut().find(|own| own.resource == resource);
        let Some(parent) = parent else { continue };
        parent.subresources.push(ExtensionSubresource {
            subresource: subresource.to_owned(),
            response_kind: Some(kind),
            verbs: listed.verbs,
        });
    }
    checked(resources)
}

/// Resources of one group version.
const MAX_RESOURCES: usize = 1_000;
/// Subresources of a resource, and each of its lists of words.
const MAX_WORDS: usize = 64;
const MAX_WORD_BYTES: usize = 253;

/// Refuses what no server says of itself.
fn checked(resources: Vec<ExtensionResource>) -> Result<Arc<[ExtensionResource]>, String> {
    let is_word = |word: &String| word.len() <= MAX_WORD_BYTES;
    let are_words = |words: &Vec<String>| words.len() <= MAX_WORDS && words.iter().all(is_word);
    let is_kind = |kind: &Option<ExtensionKind>| {
        let kinds = kind.iter();
        kinds
            .into_iter()
            .all(|own| is_word(&own.group) && is_word(&own.version) && is_word(&own.kind))
    };
    let is_bounded = |own: &ExtensionResource| {
        let names = [&own.resource, &own.singular_resource, &own.scope];
        let words = [&own.verbs, &own.short_names, &own.categories];
        let is_sub = |sub: &ExtensionSubresource| {
            is_word(&sub.subresource) && are_words(&sub.verbs) && is_kind(&sub.response_kind)
        };
        names.into_iter().all(is_word)
            && words.into_iter().all(are_words)
            && is_kind(&own.response_kind)
            && own.subresources.len() <= MAX_WORDS
            && own.subresources.iter().all(is_sub)
    };
    match resources.len() <= MAX_RESOURCES && resources.iter().all(is_bounded) {
        true => Ok(resources.into()),
        false => Err("the discovery document is larger than any server's".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_of_an_extension_may_have_null_for_lists() {
        let listed =
            br#"{"resources": [{"name": "boats", "kind": "Boat", "verbs": null, "shortNames": null}]}"#;
        assert_eq!(of_version(listed).unwrap().len(), 1);
        assert_eq!(of_version(br#"{"resources": null}"#).unwrap().len(), 0);
    }

    #[test]
    fn discovery_of_an_extension_is_bounded() {
        let many: Vec<ExtensionResource> = vec![ExtensionResource::default(); MAX_RESOURCES + 1];
        assert!(checked(many).is_err());
        let long = ExtensionResource {
            short_names: vec!["a".repeat(MAX_WORD_BYTES + 1)],
            ..ExtensionResource::default()
        };
        assert!(checked(vec![long]).is_err());
    }
}
