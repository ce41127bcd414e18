//! Makes the volume of a claim, and ends a volume, one call to a node at a time.

use super::nodes::{Answer, NoAnswer, Nodes};
use super::plan::{self, End, Folder};
use super::volume_key;
use crate::views;
use crate::volume_binder::views::{ClaimView, ClassView, SELECTED_NODE, VolumeView};
use futures::future::BoxFuture;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use machinery_client::{ApiResource, Client, DeleteOptions, Informer, Object, Patch};
use machinery_meta::{ObjectHeader, ObjectKey, Uid};
use machinery_reconcile::{EventRecorder, ObjectReference, Outcome, ReconcileError, Reconciler};
use serde_json::{Value, json};
use std::time::Duration;

/// Bounds of the requeue interval for a node that was away, or busy where no event wakes the waiting key: as long as the claim, or the volume, has existed, between these.
const ASK_LATER: (SignedDuration, SignedDuration) =
    (SignedDuration::from_secs(5), SignedDuration::from_secs(120));
/// Time until a removal is checked.
const REMOVAL: Duration = Duration::from_secs(1);

/// Claims have a namespace in their key, volumes have none.
pub(super) struct Provisioner {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) nodes: Nodes,
    pub(super) volumes: Informer<VolumeView>,
    pub(super) claims: Informer<ClaimView>,
    pub(super) classes: Informer<ClassView>,
}

impl Reconciler for Provisioner {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            if key.namespace.is_empty() {
                return match self.volumes.get(key).filter(|volume| plan::made_here(volume)) {
                    Some(volume) if self.is_out_of_reach(key, &volume) => Ok(self.later(&volume.header)),
                    Some(volume) => self.end(&volume).await,
                    None => Ok(Outcome::Done),
                };
            }
            match self.claims.get(key).filter(|claim| plan::is_ours(claim)) {
                Some(claim) => self.provision(&claim).await,
                None => Ok(Outcome::Done),
            }
        })
    }
}

/// A claim whose volume was not made.
struct NotMade {
    why: String,
    /// Another node may do.
    elsewhere: bool,
}

impl Provisioner {
    async fn provision(&self, known: &Object<ClaimView>) -> Result<Outcome, ReconcileError> {
        let key = known.key();
        let about = ObjectReference::new(&ApiResource::of::<PersistentVolumeClaim>(), key, &known.uid().0);
        let class = self.classes.get(&ObjectKey::cluster(known.class()));
        let failed = |why: String| {
            let class = known.class();
            let why = format!("failed to provision volume with StorageClass {class:?}: {why}");
            self.recorder.warning(&about, "ProvisioningFailed", why.as_str());
            Err(ReconcileError::Unusable(format!("claim {key}: {why}")))
        };
        let node = match plan::node_of(known, class.as_deref().map(|class| &class.projection)) {
            Ok(Some(node)) => node,
            Ok(None) => return Ok(Outcome::Done),
            Err(why) => return failed(why),
        };
        let name = plan::name_of(&known.uid().0);
        if self.volumes.get(&volume_key(&name)).is_some() {
            return Ok(Outcome::Done);
        }
        if self.nodes.puts_off(node, key) {
            return Ok(self.later(&known.header));
        }
        let doing = format!("External provisioner is provisioning volume for claim \"{key}\"");
        self.recorder.normal(&about, "Provisioning", doing);
        match self.make(known, node, &name).await? {
            Made::Volume => {
                let done = format!("Successfully provisioned volume {name}");
                self.recorder.normal(&about, "ProvisioningSucceeded", done);
                Ok(Outcome::Done)
            }
            Made::Nothing => Ok(Outcome::Done),
            Made::Later => Ok(self.wait_for(node, &known.header)),
            Made::Not(NotMade { why, elsewhere }) => {
                if elsewhere {
                    self.give_back_node(known).await?;
                }
                failed(why)
            }
        }
    }

    async fn make(&self, known: &Object<ClaimView>, node: &str, name: &str) -> Result<Made, ReconcileError> {
        let claims = ApiResource::of::<PersistentVolumeClaim>();
        let Some(claim) = self.live(&claims, known.key()).await? else {
            return Ok(Made::Nothing);
        };
        let metadata = &claim["metadata"];
        let same = metadata["uid"] == *known.uid().0
            && metadata["deletionTimestamp"].is_null()
            && metadata["annotations"][SELECTED_NODE] == node
            && claim["spec"]["volumeName"]
                .as_str()
                .unwrap_or_default()
                .is_empty();
        let class_key = ObjectKey::cluster(known.class());
        let class = self.live(&ApiResource::of::<StorageClass>(), &class_key).await?;
        let Some(class) = class.filter(|_| same) else {
            return Ok(Made::Nothing);
        };
        let not = |why: String, elsewhere| Ok(Made::Not(NotMade { why, elsewhere }));
        if let Some(why) = plan::problem(&claim, &class) {
            return not(why, false);
        }
        let Some(host_name) = self.nodes.host_name(node) else {
            return not(format!("node {node:?} not found"), true);
        };
        let path = match self.nodes.make(node, name).await {
            Ok(Answer::Made(path)) => path,
            Ok(Answer::NoRoom(why)) => return not(format!("node {node:?}: {why}"), true),
            Ok(Answer::Gone | Answer::Removing) | Err(NoAnswer::Later) => return Ok(Made::Later),
            Err(NoAnswer::NoNode) => return not(format!("node {node:?} not found"), true),
            Err(NoAnswer::Failed(why)) => return not(why, false),
        };
        let folder = Folder {
            node,
            host_name: &host_name,
            path: &path,
        };
        let volume = plan::volume(&claim, &class, folder);
        match self
            .client
            .create(&ApiResource::of::<PersistentVolume>(), "", &volume)
            .await
        {
            Ok(_) => Ok(Made::Volume),
            Err(error) if error.is_already_exists() => Ok(Made::Nothing),
            Err(error) => Err(ReconcileError::doing("creating a volume")(error)),
        }
    }

