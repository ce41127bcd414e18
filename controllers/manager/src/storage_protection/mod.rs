//! Removes the finalizer of deleted volumes, claims and attribute classes once no pod and no volume uses them.
//!
//! Admission gives each of them a finalizer, and one that has lost it gets it back. A volume is used while it is bound; a claim while a pod that was given a
//! node names it, whether that has ended or not; a class while a volume or a claim speaks of it. Watches protected objects and their users. The
//! use is read once more from the server before an object is released, for the caches may be behind; the finalizer is
//! taken from the live object, so that nothing else of it is written.

pub(crate) mod views;

use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use crate::views::PodView;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use machinery_client::object::object_of;
use machinery_client::{ApiResource, Change, Client, ClientError, IndexName, Informer, Object, Projection};
use machinery_meta::{ObjectHeader, ObjectKey};
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use views::StorageView;

pub(crate) const VOLUME_ROW: ControllerDescriptor = ControllerDescriptor {
    name: "persistentvolume-protection-controller",
    queue: "pvprotection",
    service_account: "pv-protection-controller",
    default: true,
    start: start_volumes,
};
pub(crate) const CLAIM_ROW: ControllerDescriptor = ControllerDescriptor {
    name: "persistentvolumeclaim-protection-controller",
    queue: "pvcprotection",
    service_account: "pvc-protection-controller",
    default: true,
    start: start_claims,
};
pub(crate) const ATTRIBUTES_ROW: ControllerDescriptor = ControllerDescriptor {
    name: "volumeattributesclass-protection-controller",
    queue: "vacprotection",
    service_account: "volumeattributesclass-protection-controller",
    default: true,
    start: start_attributes,
};

/// The phase of a volume that a claim has.
const BOUND: &str = "Bound";
const VOLUME_FINALIZER: &str = "kubernetes.io/pv-protection";
const CLAIM_FINALIZER: &str = "kubernetes.io/pvc-protection";
const ATTRIBUTES_FINALIZER: &str = "kubernetes.io/vac-protection";

fn start_volumes(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let volumes: Informer<StorageView> = context.informers.of::<PersistentVolume, _>();
    let controller = VOLUME_ROW
        .controller(&context.runtime)
        .watches(&volumes, |change| waiting(change, VOLUME_FINALIZER));
    controller.run(Volumes {
        client: context.client(VOLUME_ROW.service_account),
        volumes,
    })
}

fn start_claims(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let claims: Informer<StorageView> = context.informers.of::<PersistentVolumeClaim, _>();
    let pods: Informer<PodView> = context.informers.of::<Pod, _>();
    let controller = CLAIM_ROW
        .controller(&context.runtime)
        .watches(&claims, |change| {
            let key = waiting(change, CLAIM_FINALIZER);
            key.map(|key| Claims::key(&key.namespace))
        })
        .watches(&pods, |change| {
            let lets_go = !claims_let_go(change).is_empty();
            lets_go.then(|| Claims::key(&change.key().namespace))
        });
    controller.run(Claims {
        client: context.client(CLAIM_ROW.service_account),
        claims,
        pods,
    })
}

fn start_attributes(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let classes: Informer<()> = context.informers.of::<VolumeAttributesClass, _>();
    let claims: Informer<StorageView> = context.informers.of::<PersistentVolumeClaim, _>();
    let volumes: Informer<StorageView> = context.informers.of::<PersistentVolume, _>();
    let controller = ATTRIBUTES_ROW
        .controller(&context.runtime)
        .watches(&classes, |change| waiting(change, ATTRIBUTES_FINALIZER))
        .watches(&claims, classes_let_go)
        .watches(&volumes, classes_let_go);
    controller.run(Attributes {
        client: context.client(ATTRIBUTES_ROW.service_account),
        classes,
        users: [claims, volumes],
    })
}

/// The key of an object that is deleted and waits for its protection to end, or that lives without one.
fn waiting<P>(change: &Change<P>, finalizer: &str) -> Option<ObjectKey> {
    let new = change.new.as_ref()?;
    let header = &new.header;
    (is_waiting(header, finalizer) || is_bare(header, finalizer)).then(|| new.key().clone())
}

/// A client has taken the finalizer from an object that lives, or it is older than the plugin.
fn is_bare(header: &ObjectHeader, finalizer: &str) -> bool {
    !header.is_deleting() && !header.finalizers.iter().any(|own| &**own == finalizer)
}

fn is_waiting(header: &ObjectHeader, finalizer: &str) -> bool {
    header.is_deleting() && header.finalizers.iter().any(|own| &**own == finalizer)
}

/// The claims of a pod that is shut down or gone, be it that another has taken its name.
fn claims_let_go(change: &Change<PodView>) -> Vec<ObjectKey> {
    let stays = |old: &Object<PodView>| {
        let new = change.new.as_ref();
        new.is_some_and(|new| new.header.uid == old.header.uid && !is_shut_down(new))
    };
    let gone = change.old.iter().filter(|old| !stays(old));
    let claims = gone.flat_map(|pod| {
        let own = pod.claims.iter();
        own.map(|claim| ObjectKey::new(pod.namespace(), &*claim.name))
    });
    claims.collect()
}

