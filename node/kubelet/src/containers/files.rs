//! Files of a container beside its volumes: its hosts file, termination message and log.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::config::KubeletConfig;
use crate::logs::line::LogFormat;
use crate::pods::{name, namespace, spec, uid};

/// Upstream's bound on a termination message, and on what is taken from the log instead.
const MESSAGE_BYTES_MAX: u64 = 4096;
const MESSAGE_LOG_BYTES_MAX: u64 = 2048;
const MESSAGE_LOG_LINES_MAX: usize = 80;

/// The pod's folder.
pub(crate) fn pod_folder(config: &KubeletConfig, uid: &str) -> PathBuf {
    config.pods_folder().join(uid)
}

/// The pod's folder of logs.
pub(crate) fn log_folder(config: &KubeletConfig, pod: &Pod) -> PathBuf {
    config
        .logs_folder()
        .join(format!("{}_{}_{}", namespace(pod), name(pod), uid(pod)))
}

/// Every folder of logs of a uid, whatever its pod was called. Blocks.
pub(crate) fn log_folders_of(config: &KubeletConfig, uid: &str) -> Vec<PathBuf> {
    let named = folders(&config.logs_folder()).filter(|name| uid_of_log_folder(name) == Some(uid));
    named.map(|name| config.logs_folder().join(name)).collect()
}

/// The uid in the name of a folder of logs. Neither a namespace nor the name of a pod has a `_`, but the uid of a static pod may.
fn uid_of_log_folder(name: &str) -> Option<&str> {
    name.splitn(3, '_').nth(2)
}

/// The uids of pods that have left something on the disk. Pods may write the folder of logs: a name in it leads to no other folder than
/// one of pods, and what is no folder was not left by one. Blocks.
pub(crate) fn uids_on_disk(config: &KubeletConfig) -> Vec<String> {
    let in_logs = folders(&config.logs_folder());
    let in_logs = in_logs.filter_map(|name| uid_of_log_folder(&name).map(str::to_owned));
    let all = folders(&config.pods_folder()).chain(in_logs);
    all.filter(|uid| node_sys::fs::is_name(uid)).collect()
}

