//! Upstream's tables of the attach/detach controller (`reconciler_test.go`, `attach_detach_controller_test.go` of 1.37), as looks
//! at one node and their plans.

use super::names::{attachment_name, unique_name};
use super::plan::{
    ATTACH_TIMEOUT, Attachment, Detach, FORCE_AFTER, Look, Message, NodeFacts, Notes, Plan, PodRef, Wanted,
    multi_attach, of_node, report,
};
use super::views::AttachError;
use crate::views::node::ReportedVolume;
use machinery_meta::{ObjectKey, Uid};
use std::time::Duration;

const NODE: &str = "node";
const SECOND: Duration = Duration::from_secs(1);

fn name(handle: &str) -> String {
    attachment_name("d", handle, NODE)
}

fn pod(namespace: &str, name: &str) -> PodRef {
    PodRef {
        key: ObjectKey::new(namespace, name),
        uid: Uid(name.to_owned()),
    }
}

fn wanted(handle: &str) -> Wanted {
    Wanted {
        unique: unique_name("d", handle),
        volume: format!("pv-{handle}").into(),
        driver: "d".into(),
        handle: handle.into(),
        shared: false,
        pods: vec![pod("ns", "pod")],
    }
}

fn attachment(handle: &str, attached: bool) -> Attachment {
    Attachment {
        name: name(handle),
        uid: Uid(format!("uid-{handle}")),
        driver: "d".into(),
        unique: Some(unique_name("d", handle)),
        attached,
        deleting: false,
        error: None,
    }
}

/// A healthy node that uses these volumes.
fn node(in_use: &[&str]) -> NodeFacts {
    NodeFacts {
        exists: true,
        healthy: true,
        out_of_service: false,
        in_use: Some(in_use.iter().map(|handle| name(handle)).collect()),
        reported: Vec::new(),
    }
}

fn look(node: NodeFacts, wants: &[&str], attachments: Vec<Attachment>) -> Look {
    Look {
        node,
        wanted: wants
            .iter()
            .map(|handle| (name(handle), wanted(handle)))
            .collect(),
        attachments,
    }
}

fn plan(look: &Look) -> Plan {
    of_node(look, &mut Notes::new(), SECOND, true)
}

fn detached(plan: &Plan) -> Vec<(&str, Detach)> {
    let all = plan.detach.iter();
    all.map(|(own, how)| (own.uid.0.strip_prefix("uid-").unwrap(), *how))
        .collect()
}

#[test]
fn volume_of_a_pod_is_attached_once() {
    let first = plan(&look(node(&[]), &["v"], Vec::new()));
    assert_eq!(first.attach, [name("v")]);
    let waiting = plan(&look(node(&[]), &["v"], vec![attachment("v", false)]));
    assert!(waiting.attach.is_empty() && waiting.detach.is_empty() && waiting.report.is_empty());
    let attached = plan(&look(node(&[]), &["v"], vec![attachment("v", true)]));
    assert!(attached.attach.is_empty());
    assert_eq!(attached.report, ["kubernetes.io/csi/d^v"]);
    assert_eq!(attached.messages, [(name("v"), Message::Attached)]);
}

#[test]
fn nothing_is_attached_to_a_node_that_is_gone() {
    let gone = NodeFacts::default();
    assert!(plan(&look(gone, &["v"], Vec::new())).attach.is_empty());
}

/// A restart finds the volume in the node's status: its pods have known for long.
#[test]
fn volume_that_the_node_reports_is_adopted_silently() {
    let mut facts = node(&["v"]);
    facts.reported = report(&["kubernetes.io/csi/d^v".to_owned()], &[]);
    let adopted = plan(&look(facts, &["v"], vec![attachment("v", true)]));
    assert!(adopted.messages.is_empty() && adopted.detach.is_empty() && adopted.attach.is_empty());
    assert_eq!(adopted.report, ["kubernetes.io/csi/d^v"]);
}

