//! Keeping logs small: a file that has grown too large is renamed, and the runtime opens a new one.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use machinery_runtime::Runtime;
use node_cri::{CriClient, CriError, v1};

use super::generations;
use crate::config::KubeletConfig;
use crate::containers::files;
use crate::pods::observed::{annotation, label};

/// Upstream's interval.
const LOOK_AFTER: Duration = Duration::from_secs(10);

/// A log could not be rotated.
#[derive(Debug, thiserror::Error)]
enum RotationError {
    #[error("renaming or removing a log")]
    Files(#[from] std::io::Error),
    #[error(transparent)]
    Runtime(#[from] CriError),
    #[error("the agent ends")]
    Ended(#[from] machinery_runtime::TaskEnded),
}

/// Rotates the container logs that exceed `container_log_max_bytes`, for ever.
pub(crate) async fn rotate_logs(runtime: Runtime, cri: CriClient, config: Arc<KubeletConfig>) {
    let mut rotation = Rotation {
        runtime,
        cri,
        config,
        unwritten: HashMap::new(),
    };
    loop {
        rotation.runtime.sleep(LOOK_AFTER).await;
        if let Err(error) = rotation.check_sizes().await {
            tracing::debug!(error = %error, "checking container logs failed");
        }
    }
}

struct Rotation {
    runtime: Runtime,
    cri: CriClient,
    config: Arc<KubeletConfig>,
    /// Large logs without a writer, with their sizes: only one that grows is checked again.
    unwritten: HashMap<PathBuf, u64>,
}

impl Rotation {
    async fn check_sizes(&mut self) -> Result<(), RotationError> {
        let config = self.config.clone();
        let large = move || large_logs(&config.logs_folder(), config.container_log_max_bytes);
        let large = self.runtime.blocking(large).await?;
        self.unwritten.retain(|path, _| large.contains_key(path));
        let grown: Vec<(PathBuf, u64)> = large
            .into_iter()
            .filter(|(path, size)| self.unwritten.get(path) != Some(size))
            .collect();
        if grown.is_empty() {
            return Ok(());
        }
        let writers = self.writers().await?;
        for (log, size) in grown {
            let Some(id) = writers.get(&log) else {
                self.unwritten.insert(log, size);
                continue;
            };
            if let Err(error) = self.rotate(&log, id).await {
                tracing::warn!(log = %log.display(), error = %error, "log not rotated");
            }
        }
        Ok(())
    }

    /// The running containers by the log that each writes.
    async fn writers(&self) -> Result<HashMap<PathBuf, String>, CriError> {
        let filter = v1::ContainerFilter {
            state: Some(v1::ContainerStateValue {
                state: v1::ContainerState::ContainerRunning as i32,
            }),
            ..v1::ContainerFilter::default()
        };
        let request = v1::ListContainersRequest { filter: Some(filter) };
        let running = self.cri.list_containers(request).await?.containers;
        let found = running
            .into_iter()
            .filter_map(|container| Some((log_of(&self.config, &container)?, container.id)));
        Ok(found.collect())
    }

    async fn rotate(&self, log: &Path, id: &str) -> Result<(), RotationError> {
        let stamp = self.runtime.now().strftime("%Y%m%d-%H%M%S").to_string();
        let old = PathBuf::from(format!("{}.{stamp}", log.display()));
        let (from, to, files_max) = (log.to_owned(), old.clone(), self.config.container_log_max_files);
        let begin = move || {
            generations::make_room(&from, files_max)?;
            std::fs::rename(from, to)
        };
        self.runtime.blocking(begin).await??;
        let request = v1::ReopenContainerLogRequest {
            container_id: id.to_owned(),
        };
        let Err(error) = self.cri.reopen_container_log(request).await else {
            return Ok(());
        };
        let log = log.to_owned();
        // It is still written: under a name that is read, and rotated once it can be. Unless the runtime has opened a
        // new one and only its answer was lost: that one must stay.
        let undo = move || match log.try_exists()? {
            true => Ok(()),
            false => std::fs::rename(&old, &log),
        };
        self.runtime.blocking(undo).await??;
        Err(error.into())
    }
}

/// The log that one of our containers writes.
fn log_of(config: &KubeletConfig, container: &v1::Container) -> Option<PathBuf> {
    let label = |name: &str| container.labels.get(name);
    let pod = format!(
        "{}_{}_{}",
        label(label::POD_NAMESPACE)?,
        label(label::POD_NAME)?,
        label(label::POD_UID)?
    );
    let restarts = container
        .annotations
        .get(annotation::RESTART_COUNT)?
        .parse()
        .ok()?;
    let log = files::log_path(label(label::CONTAINER_NAME)?, restarts);
    Some(config.logs_folder().join(pod).join(log))
}

/// Current logs beyond the size, and their sizes: `<pod>/<container>/<number>.log`.
fn large_logs(root: &Path, limit: u64) -> HashMap<PathBuf, u64> {
    let entries = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let files = entries(root.to_path_buf())
        .flat_map(|pod| entries(pod.path()))
        .flat_map(|container| entries(container.path()))
        .filter(|file| {
            file.path()
                .extension()
                .is_some_and(|extension| extension == "log")
        });
    let sized = files.filter_map(|file| Some((file.path(), file.metadata().ok()?.len())));
    sized.filter(|(_, size)| *size > limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::generations::rotated;

    #[test]
    fn log_of_a_container_is_known_without_asking_for_it() {
        let config = KubeletConfig::for_data_dir("/data".into());
        let labels = [
            (label::POD_NAMESPACE, "n"),
            (label::POD_NAME, "p"),
            (label::POD_UID, "u"),
            (label::CONTAINER_NAME, "c"),
        ];
        let mut container = v1::Container {
            labels: labels
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..v1::Container::default()
        };
        assert_eq!(log_of(&config, &container), None, "one of somebody else's");
        container
            .annotations
            .insert(annotation::RESTART_COUNT.to_owned(), "2".to_owned());
        let expected = PathBuf::from("/data/logs/pods/n_p_u/c/2.log");
        assert_eq!(log_of(&config, &container), Some(expected));
    }

    fn rotation<F, A>(folder: &Path, answer: F) -> Rotation
    where
        F: FnMut(http::Request<tonic::body::Body>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Result<http::Response<tonic::body::Body>, tonic::Status>> + Send + 'static,
    {
        let transport = node_cri::Transport::new(tower::service_fn(answer));
        Rotation {
            runtime: Runtime::real(),
            cri: CriClient::connect_through(transport, PathBuf::new()),
            config: Arc::new(KubeletConfig::for_data_dir(folder.to_owned())),
            unwritten: HashMap::new(),
        }
    }

    #[tokio::test]
    async fn logs_that_nobody_writes_are_asked_about_once() {
        let lookups = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let count = lookups.clone();
        let no_container = move |_: http::Request<tonic::body::Body>| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            async { Ok::<_, tonic::Status>(crate::cri_answers::empty_message()) }
        };
        let folder = tempfile::tempdir().unwrap();
        let mut rotation = rotation(folder.path(), no_container);
        let log = rotation.config.logs_folder().join("n_p_u/c/0.log");
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        let limit = rotation.config.container_log_max_bytes;
        for (bytes, questions) in [(limit, 0), (limit + 1, 1), (limit + 1, 1), (limit + 2, 2), (1, 2)] {
            std::fs::File::create(&log).unwrap().set_len(bytes).unwrap();
            rotation.check_sizes().await.unwrap();
            assert_eq!(
                lookups.load(std::sync::atomic::Ordering::Relaxed),
                questions,
                "{bytes}"
            );
        }
        assert!(rotation.unwritten.is_empty(), "small ones are forgotten");
    }

    #[tokio::test]
    async fn log_that_the_runtime_does_not_reopen_keeps_its_name() {
        let refused = |_: http::Request<tonic::body::Body>| async move {
            let answer = http::Response::builder().header("grpc-status", "2");
            let answer = answer.header("content-type", "application/grpc");
            Ok::<_, tonic::Status>(answer.body(tonic::body::Body::empty()).unwrap())
        };
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("0.log");
        std::fs::write(&log, "written").unwrap();
        rotation(folder.path(), refused)
            .rotate(&log, "id")
            .await
            .unwrap_err();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "written");
        assert!(rotated(&log).unwrap().is_empty());
    }

    #[tokio::test]
    async fn log_that_the_runtime_reopened_without_saying_so_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("0.log");
        std::fs::write(&log, "written").unwrap();
        let new = log.clone();
        let lost = move |_: http::Request<tonic::body::Body>| {
            std::fs::write(&new, "written since").unwrap();
            async { Err::<http::Response<tonic::body::Body>, _>(tonic::Status::unavailable("lost")) }
        };
        rotation(folder.path(), lost)
            .rotate(&log, "id")
            .await
            .unwrap_err();
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "written since");
        let old = rotated(&log).unwrap();
        assert_eq!(std::fs::read_to_string(&old[0]).unwrap(), "written");
    }

    #[test]
    fn log_is_removed_with_all_its_generations() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("0.log");
        for name in ["0.log", "0.log.1", "0.log.2.gz", "1.log"] {
            std::fs::write(folder.path().join(name), name).unwrap();
        }
        files::remove_log(&log);
        assert!(rotated(&log).unwrap().is_empty());
        assert!(!log.try_exists().unwrap());
        assert!(folder.path().join("1.log").try_exists().unwrap());
    }
}