    /// Takes the node off the claim, so that the scheduler looks for another.
    async fn give_back_node(&self, claim: &Object<ClaimView>) -> Result<(), ReconcileError> {
        let body = json!({"metadata": {
            "resourceVersion": claim.revision.to_string(), "annotations": {SELECTED_NODE: null}
        }});
        let resource = ApiResource::of::<PersistentVolumeClaim>();
        let patched = self
            .client
            .patch(&resource, claim.key(), "", &Patch::Merge, &body)
            .await;
        match patched {
            Err(error) if !error.is_not_found() => {
                Err(ReconcileError::doing("taking the node off a claim")(error))
            }
            _ => Ok(()),
        }
    }

    fn is_out_of_reach(&self, key: &ObjectKey, volume: &VolumeView) -> bool {
        let node = volume.annotations.get(plan::NODE);
        node.is_some_and(|node| self.nodes.puts_off(node, key))
    }

    /// Others were quicker: in line for the node, and reconciled again in any case.
    fn wait_for(&self, node: &str, header: &ObjectHeader) -> Outcome {
        self.nodes.puts_off(node, &header.key);
        self.later(header)
    }

    /// Claims for a node that stays away, of which a tenant makes as many as it likes, cost ever less.
    fn later(&self, header: &ObjectHeader) -> Outcome {
        let now = self.client.runtime().now();
        let made = views::time(header.creation_timestamp.as_deref());
        let age = made.map_or(SignedDuration::ZERO, |made| now.duration_since(made));
        let pause = age.clamp(ASK_LATER.0, ASK_LATER.1);
        Outcome::RequeueAfter(Duration::try_from(pause).unwrap_or_default())
    }

    async fn end(&self, known: &Object<VolumeView>) -> Result<Outcome, ReconcileError> {
        let key = known.key();
        let resource = ApiResource::of::<PersistentVolume>();
        let Some(volume) = self.live(&resource, key).await? else {
            return Ok(Outcome::Done);
        };
        match plan::end_of(&volume) {
            End::Stays => return Ok(Outcome::Done),
            End::LetGo => return self.let_go(key, volume).await,
            End::Removed => {}
        }
        let node = volume["metadata"]["annotations"][plan::NODE]
            .as_str()
            .unwrap_or_default();
        match self.nodes.remove(node, &key.name).await {
            // With the node its folders are out of reach.
            Ok(Answer::Gone) | Err(NoAnswer::NoNode) => self.let_go(key, volume).await,
            Ok(Answer::Removing) => Ok(Outcome::RequeueAfter(REMOVAL)),
            Err(NoAnswer::Later) => Ok(self.wait_for(node, &known.header)),
            Ok(Answer::Made(_)) => self.not_removed(key, &volume, "the node does not remove it"),
            Ok(Answer::NoRoom(why)) | Err(NoAnswer::Failed(why)) => self.not_removed(key, &volume, &why),
        }
    }

    fn not_removed(&self, key: &ObjectKey, volume: &Value, why: &str) -> Result<Outcome, ReconcileError> {
        let uid = volume["metadata"]["uid"].as_str().unwrap_or_default();
        let about = ObjectReference::new(&ApiResource::of::<PersistentVolume>(), key, uid);
        self.recorder.warning(&about, "VolumeFailedDelete", why);
        Err(ReconcileError::Unusable(format!("volume {key}: {why}")))
    }

    /// Deletes the volume, and takes our finalizer from it.
    async fn let_go(&self, key: &ObjectKey, mut volume: Value) -> Result<Outcome, ReconcileError> {
        let resource = ApiResource::of::<PersistentVolume>();
        let uid = volume["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        if volume["metadata"]["deletionTimestamp"].is_null() {
            let options = DeleteOptions::uid(&Uid(uid.clone()));
            match self.client.delete(&resource, key, &options).await {
                Err(error) if error.is_not_found() => return Ok(Outcome::Done),
                Err(error) => return Err(ReconcileError::doing("deleting a volume")(error)),
                Ok(_) => {}
            }
            let live = self.live(&resource, key).await?;
            match live.filter(|live| live["metadata"]["uid"] == *uid) {
                Some(live) => volume = live,
                None => return Ok(Outcome::Done),
            }
        }
        if let Some(finalizers) = volume["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|own| own != plan::FINALIZER);
        }
        match self.client.update(&resource, key, "", &volume).await {
            Err(error) if !error.is_not_found() => {
                Err(ReconcileError::doing("letting go of a volume")(error))
            }
            _ => Ok(Outcome::Done),
        }
    }

    async fn live(&self, resource: &ApiResource, key: &ObjectKey) -> Result<Option<Value>, ReconcileError> {
        match self.client.get_as(resource, key).await {
            Ok(live) => Ok(Some(live)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(ReconcileError::doing("reading what is provisioned")(error)),
        }
    }
}

/// Outcome of a claim.
enum Made {
    Volume,
    /// Nothing was to be made.
    Nothing,
    Later,
    Not(NotMade),
}