/// One that its attacher has not finished, or that no pod needs any more, is adopted as well.
#[test]
fn attachments_that_are_there_at_the_start_are_adopted() {
    let found = vec![attachment("v", false), attachment("old", true)];
    let adopted = plan(&look(node(&[]), &["v"], found));
    assert!(adopted.attach.is_empty());
    assert_eq!(detached(&adopted), [("old", Detach::Unused)]);
}

#[test]
fn volume_that_no_pod_needs_is_detached_unless_it_is_used() {
    let unused = plan(&look(node(&[]), &[], vec![attachment("v", true)]));
    assert_eq!(detached(&unused), [("v", Detach::Unused)]);
    assert!(unused.report.is_empty());
    let used = plan(&look(node(&["v"]), &[], vec![attachment("v", true)]));
    assert!(used.detach.is_empty());
    assert_eq!(
        (used.report.len(), used.next),
        (1, None),
        "a healthy node says when it is done"
    );
}

#[test]
fn attachment_on_its_way_is_left_alone() {
    let mut going = attachment("v", true);
    going.deleting = true;
    for wants in [&["v"][..], &[]] {
        let left = plan(&look(node(&[]), wants, vec![going.clone()]));
        assert!(left.attach.is_empty() && left.detach.is_empty() && left.report.is_empty());
    }
}

/// `healthy`, `out of service`, forced at all, seconds without a pod that needs it: how it is detached.
#[track_caller]
fn check_force(facts: NodeFacts, forces: bool, seconds: u64, expected: Option<Detach>) {
    let look = look(facts, &[], vec![attachment("v", true)]);
    let mut notes = Notes::new();
    of_node(&look, &mut notes, SECOND, forces);
    let then = of_node(&look, &mut notes, SECOND + Duration::from_secs(seconds), forces);
    assert_eq!(detached(&then).first().map(|(_, how)| *how), expected);
}

#[test]
fn volume_in_use_is_taken_from_unhealthy_nodes_after_six_minutes() {
    let facts = |healthy: bool, out_of_service: bool, used: &[&str]| NodeFacts {
        healthy,
        out_of_service,
        ..node(used)
    };
    let (timeout, by_taint) = (Detach::Forced("timeout"), Detach::Forced("out-of-service"));
    check_force(facts(true, false, &["v"]), true, 3_600, None);
    check_force(facts(false, false, &["v"]), true, 359, None);
    check_force(facts(false, false, &["v"]), true, 360, Some(timeout));
    check_force(facts(false, false, &["v"]), false, 3_600, None);
    check_force(facts(false, true, &["v"]), true, 0, Some(by_taint));
    check_force(facts(false, true, &["v"]), false, 3_600, Some(by_taint));
    check_force(facts(false, true, &["v"]), true, 3_600, Some(timeout));
    check_force(facts(true, false, &[]), true, 0, Some(Detach::Unused));
    // Nothing is known of the node: upstream assumes that it uses what is attached.
    let unknown = || NodeFacts::default();
    check_force(unknown(), true, 359, None);
    check_force(unknown(), true, 360, Some(timeout));
}

#[test]
fn time_begins_anew_once_a_pod_needs_the_volume_again() {
    let unhealthy = || NodeFacts {
        healthy: false,
        ..node(&["v"])
    };
    let unwanted = look(unhealthy(), &[], vec![attachment("v", true)]);
    let again = look(unhealthy(), &["v"], vec![attachment("v", true)]);
    let mut notes = Notes::new();
    let first = of_node(&unwanted, &mut notes, SECOND, true);
    assert_eq!(first.next, Some(FORCE_AFTER));
    of_node(&again, &mut notes, FORCE_AFTER, true);
    let later = of_node(&unwanted, &mut notes, FORCE_AFTER + SECOND, true);
    assert!(later.detach.is_empty());
    assert_eq!(later.next, Some(FORCE_AFTER));
}