/// The classes that a volume or a claim spoke of.
fn classes_let_go(change: &Change<StorageView>) -> Vec<ObjectKey> {
    let old = change.old.iter().flat_map(|old| old.attributes_classes.iter());
    old.map(|class| ObjectKey::cluster(&**class)).collect()
}

struct Volumes {
    client: Client,
    volumes: Informer<StorageView>,
}

impl Reconciler for Volumes {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            match self.volumes.get(key) {
                Some(volume) if is_bare(&volume.header, VOLUME_FINALIZER) => {
                    protect::<PersistentVolume>(&self.client, &volume.header, VOLUME_FINALIZER).await
                }
                Some(volume) if !volume.bound && is_waiting(&volume.header, VOLUME_FINALIZER) => {
                    let unused = |live: &Value| live["status"]["phase"] != BOUND;
                    release::<PersistentVolume>(&self.client, &volume.header, VOLUME_FINALIZER, unused).await
                }
                _ => Ok(Outcome::Done),
            }
        })
    }
}

type ClaimRef = Arc<Object<StorageView>>;

struct Claims {
    client: Client,
    claims: Informer<StorageView>,
    pods: Informer<PodView>,
}

/// A pod without a node has not been given the volume. One that has ended counts until it is gone: its node may still have the
/// volume mounted, and its owner may still look at the data. A claim that was made for the pod is released before, as a
/// finalizer of the pod may wait for it.
fn uses_claim(pod: &Object<PodView>, claim: &ObjectHeader) -> bool {
    let is_made_for_it = || {
        let mut owners = claim.owners.iter();
        owners.any(|owner| owner.controller && owner.uid == pod.header.uid)
    };
    pod.namespace() == &*claim.key.namespace
        && !pod.node.is_empty()
        && pod.claims.iter().any(|own| *own.name == *claim.key.name)
        && !(is_shut_down(pod) && is_made_for_it())
}

/// The pod's node is done with it.
fn is_shut_down(pod: &Object<PodView>) -> bool {
    pod.header.is_deleting() && pod.is_terminal()
}

/// Claims that one reconcile releases at most.
const CLAIMS_PER_ROUND: usize = 200;

impl Claims {
    /// The key of a namespace's claims: one look at its pods serves all of them.
    fn key(namespace: &str) -> ObjectKey {
        ObjectKey::new(namespace, "")
    }

    /// Claims that no pod uses, as far as the cache and then the server say.
    async fn unused(&self, namespace: &str, waiting: Vec<ClaimRef>) -> Result<Vec<ClaimRef>, ReconcileError> {
        let pods = self.pods.by_index(IndexName::NAMESPACE, namespace);
        let unused = without_users(waiting, pods.iter().map(|pod| &**pod));
        if unused.is_empty() {
            return Ok(unused);
        }
        let live = live::<Pod, PodView>(&self.client, namespace).await?;
        Ok(without_users(unused, live.iter()))
    }

    async fn round(&self, namespace: &str) -> Result<Outcome, ReconcileError> {
        let all = self.claims.by_index(IndexName::NAMESPACE, namespace);
        let mut first = None;
        for claim in all.iter().filter(|claim| is_bare(&claim.header, CLAIM_FINALIZER)) {
            let done = protect::<PersistentVolumeClaim>(&self.client, &claim.header, CLAIM_FINALIZER).await;
            first = first.or(done.err());
        }
        let waiting = all
            .into_iter()
            .filter(|claim| is_waiting(&claim.header, CLAIM_FINALIZER));
        let mut unused = self.unused(namespace, waiting.collect()).await?;
        let more = unused.len() > CLAIMS_PER_ROUND;
        unused.truncate(CLAIMS_PER_ROUND);
        for claim in unused {
            let done =
                release::<PersistentVolumeClaim>(&self.client, &claim.header, CLAIM_FINALIZER, |_| true);
            first = first.or(done.await.err());
        }
        match first {
            Some(error) => Err(error),
            None if more => Ok(Outcome::RequeueAfter(Duration::from_millis(50))),
            None => Ok(Outcome::Done),
        }
    }
}

/// The claims among these that none of these pods uses.
fn without_users<'a>(
    mut claims: Vec<ClaimRef>,
    pods: impl Iterator<Item = &'a Object<PodView>>,
) -> Vec<ClaimRef> {
    let mut users: BTreeMap<&str, Vec<&Object<PodView>>> = BTreeMap::new();
    for pod in pods {
        for claim in &pod.claims {
            users.entry(&claim.name).or_default().push(pod);
        }
    }
    claims.retain(|claim| {
        let mut users = users.get(claim.name()).into_iter().flatten();
        !users.any(|pod| uses_claim(pod, &claim.header))
    });
    claims
}

