//! The state as a test looks at it.

use crate::Machine;
use std::collections::HashMap;

/// A container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenContainer {
    /// Its id.
    pub id: String,
    /// Its sandbox's id.
    pub sandbox_id: String,
    /// Labels.
    pub labels: HashMap<String, String>,
    /// Annotations.
    pub annotations: HashMap<String, String>,
    /// Its environment.
    pub environment: HashMap<String, String>,
    /// Paths on the machine of its device files.
    pub devices: Vec<String>,
    /// True while its process runs, whatever the daemon knows.
    pub runs: bool,
}

/// A sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenSandbox {
    /// Its id.
    pub id: String,
    /// Labels.
    pub labels: HashMap<String, String>,
    /// True while its process runs, whatever the daemon knows.
    pub runs: bool,
}

/// Something that happened, to a container unless it says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuntimeEvent {
    /// A sandbox's process started: id and labels.
    SandboxStarted(String, HashMap<String, String>),
    /// Made: id and labels.
    Created(String, HashMap<String, String>),
    /// Its process started: id and labels.
    Started(String, HashMap<String, String>),
    /// Its process ended, or a sandbox's: id and exit code.
    Ended(String, i32),
    /// Removed, or a sandbox: id.
    Removed(String),
}

pub(crate) fn containers(machine: &Machine) -> Vec<SeenContainer> {
    let store = machine.store.lock();
    let mut found: Vec<_> = store.containers.values().collect();
    found.sort_by_key(|container| container.created_at);
    let seen = found.into_iter().map(|container| SeenContainer {
        id: container.id.clone(),
        sandbox_id: container.sandbox_id.clone(),
        labels: container.config.labels.clone(),
        annotations: container.config.annotations.clone(),
        environment: (container.config.envs.iter())
            .map(|variable| (variable.key.clone(), variable.value.clone()))
            .collect(),
        devices: (container.config.devices.iter())
            .map(|device| device.host_path.clone())
            .collect(),
        runs: container.process.as_ref().is_some_and(|process| process.runs()),
    });
    seen.collect()
}

pub(crate) fn sandboxes(machine: &Machine) -> Vec<SeenSandbox> {
    let store = machine.store.lock();
    let mut found: Vec<_> = store.sandboxes.values().collect();
    found.sort_by_key(|sandbox| sandbox.created_at);
    let seen = found.into_iter().map(|sandbox| SeenSandbox {
        id: sandbox.id.clone(),
        labels: sandbox.config.labels.clone(),
        runs: sandbox.process.as_ref().is_some_and(|process| process.runs()),
    });
    seen.collect()
}
