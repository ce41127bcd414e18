//! Views of volumes, claims, devices and migrations.

use super::{CONDITION, LABEL, MOST, OF_COMPONENTS, OF_REQUIREMENTS, check};
use crate::attach_detach::views::{AttachmentView, DriverView};
use crate::device_taint_eviction::view::{AllocationView, DevicesView, RuleView};
use crate::resource_claim::view::{DeviceClaimView, TemplateView};
use crate::storage_version_migration::view::MigrationView;
use crate::volume_binder::views::{ClaimView, ClassView, VolumeView};

#[test]
fn views_of_the_volume_binder_take_what_is_charged() {
    const MODE: &str = r#""ReadWriteOnce""#;
    check::<ClaimView>(
        MOST,
        &[
            (object!(r#""spec":{"storageClassName":"@"}"#), "a"),
            (object!(r#""spec":{"resources":{"requests":{@}}}"#), LABEL),
            (
                r#"{"metadata":{"name":"a","annotations":{"volume.kubernetes.io/selected-node":"@"}}}"#,
                "a",
            ),
        ],
    );
    check::<ClaimView>(OF_COMPONENTS, &[(object!(r#""spec":{"accessModes":[@]}"#), MODE)]);
    check::<ClaimView>(
        OF_REQUIREMENTS,
        &[(
            object!(r#""spec":{"selector":{"matchExpressions":[@]}}"#),
            r##"{"key":"#","operator":"Exists"}"##,
        )],
    );
    check::<VolumeView>(
        MOST,
        &[
            (object!(r#""spec":{"storageClassName":"@"}"#), "a"),
            (object!(r#""spec":{"capacity":{@}}"#), LABEL),
            (
                object!(r#""spec":{"csi":{"driver":"d","volumeHandle":"@"}}"#),
                "a",
            ),
        ],
    );
    check::<VolumeView>(OF_COMPONENTS, &[(object!(r#""spec":{"accessModes":[@]}"#), MODE)]);
    check::<ClassView>(MOST, &[(object!(r#""parameters":{@}"#), LABEL)]);
}

#[test]
fn views_of_attachments_take_what_is_charged() {
    check::<AttachmentView>(
        MOST,
        &[
            (object!(r#""spec":{"attacher":"@"}"#), "a"),
            (object!(r#""spec":{"nodeName":"@"}"#), "a"),
            (object!(r#""spec":{"source":{"persistentVolumeName":"@"}}"#), "a"),
            (object!(r#""status":{"attachError":{"message":"@"}}"#), "a"),
        ],
    );
    check::<DriverView>(
        MOST,
        &[(
            object!(r#""spec":{"tokenRequests":[@]}"#),
            r##"{"audience":"#"}"##,
        )],
    );
}

#[test]
fn view_of_a_claim_of_devices_takes_what_is_charged() {
    check::<DeviceClaimView>(
        MOST,
        &[
            (r#"{"metadata":{"name":"a","annotations":{@}}}"#, LABEL),
            (
                object!(r#""spec":{"devices":{"requests":[@]}}"#),
                r##"{"name":"#","exactly":{"adminAccess":true}}"##,
            ),
        ],
    );
    check::<TemplateView>(MOST, &[(object!(r#""spec":{"spec":{@}}"#), LABEL)]);
    // At most 256, which components write.
    let consumer = r##"{"resource":"pods","name":"#","uid":"u"}"##;
    check::<DeviceClaimView>(
        OF_COMPONENTS,
        &[(object!(r#""status":{"reservedFor":[@]}"#), consumer)],
    );
}

#[test]
fn view_of_a_migration_takes_what_is_charged() {
    check::<MigrationView>(MOST, &[(object!(r#""spec":{"resource":{"resource":"@"}}"#), "a")]);
    check::<MigrationView>(
        OF_COMPONENTS,
        &[(object!(r#""status":{"conditions":[@]}"#), CONDITION)],
    );
}

/// Drivers, schedulers and administrators write these.
#[test]
fn views_of_tainted_devices_take_what_is_charged() {
    let toleration = r##"{"key":"#","operator":"Exists"}"##;
    check::<AllocationView>(
        OF_COMPONENTS,
        &[
            (object!(r#""status":{"reservedFor":[@]}"#), r##"{"uid":"#"}"##),
            (
                object!(
                    r#""status":{"allocation":{"devices":{"results":[{"driver":"d","tolerations":[@]}]}}}"#
                ),
                toleration,
            ),
            (
                object!(r#""status":{"allocation":{"devices":{"results":[@]}}}"#),
                r##"{"driver":"d","pool":"p","device":"#"}"##,
            ),
        ],
    );
    check::<DevicesView>(
        OF_COMPONENTS,
        &[
            (object!(r#""spec":{"devices":[@]}"#), r##"{"name":"#"}"##),
            (
                object!(r#""spec":{"devices":[{"name":"d","taints":[@]}]}"#),
                r##"{"key":"#"}"##,
            ),
        ],
    );
    check::<RuleView>(
        OF_COMPONENTS,
        &[(object!(r#""status":{"conditions":[@]}"#), CONDITION)],
    );
}
