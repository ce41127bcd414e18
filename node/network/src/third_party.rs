//! Networks of other programs, such as Cilium and flannel: the configuration that one of them installs (a pod of its DaemonSet writes
//! it to `/etc/cni/net.d` by a `hostPath`), handed to the container runtime in place of ours.
//!
//! The rule is the runtime's own: of all configurations the first by name counts, ours ([`CONFLIST`]) among
//! them. The runtime reads our folder alone, in which the one that counts is copied under its name.

use crate::plan::CONFLIST;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Files of a folder that are looked at, the first by name.
const FILES_MAX: usize = 256;
/// A longer file is none.
const BYTES_MAX: u64 = 1 << 20;

/// A configuration of another program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ThirdParty {
    /// Name of its file.
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
}

/// Returns the configuration in a folder that counts: the first by name, and before ours where we have one. An entry that cannot be
/// read, or is no file, counts as none and holds up nothing. Blocks.
pub(crate) fn find(folder: &Path, has_own: bool) -> io::Result<Option<ThirdParty>> {
    let names = names(folder)?.into_iter();
    let names = names.filter(|name| !has_own || name.as_str() < CONFLIST);
    for name in names {
        let path = folder.join(&name);
        let content = match node_sys::fs::read_regular_by_links(&path, BYTES_MAX + 1) {
            Ok(content) => content,
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "a configuration of a network cannot be read");
                continue;
            }
        };
        if content.len() as u64 <= BYTES_MAX && is_one(&name, &content) {
            return Ok(Some(ThirdParty { name, content }));
        }
    }
    Ok(None)
}

/// Names of configurations, sorted. A folder that is not there has none.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let is_one = |name: &OsString| {
        let suffix = Path::new(name).extension().and_then(|suffix| suffix.to_str());
        matches!(suffix, Some("conf" | "conflist" | "json"))
    };
    let names = first_names(folder, is_one)?.into_iter();
    Ok(names.filter_map(|name| name.into_string().ok()).collect())
}

/// The first of a folder's wanted names, sorted. A folder that is not there has none.
fn first_names(folder: &Path, is_wanted: impl Fn(&OsString) -> bool) -> io::Result<BTreeSet<OsString>> {
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        entries => entries?,
    };
    let mut names = BTreeSet::new();
    for entry in entries {
        let name = entry?.file_name();
        if is_wanted(&name) {
            names.insert(name);
        }
        if names.len() > FILES_MAX {
            names.pop_last();
        }
    }
    Ok(names)
}

/// Reports whether a file is a whole configuration; one that is being written is none yet.
fn is_one(name: &str, content: &[u8]) -> bool {
    let Ok(Value::Object(document)) = serde_json::from_slice(content) else {
        return false;
    };
    let has = |field: &str| document.get(field).and_then(Value::as_str).is_some();
    let lists = || {
        let plugins = document.get("plugins").and_then(Value::as_array);
        plugins.is_some_and(|plugins| plugins.iter().any(|plugin| plugin.get("type").is_some()))
    };
    has("name")
        && if name.ends_with(".conflist") {
            lists()
        } else {
            has("type")
        }
}

/// Makes the folder of the runtime have this configuration, and ours or none beside it. Blocks.
pub(crate) fn install(folder: &Path, found: Option<&ThirdParty>) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    if let Some(found) = found {
        let path = folder.join(&found.name);
        let is_there = std::fs::read(&path).is_ok_and(|content| content == found.content);
        if !is_there {
            // Names of networks are no secret, and some plugins read the file as others than root.
            node_sys::fs::write_atomically(&path, &found.content, 0o644)?;
        }
    }
    let keep = found.map_or(CONFLIST, |found| found.name.as_str());
    for name in names(folder)?.iter().filter(|name| *name != keep) {
        remove(&folder.join(name))?;
    }
    Ok(())
}

pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Folders of plugins as the runtime sees them: one of our own, with links to the programs of all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginFolders {
    /// Folders of programs; of two of one name the first counts.
    pub from: Vec<PathBuf>,
    /// Folder of the links.
    pub links: PathBuf,
}

impl PluginFolders {
    /// Makes the links those to the programs that are there. Blocks.
    pub fn link(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.links)?;
        let mut wanted = BTreeMap::new();
        for folder in &self.from {
            for name in programs(folder)? {
                let target = folder.join(&name);
                wanted.entry(name).or_insert(target);
            }
        }
        for entry in std::fs::read_dir(&self.links)? {
            let entry = entry?;
            if !wanted.contains_key(&entry.file_name()) {
                remove(&entry.path())?;
            }
        }
        for (name, target) in wanted {
            let link = self.links.join(&name);
            if std::fs::read_link(&link).ok().as_ref() != Some(&target) {
                remove(&link)?;
                std::os::unix::fs::symlink(&target, &link)?;
            }
        }
        Ok(())
    }
}

