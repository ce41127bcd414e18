//! Carries out the plan of a node: what is to go leaves its status first and is deleted then; what is to come is made last.

use super::memory::{Departures, Memory};
use super::metrics::Metrics;
use super::plan::{self, Attachment, Detach, Look, Message, Notes, Plan, PodRef, Wanted};
use super::stores::{Stores, used};
use crate::views::node::ReportedVolume;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use machinery_client::client::decode;
use machinery_client::object::parse_header;
use machinery_client::{ApiResource, Client, ClientError, DeleteOptions, Patch};
use machinery_meta::{ObjectKey, Revision};
use machinery_reconcile::{EventRecorder, ObjectReference, Outcome, ReconcileError, Reconciler, WorkQueue};
use machinery_runtime::Runtime;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Keys are nodes.
pub(super) struct Attacher {
    pub(super) client: Client,
    pub(super) recorder: EventRecorder,
    pub(super) runtime: Runtime,
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) stores: Stores,
    pub(super) memory: Mutex<Memory>,
    pub(super) departures: Arc<Departures>,
    pub(super) metrics: Metrics,
    /// `--disable-force-detach-on-timeout` is not set.
    pub(super) forces: bool,
}

/// A node as the server has it.
#[derive(Default, Deserialize)]
struct LiveNode {
    #[serde(default)]
    status: LiveStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct LiveStatus {
    volumes_in_use: Vec<Box<str>>,
    volumes_attached: Vec<ReportedVolume>,
}

impl Reconciler for Attacher {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let node = &*key.name;
            self.settle(node).await?;
            let (look, mut notes) = self.look(node);
            let before = self.runtime.monotonic();
            self.count_detached(&look, &mut notes, before);
            let plan = plan::of_node(&look, &mut notes, before, self.forces);
            let done = self.carry_out(key, &look, &plan, &mut notes).await;
            self.memory.lock().put_notes(node, notes);
            done?;
            Ok(plan.next.map_or(Outcome::Done, Outcome::RequeueAfter))
        })
    }
}

impl Attacher {
    /// Asks the server whether attachments were made whose answers were lost.
    async fn settle(&self, node: &str) -> Result<(), ReconcileError> {
        let unsettled = self.memory.lock().unsettled(node);
        for name in unsettled {
            let resource = ApiResource::of::<VolumeAttachment>();
            match self.client.get(&resource, &ObjectKey::cluster(&*name)).await {
                Ok(found) => self.made(&name, &found)?,
                Err(error) if error.is_not_found() => self.release(&name),
                Err(error) => return Err(ReconcileError::doing("reading a volume attachment")(error)),
            }
        }
        Ok(())
    }

    fn look(&self, node: &str) -> (Look, Notes) {
        let departed = self.departures.get(node);
        let is_departed = departed.is_some();
        let mut memory = self.memory.lock();
        memory.seen_until(self.stores.attachments.position());
        let look = self.stores.look(node, departed);
        let is_rid_of_all = look.attachments.is_empty() && !memory.expects(node);
        let notes = memory.take_notes(node);
        drop(memory);
        if is_departed && (look.node.exists || is_rid_of_all) {
            self.departures.forget(node);
        }
        (look, notes)
    }

    /// Attachments that were deleted and are gone have been detached.
    fn count_detached(&self, look: &Look, notes: &mut Notes, now: Duration) {
        for (name, note) in notes.iter_mut() {
            let is_there = |uid| {
                look.attachments
                    .iter()
                    .any(|own| own.name == *name && own.uid == uid)
            };
            if let Some((driver, at)) = note
                .deleted
                .take_if(|own| !is_there(own.uid.clone()))
                .map(|own| (own.driver, own.at))
            {
                let took = now.saturating_sub(at);
                self.metrics.operation("volume_detach", "success", &driver, took);
            }
        }
    }

    async fn carry_out(
        &self,
        node: &ObjectKey,
        look: &Look,
        plan: &Plan,
        notes: &mut Notes,
    ) -> Result<(), ReconcileError> {
        let mut first = self.report_and_detach(node, look, plan, notes).await.err();
        if first.is_none() {
            self.record_events(look, plan);
        }
        for name in &plan.attach {
            if let Some(wanted) = look.wanted.get(name) {
                let done = self.attach(&node.name, name, wanted, notes).await;
                first = first.or(done.err());
            }
        }
        first.map_or(Ok(()), Err)
    }

