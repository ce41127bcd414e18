//! Kinds of storage.k8s.io.

pub mod csi_driver;
pub mod csi_node;
pub mod csi_storage_capacity;
mod parameters;
pub mod storage_class;
pub mod volume_attachment;
pub mod volume_attributes_class;
