//! Volumes: upstream's tables as data, and stories on the scheduler.
//!
//! The tables are those of 1.37 (`volume_binding_test.go`, `binder_test.go`, `volume_restrictions_test.go`,
//! `volume_zone_test.go`, `csi_test.go`). Left out are drivers inside of Kubernetes that moved to CSI, other shapes of
//! scores than the default one, gates that are off by default, and hints about objects of another kind.

mod hints;
mod stories;
mod tables;

use super::*;
use crate::volumes::views::{
    AttachmentView, CapacityView, ClaimView, ClassView, CsiNodeView, DriverView, VolumeView,
};
use crate::volumes::{Attachment, Capacity, Class, CsiNode, Driver, Volume};
use machinery_client::Projection;
use machinery_meta::ObjectHeader;

fn key_of(object: &Value) -> ObjectKey {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    ObjectKey::new(text("namespace"), text("name"))
}

fn view<P: Projection>(object: &Value) -> P {
    P::project(&ObjectHeader::default(), object.to_string().as_bytes()).unwrap()
}

fn claim_of(object: &Value) -> Claim {
    view::<ClaimView>(object).0
}

fn volume_of(object: &Value) -> Volume {
    view::<VolumeView>(object).0
}

fn class_of(object: &Value) -> Class {
    view::<ClassView>(object).0
}

fn csi_node_of(object: &Value) -> CsiNode {
    view::<CsiNodeView>(object).0
}

fn driver_of(object: &Value) -> Driver {
    view::<DriverView>(object).0
}

fn capacity_of(object: &Value) -> Capacity {
    view::<CapacityView>(object).0
}

fn attachment_of(object: &Value) -> Attachment {
    view::<AttachmentView>(object).0
}

fn pod_of(object: &Value) -> Arc<PodInfo> {
    let pod: Pod = serde_json::from_value(object.clone()).unwrap();
    Arc::new(PodInfo::new(pod))
}

#[test]
fn csi_node_without_drivers_has_none() {
    // As upstream's encoder writes an empty list.
    assert!(
        csi_node_of(&json!({"spec": {"drivers": null}}))
            .drivers
            .is_empty()
    );
}
