//! Transcript of a run of the suite: the client, the folder, and the lines so far, with ids replaced by names.

use machinery_runtime::Runtime;
use node_cri::{CriClient, CriError, v1};
use node_cri_model::Program;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) const IMAGE: &str = "knarr.test/tools:1";
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(20);
/// Longest duration of a step, in the time of its runtime.
const PATIENCE: Duration = Duration::from_secs(60);

/// Daemon under test, so that it can be killed.
pub(crate) trait Daemon {
    /// `kill -9`, and a new start.
    fn restart(&self);
}

pub(crate) struct Transcript {
    pub(crate) runtime: Runtime,
    pub(crate) cri: CriClient,
    pub(crate) folder: PathBuf,
    cgroup_parent: String,
    ids: Vec<(String, String)>,
    lines: Vec<String>,
}

impl Transcript {
    pub(crate) fn new(runtime: Runtime, cri: CriClient, folder: &Path, cgroup_parent: &str) -> Self {
        Self {
            runtime,
            cri,
            folder: folder.to_owned(),
            cgroup_parent: cgroup_parent.to_owned(),
            ids: Vec::new(),
            lines: Vec::new(),
        }
    }

    pub(crate) fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }

    /// Appends a line, with ids and folders replaced by names.
    pub(crate) fn line(&mut self, line: &str) {
        let mut line = line
            .replace(&self.folder.display().to_string(), "FOLDER")
            .replace('\n', " ");
        for (id, name) in &self.ids {
            line = line.replace(id, name);
        }
        let line = without_ids(&line);
        self.lines.push(line);
    }

    /// Appends the outcome of a call.
    pub(crate) fn outcome<T>(&mut self, what: &str, outcome: &Result<T, CriError>) {
        match outcome {
            Ok(_) => self.line(&format!("{what}: done")),
            Err(error) => {
                let code = error.code().map_or("none".to_owned(), |code| format!("{code:?}"));
                self.line(&format!("{what}: {code}: {}", error.message()));
            }
        }
    }

    pub(crate) fn sandbox_config(&self, name: &str) -> v1::PodSandboxConfig {
        let logs = self.folder.join("logs").join(name);
        std::fs::create_dir_all(&logs).unwrap();
        let options = v1::NamespaceOption {
            network: v1::NamespaceMode::Node as i32,
            ..v1::NamespaceOption::default()
        };
        v1::PodSandboxConfig {
            metadata: Some(v1::PodSandboxMetadata {
                name: name.to_owned(),
                namespace: "likeness".to_owned(),
                uid: format!("{name}-uid"),
                attempt: 0,
            }),
            log_directory: logs.display().to_string(),
            labels: [("pod".to_owned(), name.to_owned())].into(),
            annotations: [("note".to_owned(), "kept".to_owned())].into(),
            linux: Some(v1::LinuxPodSandboxConfig {
                cgroup_parent: format!("{}/{name}", self.cgroup_parent),
                security_context: Some(v1::LinuxSandboxSecurityContext {
                    namespace_options: Some(options),
                    ..v1::LinuxSandboxSecurityContext::default()
                }),
                ..v1::LinuxPodSandboxConfig::default()
            }),
            ..v1::PodSandboxConfig::default()
        }
    }

    /// Makes a sandbox.
    pub(crate) async fn sandbox(&mut self, name: &str) -> Result<String, CriError> {
        let config = self.sandbox_config(name);
        let id = self.run_sandbox(config).await?;
        self.ids.push((id.clone(), format!("[{name}]")));
        Ok(id)
    }

    pub(crate) async fn run_sandbox(&self, config: v1::PodSandboxConfig) -> Result<String, CriError> {
        let request = v1::RunPodSandboxRequest {
            config: Some(config),
            runtime_handler: String::new(),
        };
        Ok(self.cri.run_pod_sandbox(request).await?.pod_sandbox_id)
    }

    pub(crate) fn container_config(&self, name: &str, program: &Program) -> v1::ContainerConfig {
        let command = program.command();
        v1::ContainerConfig {
            metadata: Some(v1::ContainerMetadata {
                name: name.to_owned(),
                attempt: 0,
            }),
            image: Some(v1::ImageSpec {
                image: IMAGE.to_owned(),
                ..v1::ImageSpec::default()
            }),
            command,
            labels: [("container".to_owned(), name.to_owned())].into(),
            annotations: [("restarts".to_owned(), "7".to_owned())].into(),
            log_path: format!("{name}.log"),
            ..v1::ContainerConfig::default()
        }
    }

    /// Makes a container in a sandbox.
    pub(crate) async fn container(
        &mut self,
        (sandbox, pod): (&str, &str),
        config: v1::ContainerConfig,
    ) -> Result<String, CriError> {
        let name = config.metadata.clone().unwrap_or_default().name;
        let request = v1::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(self.sandbox_config(pod)),
        };
        let id = self.cri.create_container(request).await?.container_id;
        self.ids.push((id.clone(), format!("[{pod}/{name}]")));
        Ok(id)
    }

    pub(crate) async fn start(&self, id: &str) -> Result<(), CriError> {
        let request = v1::StartContainerRequest {
            container_id: id.to_owned(),
        };
        self.cri.start_container(request).await.map(drop)
    }

    pub(crate) async fn stop_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        self.cri.stop_pod_sandbox(request).await.map(drop)
    }

    pub(crate) async fn remove_sandbox(&self, id: &str) -> Result<(), CriError> {
        let request = v1::RemovePodSandboxRequest {
            pod_sandbox_id: id.to_owned(),
        };
        self.cri.remove_pod_sandbox(request).await.map(drop)
    }

    pub(crate) async fn remove(&self, id: &str) -> Result<(), CriError> {
        let request = v1::RemoveContainerRequest {
            container_id: id.to_owned(),
        };
        self.cri.remove_container(request).await.map(drop)
    }

    pub(crate) async fn status(&self, id: &str) -> Result<v1::ContainerStatus, CriError> {
        let request = v1::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose: false,
        };
        Ok(self
            .cri
            .container_status(request)
            .await?
            .status
            .unwrap_or_default())
    }

    pub(crate) async fn sandbox_status(&self, id: &str) -> Result<v1::PodSandboxStatus, CriError> {
        let request = v1::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: false,
        };
        Ok(self
            .cri
            .pod_sandbox_status(request)
            .await?
            .status
            .unwrap_or_default())
    }

    /// Writes how a container is.
    pub(crate) async fn tell_container(&mut self, id: &str) {
        match self.status(id).await {
            Ok(status) => {
                let state = v1::ContainerState::try_from(status.state).unwrap();
                let line = format!(
                    "{id} is {}, exit {} {:?} {:?}, created {}, started {}, finished {}, of {}, log {}, {:?} {:?}",
                    state.as_str_name(),
                    status.exit_code,
                    status.reason,
                    status.message,
                    status.created_at > 0,
                    status.started_at > 0,
                    status.finished_at > 0,
                    status.image.unwrap_or_default().image,
                    status.log_path,
                    status.labels,
                    status.annotations,
                );
                self.line(&line);
            }
            Err(error) => self.outcome::<()>("asking for a container", &Err(error)),
        }
    }

    /// Waits until a container has ended.
    pub(crate) async fn until_exited(&self, id: &str) {
        let exited = || async {
            let status = self.status(id).await;
            status.is_ok_and(|status| status.state == v1::ContainerState::ContainerExited as i32)
        };
        self.until(exited).await;
    }

    /// Waits until something is so.
    pub(crate) async fn until<F: Future<Output = bool>>(&self, is_so: impl Fn() -> F) {
        let deadline = self.runtime.monotonic() + PATIENCE;
        while !is_so().await {
            assert!(
                self.runtime.monotonic() < deadline,
                "waited too long after\n{}",
                self.text()
            );
            self.runtime.sleep(LOOK_AGAIN_AFTER).await;
        }
    }
}

/// Ids that only the runtime knows, by one name.
fn without_ids(line: &str) -> String {
    let is_id = |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let words = line.split('"');
    let words: Vec<&str> = words
        .map(|word| if is_id(word) { "[id]" } else { word })
        .collect();
    words.join("\"")
}
