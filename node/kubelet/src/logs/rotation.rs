//! Keeping logs small: a file that has grown too large is renamed, and the runtime opens a new one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use machinery_runtime::Runtime;
use node_cri::{CriClient, v1};

use crate::config::KubeletConfig;

/// Upstream's interval.
const LOOK_AFTER: Duration = Duration::from_secs(10);

/// Rotates for ever.
pub async fn keep_small(runtime: Runtime, cri: CriClient, config: Arc<KubeletConfig>) {
    loop {
        runtime.sleep(LOOK_AFTER).await;
        for log in large_logs(&config.logs_folder(), config.container_log_max_bytes) {
            if let Err(error) = rotate(&runtime, &cri, &config, &log).await {
                tracing::debug!(log = %log.display(), error = %error, "log not rotated");
            }
        }
    }
}

/// Current logs beyond the size: `<pod>/<container>/<number>.log`.
fn large_logs(root: &Path, limit: u64) -> Vec<PathBuf> {
    let folders = |path: PathBuf| {
        std::fs::read_dir(path)
            .into_iter()
            .flatten()
            .filter_map(Result::ok)
    };
    folders(root.to_path_buf())
        .flat_map(|pod| folders(pod.path()))
        .flat_map(|container| folders(container.path()))
        .filter(|file| {
            file.path()
                .extension()
                .is_some_and(|extension| extension == "log")
        })
        .filter(|file| file.metadata().is_ok_and(|metadata| metadata.len() > limit))
        .map(|file| file.path())
        .collect()
}

async fn rotate(
    runtime: &Runtime,
    cri: &CriClient,
    config: &KubeletConfig,
    log: &Path,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let Some(id) = writer(cri, log).await? else {
        return Ok(());
    };
    let stamp = runtime.now().strftime("%Y%m%d-%H%M%S").to_string();
    let old = PathBuf::from(format!("{}.{stamp}", log.display()));
    std::fs::rename(log, &old)?;
    cri.reopen_container_log(v1::ReopenContainerLogRequest { container_id: id })
        .await?;
    let mut kept = rotated(log)?;
    kept.sort();
    let surplus = kept
        .len()
        .saturating_sub(config.container_log_max_files.saturating_sub(1));
    kept.iter().take(surplus).try_for_each(std::fs::remove_file)?;
    Ok(())
}

/// The running container that writes a log.
async fn writer(cri: &CriClient, log: &Path) -> Result<Option<String>, node_cri::CriError> {
    let state = Some(v1::ContainerStateValue {
        state: v1::ContainerState::ContainerRunning as i32,
    });
    let filter = v1::ContainerFilter {
        state,
        ..v1::ContainerFilter::default()
    };
    let list = cri
        .list_containers(v1::ListContainersRequest { filter: Some(filter) })
        .await?;
    for container in list.containers {
        let request = v1::ContainerStatusRequest {
            container_id: container.id.clone(),
            verbose: false,
        };
        let status = cri.container_status(request).await?.status.unwrap_or_default();
        if Path::new(&status.log_path) == log {
            return Ok(Some(container.id));
        }
    }
    Ok(None)
}

fn rotated(log: &Path) -> std::io::Result<Vec<PathBuf>> {
    let prefix = format!("{}.", log.file_name().unwrap_or_default().to_string_lossy());
    let folder = log.parent().unwrap_or(Path::new("/"));
    let entries = std::fs::read_dir(folder)?.filter_map(Result::ok);
    Ok(entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path())
        .collect())
}