#[test]
fn pods_hear_of_each_failure_of_an_attacher_once() {
    let mut failing = attachment("v", false);
    let error = |time: &str| AttachError {
        time: time.into(),
        message: "no room".into(),
    };
    failing.error = Some(error("1"));
    let mut notes = Notes::new();
    let mut told = |own: &Attachment, seconds| {
        let look = look(node(&[]), &["v"], vec![own.clone()]);
        let plan = of_node(&look, &mut notes, Duration::from_secs(seconds), true);
        plan.messages
            .into_iter()
            .map(|(_, message)| message)
            .collect::<Vec<_>>()
    };
    let no_room = [Message::Failed("no room".to_owned())];
    assert_eq!(told(&failing, 1), no_room);
    assert_eq!(told(&failing, 2), []);
    failing.error = Some(error("2"));
    assert_eq!(told(&failing, 3), no_room);
    failing.error = None;
    failing.attached = true;
    assert_eq!(told(&failing, 4), [Message::Attached]);
    assert_eq!(told(&failing, 5), []);
}

#[test]
fn attacher_that_is_silent_for_two_minutes_is_complained_about() {
    let look = look(node(&[]), &["v"], vec![attachment("v", false)]);
    let mut notes = Notes::new();
    let first = of_node(&look, &mut notes, SECOND, true);
    assert_eq!((first.messages.len(), first.next), (0, Some(ATTACH_TIMEOUT)));
    let then = of_node(&look, &mut notes, SECOND + ATTACH_TIMEOUT, true);
    let why = "timed out waiting for external-attacher of d CSI driver to attach volume v";
    assert_eq!(then.messages, [(name("v"), Message::Failed(why.to_owned()))]);
    assert_eq!(then.next, Some(ATTACH_TIMEOUT));
}

#[test]
fn attachment_that_was_deleted_is_not_deleted_again() {
    let look = look(node(&[]), &[], vec![attachment("v", true)]);
    let mut notes = Notes::new();
    assert_eq!(of_node(&look, &mut notes, SECOND, true).detach.len(), 1);
    let note = notes.get_mut(&name("v")).unwrap();
    note.was_deleted(&look.attachments[0], SECOND);
    assert!(of_node(&look, &mut notes, SECOND, true).detach.is_empty());
    // A new one of the name is another.
    let mut new = look;
    new.attachments[0].uid = Uid("uid-new".to_owned());
    assert_eq!(of_node(&new, &mut notes, SECOND, true).detach.len(), 1);
}

#[test]
fn notes_last_as_long_as_their_attachments() {
    let mut notes = Notes::new();
    of_node(
        &look(node(&[]), &["v"], vec![attachment("w", true)]),
        &mut notes,
        SECOND,
        true,
    );
    assert_eq!(notes.len(), 1);
    of_node(&look(node(&[]), &[], Vec::new()), &mut notes, SECOND, true);
    assert!(notes.is_empty());
}

#[test]
fn volumes_of_other_plugins_stay_in_the_list() {
    let named = |name: &str, device_path: &str| ReportedVolume {
        name: name.into(),
        device_path: device_path.into(),
    };
    let before = [
        named("kubernetes.io/fc/a", "/dev/a"),
        named("kubernetes.io/csi/d^old", ""),
    ];
    let after = report(&["kubernetes.io/csi/d^v".to_owned()], &before);
    assert_eq!(after, [before[0].clone(), named("kubernetes.io/csi/d^v", "")]);
}

/// `Test_ReportMultiAttachError`: namespaces and names of the pods that use the volume, and the event of a pod in `ns1`.
#[test]
fn multi_attach_errors_are_in_upstreams_words() {
    let check = |users: &[PodRef], why: &str| {
        let expected = format!("Multi-Attach error for volume \"volume-name\" {why}");
        assert_eq!(multi_attach("volume-name", "ns1", users), expected);
    };
    check(
        &[],
        "Volume is already exclusively attached to one node and can't be attached to another",
    );
    check(&[pod("ns1", "pod2")], "Volume is already used by pod(s) pod2");
    check(
        &[pod("ns1", "pod2"), pod("ns2", "pod3")],
        "Volume is already used by pod(s) pod2 and 1 pod(s) in different namespaces",
    );
    check(
        &[pod("ns2", "pod2")],
        "Volume is already used by 1 pod(s) in different namespaces",
    );
    check(
        &[pod("ns1", "pod2"), pod("ns1", "pod3")],
        "Volume is already used by pod(s) pod2, pod3",
    );
}