fn folders(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    folders.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

fn names(folder: &Path) -> impl Iterator<Item = String> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// Removes a log and what was rotated away from it. Blocks.
pub(crate) fn remove_log(log: &Path) {
    let prefix = log.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = log.parent().unwrap_or(Path::new("/"));
    let belongs = |name: &String| {
        name.strip_prefix(&prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    for name in names(folder).filter(belongs) {
        // What cannot be removed goes with the pod's folder.
        let _ = std::fs::remove_file(folder.join(name));
    }
}

/// A container's log, relative to the pod's folder of logs.
pub(crate) fn log_path(container: &str, restart_count: i32) -> String {
    format!("{container}/{restart_count}.log")
}

/// Makes the folders a container's log and message go to.
pub(crate) fn prepare(config: &KubeletConfig, pod: &Pod, container: &Container) -> std::io::Result<()> {
    std::fs::create_dir_all(log_folder(config, pod).join(&container.name))?;
    std::fs::create_dir_all(
        pod_folder(config, uid(pod))
            .join("containers")
            .join(&container.name),
    )
}

/// Writes the pod's hosts file and returns where it is; `None` if the pod brings its own.
pub(crate) fn write_hosts(
    config: &KubeletConfig,
    pod: &Pod,
    container: &Container,
    ips: &[String],
) -> std::io::Result<Option<PathBuf>> {
    let own = container
        .volume_mounts
        .iter()
        .flatten()
        .any(|mount| mount.mount_path == "/etc/hosts");
    if own {
        return Ok(None);
    }
    let node_hosts = if spec(pod).host_network == Some(true) {
        std::fs::read_to_string("/etc/hosts").unwrap_or_default()
    } else {
        String::new()
    };
    let text = super::dns::hosts_file(pod, ips, &config.cluster_domain, &node_hosts);
    let path = pod_folder(config, uid(pod)).join("etc-hosts");
    // A container that runs already has this very file mounted, and may have written it: it must not be replaced by
    // another, and its length is the container's to choose.
    if !node_sys::fs::holds(&path, text.as_bytes()).unwrap_or(false) {
        std::fs::write(&path, text)?;
        node_sys::fs::set_mode(&path, 0o644)?;
    }
    Ok(Some(path))
}

/// Makes the empty file that becomes the termination message of one run.
pub(crate) fn make_message_file(
    config: &KubeletConfig,
    pod: &Pod,
    container: &Container,
    restart_count: i32,
) -> std::io::Result<PathBuf> {
    let folder = pod_folder(config, uid(pod))
        .join("containers")
        .join(&container.name);
    let path = folder.join(format!("message-{restart_count}"));
    std::fs::write(&path, b"")?;
    // The container's user, whichever it is, may write it.
    node_sys::fs::set_mode(&path, 0o666)?;
    Ok(path)
}

/// Returns the termination message of a container: its message file, or the end of the given log if that is empty.
pub(crate) fn termination_message(path: &str, log: Option<&str>) -> Option<String> {
    let message = match path {
        "" => String::new(),
        path => read_head(Path::new(path)).unwrap_or_default(),
    };
    if !message.is_empty() {
        return Some(message);
    }
    let tail = read_tail(Path::new(log?)).ok()?;
    (!tail.is_empty()).then_some(tail)
}

fn read_head(path: &Path) -> std::io::Result<String> {
    let bytes = node_sys::fs::read_regular(path, MESSAGE_BYTES_MAX)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn read_tail(path: &Path) -> std::io::Result<String> {
    let mut file = node_sys::fs::open_regular_by_links(path)?;
    let length = file.metadata()?.len();
    // A line of the log carries some forty bytes beside its text.
    let wanted = MESSAGE_LOG_BYTES_MAX * 4;
    file.seek(SeekFrom::Start(length.saturating_sub(wanted)))?;
    let mut bytes = Vec::new();
    file.take(wanted).read_to_end(&mut bytes)?;
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let Some(format) = lines.iter().find_map(|line| LogFormat::of(line)) else {
        return Ok(String::new());
    };
    let wanted = lines.iter().filter_map(|line| format.parse(line));
    let mut texts: Vec<String> = wanted
        .map(|line| String::from_utf8_lossy(&line.text).into_owned())
        .collect();
    texts.drain(..texts.len().saturating_sub(MESSAGE_LOG_LINES_MAX));
    let text = texts.concat();
    let from = text
        .len()
        .saturating_sub(usize::try_from(MESSAGE_LOG_BYTES_MAX).unwrap_or(2048));
    let from = (from..text.len())
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(text.len());
    Ok(text[from..].to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::pipe::Pipe;

    /// Pods that collect logs may write the folder of logs.
    #[test]
    fn uids_on_disk_are_names_of_folders_whatever_lies_among_the_logs() {
        let folder = tempfile::tempdir().unwrap();
        let config = KubeletConfig::for_data_dir(folder.path().to_owned());
        for name in [
            "a_b_", "a_b_.", "a_b_..", "..", "u", "a_u", "a_b_u", "c_d_u", "a_b_w_u",
        ] {
            std::fs::create_dir_all(config.logs_folder().join(name)).unwrap();
        }
        // They would never be removed, and hold the turns of others for ever.
        std::fs::write(config.logs_folder().join("a_b_file"), "").unwrap();
        std::os::unix::fs::symlink("/", config.logs_folder().join("a_b_link")).unwrap();
        std::fs::create_dir_all(pod_folder(&config, "v")).unwrap();
        let mut uids = uids_on_disk(&config);
        uids.sort();
        assert_eq!(uids, ["u", "u", "v", "w_u"]);
        let mut logs = log_folders_of(&config, "u");
        logs.sort();
        let of = |name: &str| config.logs_folder().join(name);
        assert_eq!(
            logs,
            [of("a_b_u"), of("c_d_u")],
            "and none of another uid that ends alike"
        );
    }

    #[test]
    fn termination_message_is_that_of_a_file_and_waits_for_no_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        std::fs::write(at("log"), "2026-11-30T12:00:00Z stdout F last words\n").unwrap();
        // Docker's runtime has links in the place of logs.
        std::os::unix::fs::symlink(at("log"), at("link")).unwrap();
        let message = |path: &str, log: &str| termination_message(&at(path), Some(&at(log)));
        assert_eq!(message("none", "link").as_deref(), Some("last words\n"));
        assert_eq!(message("link", "none"), None, "a container's message is no link");
        let pipe = Pipe::make(&folder.path().join("pipe"));
        let log = at("pipe");
        assert_eq!(
            pipe.not_waited_for(move || termination_message("", Some(&log))),
            None
        );
        let path = at("pipe");
        assert_eq!(
            pipe.not_waited_for(move || termination_message(&path, None)),
            None
        );
    }

    #[test]
    fn hosts_file_that_a_container_has_grown_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let config = KubeletConfig::for_data_dir(folder.path().to_owned());
        let mut pod = Pod::default();
        pod.metadata.uid = Some("u".into());
        pod.metadata.name = Some("p".into());
        pod.spec = Some(k8s_openapi::api::core::v1::PodSpec::default());
        std::fs::create_dir_all(pod_folder(&config, "u")).unwrap();
        let write = || write_hosts(&config, &pod, &Container::default(), &["10.0.0.1".into()]);
        let path = write().unwrap().expect("it has one");
        let text = std::fs::read(&path).unwrap();
        // More than this machine has memory for: reading it could not succeed.
        let huge = 1 << 42;
        std::fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(huge)
            .unwrap();
        write().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), text, "written anew");
    }
}