impl Reconciler for Claims {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(self.round(&key.namespace))
    }
}

struct Attributes {
    client: Client,
    classes: Informer<()>,
    users: [Informer<StorageView>; 2],
}

impl Reconciler for Attributes {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(class) = self.classes.get(key) else {
                return Ok(Outcome::Done);
            };
            if is_bare(&class.header, ATTRIBUTES_FINALIZER) {
                return protect::<VolumeAttributesClass>(&self.client, &class.header, ATTRIBUTES_FINALIZER)
                    .await;
            }
            if !is_waiting(&class.header, ATTRIBUTES_FINALIZER) || self.is_used(&key.name).await? {
                return Ok(Outcome::Done);
            }
            release::<VolumeAttributesClass>(&self.client, &class.header, ATTRIBUTES_FINALIZER, |_| true)
                .await
        })
    }
}

impl Attributes {
    async fn is_used(&self, class: &str) -> Result<bool, ReconcileError> {
        let speaks = |user: &StorageView| user.attributes_classes.iter().any(|own| **own == *class);
        if self
            .users
            .iter()
            .flat_map(Informer::list)
            .any(|user| speaks(&user))
        {
            return Ok(true);
        }
        let claims = live::<PersistentVolumeClaim, StorageView>(&self.client, "").await?;
        let volumes = live::<PersistentVolume, StorageView>(&self.client, "").await?;
        Ok(claims.iter().chain(&volumes).any(|user| speaks(user)))
    }
}

/// The objects there are on the server now, in a namespace or (empty) in all.
async fn live<K, P>(client: &Client, namespace: &str) -> Result<Vec<Object<P>>, ReconcileError>
where
    K: k8s_openapi::Resource,
    K::Scope: 'static,
    P: Projection,
{
    #[derive(Deserialize)]
    struct List {
        items: Vec<Box<RawValue>>,
    }
    let requests = client
        .list_as::<List>(&ApiResource::of::<K>(), namespace, &[])
        .await;
    let list = requests.map_err(ReconcileError::doing("listing what may use it"))?;
    let objects = list.items.iter().map(|own| {
        object_of(own.get()).map_err(|source| ClientError::Decode {
            what: K::KIND.to_owned(),
            source,
        })
    });
    objects
        .collect::<Result<_, _>>()
        .map_err(ReconcileError::doing("reading what may use it"))
}

/// Takes the finalizer from the live object, when it is still the one that was checked and nothing in it speaks
/// against it.
async fn release<K>(
    client: &Client,
    header: &ObjectHeader,
    finalizer: &str,
    unused: impl Fn(&Value) -> bool,
) -> Result<Outcome, ReconcileError>
where
    K: k8s_openapi::Resource,
    K::Scope: 'static,
{
    let change = |live: &mut Value| {
        let is_unused = unused(live);
        let metadata = &mut live["metadata"];
        let is_deleting = !metadata["deletionTimestamp"].is_null();
        let finalizers = metadata["finalizers"].as_array_mut();
        let Some(finalizers) = finalizers.filter(|_| is_deleting && is_unused) else {
            return false;
        };
        finalizers.retain(|own| own != finalizer);
        true
    };
    change_live::<K>(client, header, "removing a finalizer", change).await
}

/// Gives the live object the finalizer, when it is still the one that was checked.
async fn protect<K>(
    client: &Client,
    header: &ObjectHeader,
    finalizer: &str,
) -> Result<Outcome, ReconcileError>
where
    K: k8s_openapi::Resource,
    K::Scope: 'static,
{
    let change = |live: &mut Value| {
        let metadata = &mut live["metadata"];
        if !metadata["deletionTimestamp"].is_null() {
            return false;
        }
        let mut finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
        if finalizers.iter().any(|own| own == finalizer) {
            return false;
        }
        finalizers.push(finalizer.into());
        metadata["finalizers"] = finalizers.into();
        true
    };
    change_live::<K>(client, header, "adding a finalizer", change).await
}

/// Writes a change of the live object, if it is still the one with this uid; `change` says whether there is any.
async fn change_live<K>(
    client: &Client,
    header: &ObjectHeader,
    doing: &'static str,
    change: impl Fn(&mut Value) -> bool,
) -> Result<Outcome, ReconcileError>
where
    K: k8s_openapi::Resource,
    K::Scope: 'static,
{
    let resource = ApiResource::of::<K>();
    let mut live: Value = match client.get_as(&resource, &header.key).await {
        Ok(live) => live,
        Err(error) if error.is_not_found() => return Ok(Outcome::Done),
        Err(error) => return Err(ReconcileError::doing("reading what is protected")(error)),
    };
    if live["metadata"]["uid"] != *header.uid.0 || !change(&mut live) {
        return Ok(Outcome::Done);
    }
    match client.update(&resource, &header.key, "", &live).await {
        Err(error) if !error.is_not_found() => Err(ReconcileError::doing(doing)(error)),
        _ => Ok(Outcome::Done),
    }
}
