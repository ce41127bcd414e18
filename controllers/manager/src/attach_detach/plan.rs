//! Attachments of one node: those to make, to keep and to take away. Pure.

use super::names;
use super::views::AttachError;
use crate::views::node::ReportedVolume;
use machinery_meta::{ObjectKey, Uid};
use std::collections::BTreeMap;
use std::time::Duration;

/// A volume in use is taken from an unhealthy node after this time (`ReconcilerMaxWaitForUnmountDuration`).
pub(super) const FORCE_AFTER: Duration = Duration::from_secs(6 * 60);
/// An attacher that is silent for this time is complained about (`csiTimeout`).
pub(super) const ATTACH_TIMEOUT: Duration = Duration::from_secs(2 * 60);

/// State of the node that its attachments depend on.
#[derive(Debug, Default)]
pub(super) struct NodeFacts {
    pub(super) exists: bool,
    pub(super) healthy: bool,
    pub(super) out_of_service: bool,
    /// Attachments of `volumesInUse`; `None` for a node of which nothing is known, whose volumes all count as used.
    pub(super) in_use: Option<Vec<String>>,
    /// `volumesAttached`.
    pub(super) reported: Vec<ReportedVolume>,
}

/// A pod that needs a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PodRef {
    pub(super) key: ObjectKey,
    pub(super) uid: Uid,
}

/// A volume that pods of the node need.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) unique: String,
    /// The PersistentVolume.
    pub(super) volume: Box<str>,
    pub(super) driver: Box<str>,
    pub(super) handle: Box<str>,
    /// It may be attached to several nodes.
    pub(super) shared: bool,
    pub(super) pods: Vec<PodRef>,
}

/// A VolumeAttachment of the node.
#[derive(Debug, Clone)]
pub(super) struct Attachment {
    pub(super) name: String,
    pub(super) uid: Uid,
    pub(super) driver: Box<str>,
    /// `None` where neither its volume nor the node says which volume it is.
    pub(super) unique: Option<String>,
    pub(super) attached: bool,
    pub(super) deleting: bool,
    pub(super) error: Option<AttachError>,
}

/// Everything that a plan reads.
#[derive(Debug, Default)]
pub(super) struct Look {
    pub(super) node: NodeFacts,
    /// By the name of the attachment.
    pub(super) wanted: BTreeMap<String, Wanted>,
    pub(super) attachments: Vec<Attachment>,
}

/// Memory of one attachment, by the monotonic clock.
#[derive(Debug, Default)]
pub(super) struct Note {
    /// Time since which no pod needs it.
    undesired_since: Option<Duration>,
    /// Time since which its attacher is waited for, and since which the attachment is.
    waiting_since: Option<Duration>,
    pub(super) requested: Option<Duration>,
    /// The last failure that pods have an event about.
    error: Option<AttachError>,
    /// Its pods know that it is attached.
    announced: bool,
    /// Its pods know that another node has the volume.
    pub(super) refused: bool,
    /// The attachment that was deleted.
    pub(super) deleted: Option<Deleted>,
}

/// An attachment that was deleted, and may still be there.
#[derive(Debug)]
pub(super) struct Deleted {
    pub(super) uid: Uid,
    pub(super) driver: Box<str>,
    pub(super) at: Duration,
}

impl Note {
    /// The attachment was deleted at this time.
    pub(super) fn was_deleted(&mut self, own: &Attachment, at: Duration) {
        self.deleted = Some(Deleted {
            uid: own.uid.clone(),
            driver: own.driver.clone(),
            at,
        });
    }
}

/// Memory of a node's attachments.
pub(super) type Notes = BTreeMap<String, Note>;

/// Reason why a volume may be taken from its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detach {
    /// The node does not use it, which is read once more.
    Unused,
    /// However that be; upstream's reason.
    Forced(&'static str),
}

/// An event for the pods of a wanted volume.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message {
    Attached,
    Failed(String),
}

/// Steps for a node, in this order.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) detach: Vec<(Attachment, Detach)>,
    /// Volumes of CSI that the node's status is to name.
    pub(super) report: Vec<String>,
    /// Attachments to make, where no other node has the volume.
    pub(super) attach: Vec<String>,
    pub(super) messages: Vec<(String, Message)>,
    /// Attachments that were attached since the last look, with the time that it took.
    pub(super) took: Vec<(Box<str>, Duration)>,
    /// Time of the next look, if nothing changes.
    pub(super) next: Option<Duration>,
}

