//! Names of attachments and of volumes, as upstream's (`pkg/volume/csi`): other components compute the same ones.

use ring::digest::{SHA256, digest};
use std::fmt::Write;

/// Volumes of CSI in the status of a node begin so.
pub(super) const PLUGIN: &str = "kubernetes.io/csi/";
/// Attachments begin so, and a hash follows.
const PREFIX: &str = "csi-";
/// Separates the driver from its handle there.
const SEPARATOR: char = '^';

/// Name of a volume in `volumesAttached` and `volumesInUse`.
pub(super) fn unique_name(driver: &str, handle: &str) -> String {
    format!("{PLUGIN}{driver}{SEPARATOR}{handle}")
}

/// Name of the VolumeAttachment of a volume and a node (`getAttachmentName`).
pub(super) fn attachment_name(driver: &str, handle: &str, node: &str) -> String {
    let hash = digest(&SHA256, format!("{handle}{driver}{node}").as_bytes());
    let mut name = PREFIX.to_owned();
    for byte in hash.as_ref() {
        // Writing to a string cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Reports whether a name has the form of [`attachment_name`].
pub(super) fn is_attachment_name(name: &str) -> bool {
    let hash = name.strip_prefix(PREFIX).unwrap_or_default();
    hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Name of the VolumeAttachment of a volume that a node's status names; `None` where it is no volume of CSI.
pub(super) fn attachment_of(unique: &str, node: &str) -> Option<String> {
    let (driver, handle) = unique.strip_prefix(PLUGIN)?.split_once(SEPARATOR)?;
    Some(attachment_name(driver, handle, node))
}

/// The plugin with its driver, as metrics have it.
pub(super) fn plugin_of(driver: &str) -> String {
    format!("kubernetes.io/csi:{driver}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attachment_names_are_upstreams() {
        // `printf vol01driver01node01 | sha256sum`: the handle comes first.
        let name = attachment_name("driver01", "vol01", "node01");
        assert_eq!(
            name,
            "csi-6742023a61316c20361490f8a9a57fa3264f6f22d28eca7f5b7503ddc6519b82"
        );
        assert!(is_attachment_name(&name) && !is_attachment_name("csi-of-another"));
        assert_eq!(
            attachment_of("kubernetes.io/csi/driver01^vol01", "node01"),
            Some(name)
        );
        assert_eq!(attachment_of("kubernetes.io/csi/driver01", "node01"), None);
        assert_eq!(attachment_of("kubernetes.io/fc/a^b", "node01"), None);
    }
}