    /// Writes the node's list, then takes away what it named before.
    async fn report_and_detach(
        &self,
        node: &ObjectKey,
        look: &Look,
        plan: &Plan,
        notes: &mut Notes,
    ) -> Result<(), ReconcileError> {
        if plan.detach.is_empty() {
            let report = plan::report(&plan.report, &look.node.reported);
            if look.node.exists && report != look.node.reported {
                self.write_report(node, &report).await?;
            }
            return Ok(());
        }
        // The node says that it uses a volume before it looks whether the volume is attached. So what it says is read
        // after the volume has left the list: one of the two sees the other.
        let live = self.without(node, plan).await?;
        let used = used(&live.status.volumes_in_use, &node.name);
        let mut first = None;
        for (own, how) in &plan.detach {
            if *how == Detach::Unused && used.contains(&own.name) {
                continue;
            }
            let done = self.detach(own, *how, notes).await;
            first = first.or(done.err());
        }
        first.map_or(Ok(()), Err)
    }

    /// The node as it is after its list names what is planned, and nothing else of CSI; a node that is gone uses nothing.
    async fn without(&self, node: &ObjectKey, plan: &Plan) -> Result<LiveNode, ReconcileError> {
        let live: LiveNode = match self.client.get_as(&ApiResource::of::<Node>(), node).await {
            Ok(live) => live,
            Err(error) if error.is_not_found() => return Ok(LiveNode::default()),
            Err(error) => return Err(ReconcileError::doing("reading a node")(error)),
        };
        let report = plan::report(&plan.report, &live.status.volumes_attached);
        if report == live.status.volumes_attached {
            return Ok(live);
        }
        self.write_report(node, &report).await
    }

    async fn write_report(
        &self,
        node: &ObjectKey,
        report: &[ReportedVolume],
    ) -> Result<LiveNode, ReconcileError> {
        let report = if report.is_empty() {
            Value::Null
        } else {
            json!(report)
        };
        let body = json!({"status": {"volumesAttached": report}});
        let resource = ApiResource::of::<Node>();
        match self
            .client
            .patch(&resource, node, "status", &Patch::Merge, &body)
            .await
        {
            Ok(written) => Ok(decode("a node", &written)?),
            Err(error) if error.is_not_found() => Ok(LiveNode::default()),
            Err(error) => Err(ReconcileError::doing("reporting attached volumes")(error)),
        }
    }

    async fn detach(&self, own: &Attachment, how: Detach, notes: &mut Notes) -> Result<(), ReconcileError> {
        let resource = ApiResource::of::<VolumeAttachment>();
        let options = DeleteOptions::uid(&own.uid);
        let key = ObjectKey::cluster(&*own.name);
        match self.client.delete(&resource, &key, &options).await {
            // Another has deleted it.
            Err(error) if error.is_not_found() || error.is_conflict() => return Ok(()),
            Err(error) => {
                self.metrics
                    .operation("volume_detach", "fail-unknown", &own.driver, Duration::ZERO);
                return Err(ReconcileError::doing("deleting a volume attachment")(error));
            }
            Ok(_) => {}
        }
        if let Detach::Forced(reason) = how {
            self.metrics.forced(reason);
            let attachment = &*own.name;
            tracing::info!(attachment, reason, "volume detached from a node that may use it");
        }
        if let Some(note) = notes.get_mut(&own.name) {
            note.was_deleted(own, self.runtime.monotonic());
        }
        Ok(())
    }

