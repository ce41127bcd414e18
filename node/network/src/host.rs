//! Settings of the host that pods need. The values before are noted once, for the removal of the node.

use crate::config::SYSCTLS;
use std::io;
use std::path::Path;

/// Lets the host pass packets on. A setting that fails is logged once; in a container it often is set already.
pub(crate) fn prepare(settings: &Path, note: &Path) {
    for (name, value, optional) in SYSCTLS {
        match set(settings, note, name, value) {
            Err(error) if !optional => tracing::warn!(%name, %error, "applying a host setting failed"),
            Err(error) => tracing::debug!(%name, %error, "applying a host setting failed"),
            Ok(()) => {}
        }
    }
}

/// The note has a line `NAME BEFORE AFTER` for each setting that was another when we first came.
fn set(settings: &Path, note: &Path, name: &str, value: &str) -> io::Result<()> {
    let path = settings.join(name);
    let before = std::fs::read_to_string(&path)?;
    let before = before.trim();
    if before == value {
        return Ok(());
    }
    let mut noted = std::fs::read_to_string(note).unwrap_or_default();
    // The first value before ours is the administrator's; a later start finds its own and must not note that.
    if !noted.lines().any(|line| line.split(' ').next() == Some(name)) {
        noted.push_str(&format!("{name} {before} {value}\n"));
        // The note before the setting: killed in between, the removal restores a value that is still there.
        node_sys::fs::write_atomically(note, noted.as_bytes(), 0o644)?;
    }
    std::fs::write(&path, value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_original_settings_are_recorded_once() {
        let folder = tempfile::tempdir().unwrap();
        let (settings, note) = (folder.path().join("sys"), folder.path().join("note"));
        let forward = settings.join("net/ipv4/ip_forward");
        std::fs::create_dir_all(forward.parent().unwrap()).unwrap();
        for before in ["0", "1", "2"] {
            std::fs::write(&forward, format!("{before}\n")).unwrap();
            prepare(&settings, &note);
            assert_eq!(std::fs::read_to_string(&forward).unwrap().trim(), "1");
            assert_eq!(
                std::fs::read_to_string(&note).unwrap(),
                "net/ipv4/ip_forward 0 1\n"
            );
        }
    }
}
