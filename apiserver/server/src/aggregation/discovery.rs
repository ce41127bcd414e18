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
use std::collections::HashMap;
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
                return of_groups(&answer.body, &extension.group, &extension.version);
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

fn of_groups(body: &[u8], group: &str, version: &str) -> Result<Arc<[ExtensionResource]>, String> {
    let groups: Groups = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let own = groups
        .items
        .into_iter()
        .filter(|own| own.metadata.name == group)
        .flat_map(|own| own.versions)
        .find(|own| own.version == version);
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

impl Listed {
    fn kind(&self) -> ExtensionKind {
        ExtensionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
        }
    }

    fn scope(&self) -> &'static str {
        if self.namespaced { "Namespaced" } else { "Cluster" }
    }

    fn resource(self) -> ExtensionResource {
        ExtensionResource {
            response_kind: Some(self.kind()),
            scope: self.scope().to_owned(),
            singular_resource: self.singular_name,
            verbs: self.verbs,
            short_names: self.short_names,
            categories: self.categories,
            resource: self.name,
            subresources: Vec::new(),
        }
    }
}

fn of_version(body: &[u8]) -> Result<Arc<[ExtensionResource]>, String> {
    let list: List = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    let (subresources, resources): (Vec<Listed>, Vec<Listed>) = list
        .resources
        .into_iter()
        .partition(|listed| listed.name.contains('/'));
    let mut resources: Vec<ExtensionResource> = resources.into_iter().map(Listed::resource).collect();
    // The first of a name stands for it.
    let mut places: HashMap<String, usize> = HashMap::new();
    for (place, own) in resources.iter().enumerate().rev() {
        places.insert(own.resource.clone(), place);
    }
    for listed in subresources {
        let (resource, subresource) = listed.name.split_once('/').unwrap_or_default();
        let place = *places.entry(resource.to_owned()).or_insert_with(|| {
            resources.push(without_verbs(resource, listed.scope()));
            resources.len() - 1
        });
        let (parent, scope) = (&mut resources[place], listed.scope());
        if parent.scope != scope {
            return Err(format!(
                "Error: Parent {resource} (scope: {}) and subresource {subresource} (scope: {scope}) scope do not match",
                parent.scope
            ));
        }
        parent.subresources.push(ExtensionSubresource {
            subresource: subresource.to_owned(),
            response_kind: (!listed.kind.is_empty()).then(|| listed.kind()),
            verbs: listed.verbs.clone(),
        });
    }
    checked(resources)
}

/// A resource of which only subresources are listed, as adapters of custom metrics do.
fn without_verbs(resource: &str, scope: &str) -> ExtensionResource {
    ExtensionResource {
        resource: resource.to_owned(),
        scope: scope.to_owned(),
        response_kind: Some(ExtensionKind::default()),
        ..ExtensionResource::default()
    }
}

/// Resources of one group version.
const MAX_RESOURCES: usize = 1_000;
/// Subresources of one resource: an adapter has one for each metric.
const MAX_SUBRESOURCES: usize = 4_096;
/// Words of a list.
const MAX_WORDS: usize = 64;
const MAX_WORD_BYTES: usize = 253;
const TOO_LARGE: &str = "the discovery document is larger than any server's";

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
            && own.subresources.len() <= MAX_SUBRESOURCES
            && own.subresources.iter().all(is_sub)
    };
    match resources.len() <= MAX_RESOURCES && resources.iter().all(is_bounded) {
        true => Ok(resources.into()),
        false => Err(TOO_LARGE.to_owned()),
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

    /// Rows of upstream's `TestConvertGroupVersionIntoToDiscovery`.
    #[test]
    fn discovery_of_an_extension_has_subresources_without_or_before_their_resource() {
        let read = |listed: &str| of_version(format!(r#"{{"resources": [{listed}]}}"#).as_bytes());
        let metric =
            r#"{"name": "pods/hits", "namespaced": true, "kind": "MetricValueList", "verbs": ["get"]}"#;
        let pods = read(metric).unwrap();
        assert_eq!(
            (pods[0].resource.as_str(), pods[0].scope.as_str()),
            ("pods", "Namespaced")
        );
        assert!(pods[0].verbs.is_empty());
        assert_eq!(pods[0].response_kind, Some(ExtensionKind::default()));
        assert_eq!(pods[0].subresources[0].subresource, "hits");
        let both =
            format!(r#"{metric}, {{"name": "pods", "namespaced": true, "kind": "Pod", "verbs": ["list"]}}"#);
        let both = read(&both).unwrap();
        assert_eq!(
            (both.len(), both[0].subresources.len(), both[0].verbs.len()),
            (1, 1, 1)
        );
        let other = format!(r#"{metric}, {{"name": "pods", "kind": "Pod"}}"#);
        assert_eq!(
            read(&other).unwrap_err(),
            "Error: Parent pods (scope: Cluster) and subresource hits (scope: Namespaced) scope do not match"
        );
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
        // The parent of each subresource is looked for among so many resources and no more.
        let listed: Vec<String> = (0..=MAX_RESOURCES)
            .map(|at| format!(r#"{{"name":"r{at}"}}"#))
            .collect();
        let listed = format!(r#"{{"resources":[{}]}}"#, listed.join(","));
        assert_eq!(of_version(listed.as_bytes()).unwrap_err(), TOO_LARGE);
    }

    fn built(random: &mut machinery_fuzz::Random) -> Vec<u8> {
        let mut listed = Vec::new();
        for _ in 0..random.count() {
            let name = random.pick(&["boats", "boats/status", "boats/scale", "", "/"]);
            let verbs = random.pick(&["null", "[]", r#"["get","list"]"#, "{}", "0"]);
            listed.push(match random.below(2) {
                0 => format!(r#"{{"name":"{name}","kind":"Boat","verbs":{verbs}}}"#),
                _ => format!(
                    r#"{{"resource":"{name}","verbs":{verbs},"subresources":[{{"subresource":"{name}"}}]}}"#
                ),
            });
        }
        let listed = listed.join(",");
        let groups = format!(
            r#"{{"items":[{{"metadata":{{"name":"g"}},"versions":[{{"version":"v1","resources":[{listed}]}}]}}]}}"#
        );
        let list = format!(r#"{{"resources":[{listed}]}}"#);
        [groups, list][random.below(2)].clone().into_bytes()
    }

    #[test]
    fn discovery_of_any_bytes_is_read() {
        let good = [
            r#"{"resources":[{"name":"boats","kind":"Boat","verbs":["get"]},{"name":"boats/status","verbs":["get"]}]}"#,
            r#"{"items":[{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[{"resource":"boats"}]}]}]}"#,
        ];
        machinery_fuzz::fuzz_built(good, built, |input| {
            let of_groups = || of_groups(input, "g", "v1");
            let of_version = || of_version(input);
            let grouped = machinery_fuzz::in_proportion(input, 256, of_groups);
            let plain = machinery_fuzz::in_proportion(input, 256, of_version);
            for read in [grouped, plain].into_iter().flatten() {
                assert!(read.len() <= MAX_RESOURCES);
            }
        });
    }
}
