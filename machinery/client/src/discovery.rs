//! Resources of the server, from aggregated discovery (`/api` and `/apis`).

use crate::client::{Client, decode};
use crate::error::ClientError;
use crate::resource::ApiResource;
use serde::Deserialize;
use std::borrow::Cow;
use std::time::Duration;

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A served resource with its verbs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveredResource {
    /// Names and scope.
    pub resource: ApiResource,
    /// Such as `list`, `watch`, `deletecollection`.
    pub verbs: Vec<String>,
    /// Names such as `status`.
    pub subresources: Vec<String>,
    /// True for the group's preferred version among those that serve the resource.
    pub preferred: bool,
}

impl DiscoveredResource {
    /// Reports whether all these verbs are served.
    pub fn has_verbs(&self, verbs: &[&str]) -> bool {
        verbs.iter().all(|verb| self.verbs.iter().any(|own| own == verb))
    }
}

/// Interval of further requests while a group version is stale.
pub const STALE_AGAIN: Duration = Duration::from_secs(10);

/// Served resources, and the group versions whose answer was stale (an aggregated server is unreachable).
#[derive(Debug, Default)]
pub struct Discovered {
    /// Every resource, in the server's order.
    pub resources: Vec<DiscoveredResource>,
    /// `group/version`s whose discovery failed.
    pub stale: Vec<String>,
}

impl Discovered {
    /// Time after which discovery is repeated, if the server will not announce that the missing groups are back.
    pub fn again_after(&self) -> Option<Duration> {
        (!self.stale.is_empty()).then_some(STALE_AGAIN)
    }
}

impl Client {
    /// Discovers the served resources.
    pub async fn discover(&self) -> Result<Discovered, ClientError> {
        let mut out = Discovered::default();
        for path in ["/api", "/apis"] {
            let body = self.get_path_as(path, AGGREGATED).await?;
            let list: GroupList = decode("aggregated discovery", &body)?;
            for group in list.items {
                add_group(group, &mut out);
            }
        }
        Ok(out)
    }
}

fn add_group(group: Group, out: &mut Discovered) {
    let first = out.resources.len();
    for version in group.versions {
        if version.freshness.as_deref() == Some("Stale") {
            out.stale
                .push(format!("{}/{}", group.metadata.name, version.version));
            continue;
        }
        for resource in version.resources {
            let preferred = !out.resources[first..]
                .iter()
                .any(|known| known.resource.plural == resource.resource);
            let Some(kind) = resource.response_kind else {
                continue;
            };
            out.resources.push(DiscoveredResource {
                resource: ApiResource {
                    group: Cow::Owned(group.metadata.name.clone()),
                    version: Cow::Owned(version.version.clone()),
                    plural: Cow::Owned(resource.resource),
                    kind: Cow::Owned(kind.kind),
                    namespaced: resource.scope == "Namespaced",
                },
                verbs: resource.verbs,
                subresources: resource
                    .subresources
                    .into_iter()
                    .map(|sub| sub.subresource)
                    .collect(),
                preferred,
            });
        }
    }
}

#[derive(Deserialize)]
struct GroupList {
    #[serde(default)]
    items: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    metadata: Name,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize, Default)]
struct Name {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct Version {
    version: String,
    #[serde(default)]
    freshness: Option<String>,
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    resource: String,
    #[serde(default)]
    response_kind: Option<Kind>,
    #[serde(default)]
    scope: String,
    #[serde(default)]
    verbs: Vec<String>,
    #[serde(default)]
    subresources: Vec<Subresource>,
}

#[derive(Deserialize)]
struct Kind {
    kind: String,
}

#[derive(Deserialize)]
struct Subresource {
    subresource: String,
}
