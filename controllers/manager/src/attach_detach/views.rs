//! Fields of attachments and drivers that the controller reads.

use machinery_client::{Index, IndexName, Projection};
use machinery_meta::ObjectHeader;
use serde::Deserialize;

/// A VolumeAttachment.
#[derive(Debug)]
pub(crate) struct AttachmentView {
    /// `spec.attacher`, the driver.
    pub(super) attacher: Box<str>,
    /// `spec.nodeName`.
    pub(super) node: Box<str>,
    /// `spec.source.persistentVolumeName`, empty for a volume in the attachment itself.
    pub(super) volume: Box<str>,
    /// `status.attached`.
    pub(super) attached: bool,
    /// Time and message of `status.attachError`.
    pub(super) error: Option<Box<AttachError>>,
}

/// The last failure of an attacher.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct AttachError {
    pub(super) time: Box<str>,
    pub(super) message: Box<str>,
}

impl AttachmentView {
    /// Attachments to a node.
    pub(super) const NODE: IndexName = IndexName("node");
    /// Attachments of a PersistentVolume.
    pub(super) const VOLUME: IndexName = IndexName("volume");
}

impl Projection for AttachmentView {
    const INDEXES: &'static [Index<Self>] = &[
        Index {
            name: Self::NODE,
            values: |own, each| each(&own.node),
        },
        Index {
            name: Self::VOLUME,
            values: |own, each| each(&own.volume),
        },
    ];

    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let Attachment { spec, status } = machinery_client::json::from_slice(json)?;
        Ok(Self {
            attacher: spec.attacher,
            node: spec.node_name,
            volume: spec.source.persistent_volume_name.unwrap_or_default(),
            attached: status.attached,
            error: status.attach_error,
        })
    }
}

/// A CSIDriver.
#[derive(Debug)]
pub(crate) struct DriverView {
    /// Its volumes are attached before they are mounted.
    pub(super) attaches: bool,
}

impl Projection for DriverView {
    fn project(_: &ObjectHeader, json: &[u8]) -> Result<Self, serde_json::Error> {
        let driver: Driver = machinery_client::json::from_slice(json)?;
        Ok(Self {
            attaches: driver.spec.attach_required.unwrap_or(true),
        })
    }
}

#[derive(Deserialize)]
struct Attachment {
    #[serde(default)]
    spec: AttachmentSpec,
    #[serde(default)]
    status: AttachmentStatus,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentSpec {
    attacher: Box<str>,
    node_name: Box<str>,
    source: Source,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Source {
    persistent_volume_name: Option<Box<str>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AttachmentStatus {
    attached: bool,
    attach_error: Option<Box<AttachError>>,
}

#[derive(Deserialize)]
struct Driver {
    #[serde(default)]
    spec: DriverSpec,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct DriverSpec {
    attach_required: Option<bool>,
}