/// The plan for a node; `forces` is false with `--disable-force-detach-on-timeout`.
pub(super) fn of_node(look: &Look, notes: &mut Notes, now: Duration, forces: bool) -> Plan {
    let mut plan = Plan::default();
    for own in &look.attachments {
        let note = notes.entry(own.name.clone()).or_default();
        let deleted = note
            .deleted
            .as_ref()
            .is_some_and(|deleted| deleted.uid == own.uid);
        if own.deleting || deleted {
            (note.announced, note.waiting_since) = (false, None);
            continue;
        }
        if let Some(wanted) = look.wanted.get(&own.name) {
            note.undesired_since = None;
            plan.tend(own, wanted, note, (&look.node, now));
            continue;
        }
        let undesired = now.saturating_sub(*note.undesired_since.get_or_insert(now));
        match fate(&look.node, own, undesired, forces) {
            Ok(how) => plan.detach.push((own.clone(), how)),
            Err(next) => {
                plan.look_after(next);
                plan.report.extend(own.unique.clone().filter(|_| own.attached));
            }
        }
    }
    let is_there = |name: &String| look.attachments.iter().any(|own| own.name == *name);
    // Nothing new comes to a node that is gone.
    let missing = look
        .wanted
        .keys()
        .filter(|name| look.node.exists && !is_there(name));
    plan.attach.extend(missing.cloned());
    notes.retain(|name, _| is_there(name) || look.wanted.contains_key(name));
    plan.report.sort();
    plan
}

impl Plan {
    /// An attachment that pods need: reported once it is attached, until then its attacher is waited for.
    fn tend(
        &mut self,
        own: &Attachment,
        wanted: &Wanted,
        note: &mut Note,
        (node, now): (&NodeFacts, Duration),
    ) {
        if own.attached {
            let reported = node
                .reported
                .iter()
                .any(|reported| *reported.name == *wanted.unique);
            if !std::mem::replace(&mut note.announced, true) && !reported {
                self.messages.push((own.name.clone(), Message::Attached));
                let took = note
                    .requested
                    .take()
                    .map(|requested| now.saturating_sub(requested));
                self.took.extend(took.map(|took| (own.driver.clone(), took)));
            }
            (note.error, note.waiting_since) = (None, None);
            return self.report.push(wanted.unique.clone());
        }
        note.announced = false;
        if own.error.is_some() {
            note.waiting_since = None;
            if note.error != own.error {
                note.error.clone_from(&own.error);
                let why = own.error.as_ref().map(|error| error.message.to_string());
                self.messages
                    .push((own.name.clone(), Message::Failed(why.unwrap_or_default())));
            }
            return;
        }
        let waited = now.saturating_sub(*note.waiting_since.get_or_insert(now));
        if waited < ATTACH_TIMEOUT {
            return self.look_after(Some(ATTACH_TIMEOUT - waited));
        }
        note.waiting_since = Some(now);
        let why = format!(
            "timed out waiting for external-attacher of {} CSI driver to attach volume {}",
            wanted.driver, wanted.handle
        );
        self.messages.push((own.name.clone(), Message::Failed(why)));
        self.look_after(Some(ATTACH_TIMEOUT));
    }

    fn look_after(&mut self, next: Option<Duration>) {
        self.next = [self.next, next].into_iter().flatten().min();
    }
}

/// Reports how an attachment that no pod needs is taken away, or after which time to look again.
fn fate(
    node: &NodeFacts,
    own: &Attachment,
    undesired: Duration,
    forces: bool,
) -> Result<Detach, Option<Duration>> {
    let is_late = forces && undesired >= FORCE_AFTER;
    let used = node.in_use.as_ref().is_none_or(|names| names.contains(&own.name));
    let is_given_up = node.out_of_service || (is_late && !node.healthy);
    if used && !is_given_up {
        let waits_for_time = forces && !node.healthy && !is_late;
        return Err(waits_for_time.then(|| FORCE_AFTER - undesired));
    }
    Ok(match (is_late, node.out_of_service) {
        (true, _) => Detach::Forced("timeout"),
        (false, true) => Detach::Forced("out-of-service"),
        (false, false) => Detach::Unused,
    })
}

/// The whole list of a node's attached volumes: those of CSI as planned, others as they are.
pub(super) fn report(plan: &[String], before: &[ReportedVolume]) -> Vec<ReportedVolume> {
    let others = before.iter().filter(|own| !own.name.starts_with(names::PLUGIN));
    let ours = plan.iter().map(|name| ReportedVolume {
        name: name.as_str().into(),
        device_path: Box::default(),
    });
    others.cloned().chain(ours).collect()
}

/// The event of a volume that cannot be attached since others have it, in upstream's words: a pod reads the names of pods of
/// its own namespace alone.
pub(super) fn multi_attach(volume: &str, namespace: &str, users: &[PodRef]) -> String {
    let (local, others): (Vec<_>, Vec<_>) = users.iter().partition(|user| *user.key.namespace == *namespace);
    let names: Vec<&str> = local.iter().map(|user| &*user.key.name).collect();
    let why = match (names.join(", "), others.len()) {
        (_, _) if users.is_empty() => {
            "Volume is already exclusively attached to one node and can't be attached to another".to_owned()
        }
        (names, 0) => format!("Volume is already used by pod(s) {names}"),
        (_, others) if local.is_empty() => {
            format!("Volume is already used by {others} pod(s) in different namespaces")
        }
        (names, others) => {
            format!("Volume is already used by pod(s) {names} and {others} pod(s) in different namespaces")
        }
    };
    format!("Multi-Attach error for volume {volume:?} {why}")
}