    /// Makes the attachment, unless another node has the volume.
    async fn attach(
        &self,
        node: &str,
        name: &str,
        wanted: &Wanted,
        notes: &mut Notes,
    ) -> Result<(), ReconcileError> {
        let note = notes.entry(name.to_owned()).or_default();
        match self.reserve(node, name, wanted) {
            Ok(false) => return Ok(()),
            Ok(true) => {}
            Err(holders) => {
                if !std::mem::replace(&mut note.refused, true) {
                    self.refuse(wanted, &holders);
                }
                return Ok(());
            }
        }
        note.requested = Some(self.runtime.monotonic());
        let body = json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
            "metadata": {"name": name},
            "spec": {"attacher": wanted.driver, "nodeName": node,
                "source": {"persistentVolumeName": wanted.volume}}
        });
        let resource = ApiResource::of::<VolumeAttachment>();
        match self.client.create(&resource, "", &body).await {
            Ok(made) => self.made(name, &made),
            // The next look finds out since when it is there.
            Err(error) if error.is_already_exists() => {
                self.queue.add(ObjectKey::cluster(node));
                Ok(())
            }
            Err(error) => {
                self.fail(name, wanted, &error);
                Err(ReconcileError::doing("creating a volume attachment")(error))
            }
        }
    }

    fn fail(&self, name: &str, wanted: &Wanted, error: &ClientError) {
        if !error.leaves_open() {
            self.release(name);
        }
        let why = format!("kubernetes.io/csi: attacher.Attach failed: {}", error.chain());
        self.say(wanted, &Message::Failed(why));
        self.metrics
            .operation("volume_attach", "fail-unknown", &wanted.driver, Duration::ZERO);
    }

    /// True if the attachment is to be made, now that it holds the volume; nodes that have the volume, where it is another's.
    fn reserve(&self, node: &str, name: &str, wanted: &Wanted) -> Result<bool, Vec<Box<str>>> {
        let mut memory = self.memory.lock();
        memory.seen_until(self.stores.attachments.position());
        let volume = (&*wanted.driver, &*wanted.handle);
        if memory.is_unseen(name) || self.stores.attachments.get(&ObjectKey::cluster(name)).is_some() {
            return Ok(false);
        }
        if !wanted.shared {
            let mut holders = self.stores.holders(wanted, node);
            holders.extend(memory.unseen_holders(volume, node));
            if !holders.is_empty() {
                return Err(holders);
            }
        }
        memory.reserve(name, volume, node);
        Ok(true)
    }

    fn made(&self, name: &str, answer: &[u8]) -> Result<(), ReconcileError> {
        let (_, revision): (_, Revision) = parse_header(answer).map_err(|source| ClientError::Decode {
            what: name.to_owned(),
            source,
        })?;
        self.memory.lock().made(name, revision);
        Ok(())
    }

    /// The attachment is not there: others may have the volume.
    fn release(&self, name: &str) {
        let released = self.memory.lock().release(name);
        if let Some(own) = released {
            let waiting = self.stores.nodes_of_handle(&own.driver, &own.handle);
            waiting.into_iter().for_each(|node| self.queue.add(node));
        }
    }

    fn refuse(&self, wanted: &Wanted, holders: &[Box<str>]) {
        let users = self.stores.users(wanted, holders);
        for pod in &wanted.pods {
            let message = plan::multi_attach(&wanted.volume, &pod.key.namespace, &users);
            self.recorder
                .warning(&reference(pod), "FailedAttachVolume", message);
        }
    }

    fn record_events(&self, look: &Look, plan: &Plan) {
        for (driver, took) in &plan.took {
            self.metrics.operation("volume_attach", "success", driver, *took);
        }
        for (name, message) in &plan.messages {
            if let Some(wanted) = look.wanted.get(name) {
                self.say(wanted, message);
            }
        }
    }

    /// An event for each pod of the volume, in upstream's words, the space at the end of the first included.
    fn say(&self, wanted: &Wanted, message: &Message) {
        let volume = &*wanted.volume;
        for pod in &wanted.pods {
            let about = reference(pod);
            match message {
                Message::Attached => {
                    let text = format!("AttachVolume.Attach succeeded for volume {volume:?} ");
                    self.recorder.normal(&about, "SuccessfulAttachVolume", text);
                }
                Message::Failed(why) => {
                    let text = format!("AttachVolume.Attach failed for volume {volume:?} : {why}");
                    self.recorder.warning(&about, "FailedAttachVolume", text);
                }
            }
        }
    }
}

fn reference(pod: &PodRef) -> ObjectReference {
    ObjectReference::new(&ApiResource::of::<Pod>(), &pod.key, &pod.uid.0)
}
