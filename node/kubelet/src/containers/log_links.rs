//! Links to the logs of containers, by names that log agents read: `/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log` leads to
//! `/var/log/pods/…`, where [`shown`](crate::shown) shows the folders of both. Upstream's `legacyLogSymlink`.

use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use super::files;
use crate::config::KubeletConfig;
use crate::pods::{name, namespace};

/// Longest file name of ext4, in bytes.
const NAME_BYTES_MAX: usize = 255;
const SUFFIX: &str = ".log";

/// A link to the log of a container.
#[derive(Debug)]
pub(crate) struct LogLink {
    at: PathBuf,
    to: PathBuf,
}

impl LogLink {
    /// The link of a container, whose log is at this path below its pod's folder.
    pub(crate) fn new(config: &KubeletConfig, pod: &Pod, (container, id): (&str, &str), log: &str) -> Self {
        let folder = files::log_folder(config, pod);
        let seen = config
            .seen_logs_folder()
            .join(folder.file_name().unwrap_or_default());
        Self {
            at: config.log_links_folder().join(link_name(pod, container, id)),
            to: seen.join(log),
        }
    }

    /// Makes it, unless it is there. Blocks.
    pub(crate) fn make(&self) -> io::Result<()> {
        std::fs::create_dir_all(self.at.parent().unwrap_or(&self.at))?;
        match std::fs::read_link(&self.at) {
            Ok(to) if to == self.to => return Ok(()),
            // A long name is cut before the container's id, so that its successor has the same.
            Ok(_) => std::fs::remove_file(&self.at)?,
            Err(_) => {}
        }
        std::os::unix::fs::symlink(&self.to, &self.at)
    }
}

fn link_name(pod: &Pod, container: &str, id: &str) -> String {
    let mut link = format!("{}_{}_{container}-{id}", name(pod), namespace(pod));
    link.truncate(link.floor_char_boundary(NAME_BYTES_MAX - SUFFIX.len()));
    link + SUFFIX
}

/// Removes links whose log is gone. Blocks.
pub(crate) fn remove_dangling(config: &KubeletConfig) {
    let Ok(entries) = std::fs::read_dir(config.log_links_folder()) else {
        return;
    };
    for link in entries.flatten().map(|entry| entry.path()) {
        let Ok(to) = std::fs::read_link(&link) else {
            continue;
        };
        let own = to.strip_prefix(config.seen_logs_folder());
        if own.is_ok_and(|log| !has_log(&config.logs_folder().join(log))) {
            // One that stays is found again with the next look.
            let _ = std::fs::remove_file(link);
        }
    }
}

/// Reports whether a log or one that was rotated away from it is there: between the two the runtime recreates it.
fn has_log(log: &Path) -> bool {
    let name = log.file_name().unwrap_or_default().as_encoded_bytes();
    let entries = log.parent().map(std::fs::read_dir);
    let mut names = entries
        .into_iter()
        .flatten()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    names.any(|found| {
        let rest = found.as_encoded_bytes().strip_prefix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_links_lead_to_logs_as_pods_see_them_and_go_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let mut config = KubeletConfig::for_data_dir(folder.path().to_owned());
        config.logs_shown_in = Some("/var/log".into());
        let pod: Pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "namespace": "blue", "uid": "u"}}))
        .unwrap();
        for (id, log) in [("1f", "main/0.log"), ("2f", "main/1.log")] {
            let file = files::log_folder(&config, &pod).join(log);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
            let link = LogLink::new(&config, &pod, ("main", id), log);
            link.make().unwrap();
            link.make().unwrap();
        }
        let at = |id: &str| config.log_links_folder().join(format!("web_blue_main-{id}.log"));
        let to = std::fs::read_link(at("2f")).unwrap();
        assert_eq!(to, Path::new("/var/log/pods/blue_web_u/main/1.log"));
        std::fs::remove_file(files::log_folder(&config, &pod).join("main/0.log")).unwrap();
        remove_dangling(&config);
        assert!(std::fs::read_link(at("1f")).is_err());
        assert!(std::fs::read_link(at("2f")).is_ok());
        let log = |name: &str| files::log_folder(&config, &pod).join("main").join(name);
        std::fs::rename(log("1.log"), log("1.log.20261129-044500")).unwrap();
        remove_dangling(&config);
        assert!(std::fs::read_link(at("2f")).is_ok(), "it is being rotated");
        let long = "l".repeat(253);
        assert_eq!(link_name(&pod, &long, "3f").len(), NAME_BYTES_MAX);
    }
}
