//! CRI and containerd over their unix socket.
//!
//! [`CriClient`] speaks CRI v1: sandboxes, containers, images, with a deadline on every call. Calls that CRI
//! of containerd 1.6 does not offer go to containerd's own services on the same socket: the stream
//! of task events ([`events`]), processes with half-closable input ([`process`]) and images brought in
//! from an archive ([`import`]) or written to one ([`export`]), and read-only views of images for volumes ([`image_view`]). [`archive`] writes and reads such archives.
//!
//! Nothing here knows what a pod should look like; it carries requests.

pub mod archive;
mod client;
mod error;
pub mod events;
mod exec_output;
pub mod export;
pub mod image_view;
pub mod import;
pub mod process;
pub mod twins;

pub use client::{CallEnd, CallObserver, CriClient, Transport};
pub use error::CriError;
pub use exec_output::EXEC_OUTPUT_BYTES_MAX;
/// The messages of CRI v1.
pub use k8s_cri::v1;

/// The containerd namespace in which its CRI plugin keeps everything.
pub const NAMESPACE: &str = "k8s.io";

/// A request in the CRI plugin's namespace.
fn in_namespace<T>(message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert(
        "containerd-namespace",
        tonic::metadata::MetadataValue::from_static(NAMESPACE),
    );
    request
}