fn programs(folder: &Path) -> io::Result<BTreeSet<OsString>> {
    // Follows links, as Debian has some.
    let is_file = |name: &OsString| std::fs::metadata(folder.join(name)).is_ok_and(|found| found.is_file());
    first_names(folder, is_file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CILIUM: &str = r#"{"cniVersion": "1.0.0", "name": "cilium", "plugins": [{"type": "cilium-cni"}]}"#;

    fn found(folder: &Path, has_own: bool) -> Option<String> {
        find(folder, has_own).unwrap().map(|found| found.name)
    }

    #[test]
    fn third_party_configuration_counts_where_its_name_is_before_ours() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert_eq!(found(Path::new("/nowhere"), true), None);
        // Of a program that is on the machine for other ends.
        write("87-podman-bridge.conflist", CILIUM);
        assert_eq!(found(folder.path(), true), None);
        assert_eq!(
            found(folder.path(), false).as_deref(),
            Some("87-podman-bridge.conflist")
        );
        write("10-flannel.conflist", CILIUM);
        assert_eq!(found(folder.path(), true).as_deref(), Some("10-flannel.conflist"));
        for (name, text) in [
            ("00-half.conflist", &CILIUM[..40]),
            ("01-empty.conflist", r#"{"name": "none", "plugins": []}"#),
            ("02-list.conf", CILIUM),
            ("05-cilium.conflist.cilium_bak", CILIUM),
            (".tmp-05", CILIUM),
        ] {
            write(name, text);
            assert_eq!(
                found(folder.path(), true).as_deref(),
                Some("10-flannel.conflist"),
                "{name}"
            );
        }
        write("05-cilium.conflist", CILIUM);
        assert_eq!(found(folder.path(), true).as_deref(), Some("05-cilium.conflist"));
        write("04-one.conf", r#"{"name": "one", "type": "ptp"}"#);
        assert_eq!(found(folder.path(), true).as_deref(), Some("04-one.conf"));
    }

    #[test]
    fn third_party_configuration_counts_beside_what_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("05-cilium.conflist"), CILIUM).unwrap();
        std::os::unix::fs::symlink(at("05-cilium.conflist"), at("04-link.conflist")).unwrap();
        std::os::unix::fs::symlink("/nowhere", at("00-dangling.conf")).unwrap();
        std::fs::create_dir(at("01-folder.conf")).unwrap();
        nix::unistd::mkfifo(&at("02-pipe.conf"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(found(folder.path(), true).as_deref(), Some("04-link.conflist"));
        for number in 0..FILES_MAX {
            std::fs::write(at(&format!("90-{number}.conf")), "").unwrap();
        }
        assert_eq!(found(folder.path(), true).as_deref(), Some("04-link.conflist"));
        assert_eq!(names(folder.path()).unwrap().len(), FILES_MAX);
    }

    #[test]
    fn third_party_configuration_is_the_only_one_of_the_runtime() {
        let folder = tempfile::tempdir().unwrap();
        let names = || super::names(folder.path()).unwrap();
        std::fs::write(folder.path().join(CONFLIST), "ours").unwrap();
        let cilium = |content: &str| ThirdParty {
            name: "05-cilium.conflist".to_owned(),
            content: content.into(),
        };
        install(folder.path(), Some(&cilium("one"))).unwrap();
        assert_eq!(names(), ["05-cilium.conflist"]);
        install(folder.path(), Some(&cilium("two"))).unwrap();
        assert_eq!(
            std::fs::read(folder.path().join("05-cilium.conflist")).unwrap(),
            b"two"
        );
        std::fs::write(folder.path().join(CONFLIST), "ours").unwrap();
        install(folder.path(), None).unwrap();
        assert_eq!(names(), [CONFLIST]);
    }

    #[test]
    fn third_party_plugins_are_linked_beside_the_machines() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for path in ["opt", "usr"] {
            std::fs::create_dir(at(path)).unwrap();
        }
        for path in ["opt/flannel", "opt/ptp", "usr/ptp", "usr/bridge"] {
            std::fs::write(at(path), path).unwrap();
        }
        let folders = PluginFolders {
            from: vec![at("opt"), at("missing"), at("usr")],
            links: at("links"),
        };
        let seen = |name: &str| std::fs::read_to_string(at("links").join(name)).ok();
        folders.link().unwrap();
        assert_eq!(seen("ptp").as_deref(), Some("opt/ptp"));
        assert_eq!(seen("bridge").as_deref(), Some("usr/bridge"));
        std::fs::remove_file(at("opt/ptp")).unwrap();
        std::fs::remove_file(at("opt/flannel")).unwrap();
        folders.link().unwrap();
        assert_eq!((seen("ptp").as_deref(), seen("flannel")), (Some("usr/ptp"), None));
        assert_eq!(std::fs::read_dir(at("links")).unwrap().count(), 2);
    }
}
