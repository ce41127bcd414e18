//! The daemon's state: what it would find on its disk, and what it would hold in memory beside.

use crate::process::Process;
use node_cri::v1;
use std::collections::BTreeMap;

/// Phase of a container or a sandbox, as the daemon knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Made, not started.
    Created,
    /// Its process runs.
    Running,
    /// Its process has ended.
    Exited,
    /// A daemon died while making it.
    Unknown,
}

#[derive(Debug)]
pub(crate) struct Sandbox {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) config: v1::PodSandboxConfig,
    pub(crate) runtime_handler: String,
    pub(crate) created_at: i64,
    pub(crate) ip: String,
    pub(crate) phase: Phase,
    /// True once it is visible to calls.
    pub(crate) complete: bool,
    pub(crate) process: Option<Process>,
}

#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) sandbox_id: String,
    pub(crate) config: v1::ContainerConfig,
    pub(crate) image_ref: String,
    /// Empty without a log.
    pub(crate) log_path: String,
    pub(crate) created_at: i64,
    pub(crate) started_at: i64,
    pub(crate) finished_at: i64,
    pub(crate) exit_code: i32,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) phase: Phase,
    pub(crate) complete: bool,
    pub(crate) starting: bool,
    pub(crate) removing: bool,
    pub(crate) process: Option<Process>,
}

/// Everything but the processes' own timers.
#[derive(Debug, Default)]
pub(crate) struct Store {
    pub(crate) sandboxes: BTreeMap<String, Sandbox>,
    pub(crate) containers: BTreeMap<String, Container>,
    /// Names in use, and by which id.
    pub(crate) names: BTreeMap<String, String>,
    /// Images that are there: id by name.
    pub(crate) images: BTreeMap<String, String>,
    /// Images that can be pulled: id by name.
    pub(crate) registry: BTreeMap<String, String>,
    addresses: u32,
}

impl Store {
    pub(crate) fn add_image(&mut self, name: &str, id: &str) {
        self.images.insert(name.to_owned(), id.to_owned());
    }

    /// The id of an image by its name or id.
    pub(crate) fn image(&self, name: &str) -> Option<String> {
        let by_name = self.images.get(name);
        let by_id = || self.images.values().find(|id| format!("sha256:{id}") == name);
        let id = by_name.or_else(by_id)?;
        Some(format!("sha256:{id}"))
    }

    /// The name of an image that is there; where it is not, its id.
    pub(crate) fn name_of(&self, image_ref: &str) -> String {
        let named = self
            .images
            .iter()
            .find(|(_, id)| format!("sha256:{id}") == image_ref);
        named.map_or_else(|| image_ref.to_owned(), |(name, _)| name.clone())
    }

    /// Takes a name for an id; the holder where it is taken.
    pub(crate) fn reserve(&mut self, name: &str, id: &str) -> Result<(), String> {
        match self.names.get(name) {
            Some(holder) if holder != id => Err(holder.clone()),
            _ => {
                self.names.insert(name.to_owned(), id.to_owned());
                Ok(())
            }
        }
    }

    pub(crate) fn next_address(&mut self) -> String {
        self.addresses += 1;
        format!("10.88.{}.{}", self.addresses / 250, self.addresses % 250 + 2)
    }

    /// The sandbox of this id, or of the only id that begins so.
    pub(crate) fn sandbox(&self, id: &str) -> Option<&Sandbox> {
        let found = self.sandboxes.get(id);
        found.filter(|sandbox| sandbox.complete)
    }

    pub(crate) fn container(&self, id: &str) -> Option<&Container> {
        let found = self.containers.get(id);
        found.filter(|container| container.complete)
    }

    /// The process of a container or of a sandbox.
    pub(crate) fn process(&mut self, id: &str) -> Option<&mut Process> {
        let of_container = self.containers.get_mut(id).map(|found| &mut found.process);
        let of_sandbox = self.sandboxes.get_mut(id).map(|found| &mut found.process);
        of_container.or(of_sandbox)?.as_mut()
    }
}

impl Sandbox {
    /// The group of one of its containers, or of itself.
    pub(crate) fn group(&self, id: &str) -> String {
        let linux = self.config.linux.as_ref();
        let parent = linux.map_or("", |linux| linux.cgroup_parent.as_str());
        format!("{parent}/{id}")
    }

    pub(crate) fn is_on_host(&self) -> bool {
        let context = self
            .config
            .linux
            .as_ref()
            .and_then(|linux| linux.security_context.as_ref());
        let options = context.and_then(|context| context.namespace_options.as_ref());
        options.is_some_and(|options| options.network == v1::NamespaceMode::Node as i32)
    }
}

impl Container {
    pub(crate) fn state(&self) -> v1::ContainerState {
        match self.phase {
            Phase::Created => v1::ContainerState::ContainerCreated,
            Phase::Running => v1::ContainerState::ContainerRunning,
            Phase::Exited => v1::ContainerState::ContainerExited,
            Phase::Unknown => v1::ContainerState::ContainerUnknown,
        }
    }
}
