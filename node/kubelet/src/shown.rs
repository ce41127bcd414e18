//! The folders of plugins, pods and logs where stock programs look for them, `/var/lib/kubelet/…` and `/var/log/…`: mounted there in
//! the mount namespace that pods are started from, so that several agents of one machine each show their own.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use node_sys::mount::Mounter;

use crate::config::KubeletConfig;

/// Shows the folders, where the configuration says so. Pods that look for them elsewhere go on. Blocks.
pub(crate) fn show(config: &KubeletConfig, mounter: &dyn Mounter) {
    let plugins = [
        config.device_plugins_folder(),
        config.pod_resources_folder(),
        config.plugins_registry_folder(),
        config.plugins_folder(),
        config.pods_folder(),
    ];
    let logs = [config.logs_folder(), config.log_links_folder()];
    let shown = plugins.map(|folder| (folder, &config.plugins_shown_in));
    for (folder, shown_in) in shown
        .into_iter()
        .chain(logs.map(|folder| (folder, &config.logs_shown_in)))
    {
        let Some(shown_in) = shown_in else { continue };
        let at = shown_in.join(folder.file_name().unwrap_or_default());
        if let Err(error) = show_folder(&folder, &at, mounter) {
            tracing::error!(%error, folder = %at.display(), "programs in pods do not find the agent's folder");
        }
    }
}

fn show_folder(folder: &Path, at: &PathBuf, mounter: &dyn Mounter) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::create_dir_all(at)?;
    if is_same(folder, at)? {
        // The agent before this one has mounted it, or the machine's administrator has.
        return Ok(());
    }
    mounter.bind(folder, at).map_err(io::Error::other)
}

fn is_same(one: &Path, other: &Path) -> io::Result<bool> {
    let (one, other) = (std::fs::metadata(one)?, std::fs::metadata(other)?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}
