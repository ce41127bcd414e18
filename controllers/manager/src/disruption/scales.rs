//! The number of pods that the controllers of some pods request: from the caches, or from `scale` of any other kind.

use super::plan::PodRef;
use crate::served_kinds::ServedKinds;
use crate::views::{DeploymentView, ReplicaSetView, ReplicationControllerView, SetView};
use machinery_client::client::decode;
use machinery_client::discovery::DiscoveredResource;
use machinery_client::{Client, ClientError, Informer, Object};
use machinery_meta::{ObjectKey, OwnerRef, Uid};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Requests for one budget at a time: tenants name the controllers of their pods.
const MAX_REQUESTS: usize = 100;

/// The sizes together, and the pods without a controller.
#[derive(Debug, Default)]
pub(super) struct Scale {
    pub(super) replicas: i32,
    pub(super) unmanaged: usize,
}

/// Reason why the sizes are not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScaleError {
    /// Upstream's sentence.
    #[error("{0}")]
    Unknown(String),
    /// The cache of its kind may have it soon.
    #[error("found no controllers for pod {0:?}")]
    NotYet(String),
    /// A request failed.
    #[error("{0}")]
    Request(ClientError),
}

/// A size, of the object with this uid.
struct Sized {
    uid: Uid,
    replicas: i32,
}

pub(super) struct Scales {
    client: Client,
    sets: Informer<ReplicaSetView>,
    deployments: Informer<DeploymentView>,
    controllers: Informer<ReplicationControllerView>,
    kinds: ServedKinds,
}

impl Scales {
    pub(super) fn new(
        client: Client,
        sets: Informer<ReplicaSetView>,
        deployments: Informer<DeploymentView>,
        controllers: Informer<ReplicationControllerView>,
    ) -> Self {
        Self {
            kinds: ServedKinds::new(client.clone()),
            client,
            sets,
            deployments,
            controllers,
        }
    }

    /// Adds up the sizes of the pods' controllers, each once.
    pub(super) async fn of(&self, pods: &[PodRef]) -> Result<Scale, ScaleError> {
        let (mut seen, mut sizes) = (BTreeSet::new(), BTreeMap::new());
        let (mut scale, mut requests) = (Scale::default(), 0);
        for pod in pods {
            let Some(owner) = pod.header.controller() else {
                scale.unmanaged += 1;
                continue;
            };
            if !seen.insert(&owner.uid) {
                continue;
            }
            let found = match self.cached(owner, pod.namespace()) {
                Cached::Known(sized) => sized,
                Cached::Missing => return Err(ScaleError::NotYet(pod.name().to_owned())),
                Cached::Other => {
                    requests += 1;
                    if requests > MAX_REQUESTS {
                        let text = format!(
                            "pods have more than {MAX_REQUESTS} controllers of kinds that are not built in"
                        );
                        return Err(ScaleError::Unknown(text));
                    }
                    let none =
                        || ScaleError::Unknown(format!("found no controllers for pod {:?}", pod.name()));
                    self.requested(owner, pod.namespace()).await?.ok_or_else(none)?
                }
            };
            sizes.insert(found.uid, found.replicas);
        }
        scale.replicas = sizes.values().fold(0, |sum: i32, own| sum.saturating_add(*own));
        Ok(scale)
    }

    fn cached(&self, owner: &OwnerRef, namespace: &str) -> Cached {
        let key = ObjectKey::new(namespace, &*owner.name);
        match (group(&owner.api_version), &*owner.kind) {
            ("", "ReplicationController") => {
                let set = held(&self.controllers, &key, &owner.uid);
                Cached::of(set.map(|set| (set.uid().clone(), set.view().replicas)))
            }
            ("apps" | "extensions", "ReplicaSet") => self.replica_set(&key, &owner.uid),
            _ => Cached::Other,
        }
    }

    /// The size of the Deployment of a set, or of a set that has none.
    fn replica_set(&self, key: &ObjectKey, uid: &Uid) -> Cached {
        let Some(set) = held(&self.sets, key, uid) else {
            return Cached::Missing;
        };
        let Some(owner) = set.header.controller().filter(|own| &*own.kind == "Deployment") else {
            return Cached::of(Some((set.uid().clone(), set.replicas)));
        };
        let key = ObjectKey::new(&*key.namespace, &*owner.name);
        let deployment = held(&self.deployments, &key, &owner.uid);
        Cached::of(deployment.map(|own| (own.uid().clone(), own.replicas)))
    }

    /// Asks `scale` of the owner; `None` where there is no such object.
    async fn requested(&self, owner: &OwnerRef, namespace: &str) -> Result<Option<Sized>, ScaleError> {
        let kinds = self.kinds.all().await.map_err(ScaleError::Request)?;
        let (group, version) = owner
            .api_version
            .split_once('/')
            .unwrap_or(("", &owner.api_version));
        let is_it = |own: &&DiscoveredResource| {
            own.resource.group == group
                && own.resource.version == version
                && *own.resource.kind == *owner.kind
        };
        let Some(kind) = kinds.iter().find(is_it) else {
            let (kind, version) = (&*owner.kind, &*owner.api_version);
            return Err(ScaleError::Unknown(format!(
                "no matches for kind {kind:?} in version {version:?}"
            )));
        };
        if !kind.subresources.iter().any(|own| own == "scale") {
            let name = kind.resource.group_resource();
            return Err(ScaleError::Unknown(format!(
                "{name} does not implement the scale subresource"
            )));
        }
        let namespace = if kind.resource.namespaced { namespace } else { "" };
        let path = kind.resource.object_path(namespace, &owner.name, "scale");
        let body = match self.client.get_path(&path, &[]).await {
            Ok(body) => body,
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(ScaleError::Request(error)),
        };
        let scale: Answer = decode("a scale", &body).map_err(ScaleError::Request)?;
        let same = scale.metadata.uid == *owner.uid.0;
        Ok(same.then(|| Sized {
            uid: owner.uid.clone(),
            replicas: scale.spec.replicas,
        }))
    }
}

/// Answer of the caches about a controller.
enum Cached {
    Known(Sized),
    Missing,
    /// Not of a kind that has a cache here.
    Other,
}

impl Cached {
    fn of(found: Option<(Uid, i32)>) -> Self {
        found.map_or(Self::Missing, |(uid, replicas)| {
            Self::Known(Sized { uid, replicas })
        })
    }
}

fn held<P: machinery_client::Projection>(
    cache: &Informer<P>,
    key: &ObjectKey,
    uid: &Uid,
) -> Option<Arc<Object<P>>> {
    cache.get(key).filter(|own| own.uid() == uid)
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
}

#[derive(Deserialize, Default)]
struct Metadata {
    #[serde(default)]
    uid: String,
}

#[derive(Deserialize, Default)]
struct Spec {
    #[serde(default)]
    replicas: i32,
}
