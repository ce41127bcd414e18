//! Invariants of a node, and its converged state.

use crate::pods::PURPOSE;
use crate::simulated_node::World;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use node_cri_model::RuntimeEvent;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const UID: &str = "io.kubernetes.pod.uid";
const POD_NAME: &str = "io.kubernetes.pod.name";
const CONTAINER: &str = "io.kubernetes.container.name";

/// Uid of a pod and name of its container; of a sandbox an empty name.
type ContainerKey = (String, String);

/// Everything that has happened to containers so far.
#[derive(Debug, Default)]
pub(crate) struct Moments {
    seen: usize,
    keys: BTreeMap<String, ContainerKey>,
    running: BTreeMap<ContainerKey, String>,
    created: BTreeMap<ContainerKey, i32>,
    started: BTreeMap<ContainerKey, Vec<String>>,
    exits: BTreeMap<String, i32>,
    lines: Vec<String>,
}

fn key(labels: &HashMap<String, String>) -> ContainerKey {
    let label = |name: &str| labels.get(name).cloned().unwrap_or_default();
    (label(UID), label(CONTAINER))
}

impl Moments {
    /// Checks the invariants on the runtime's events since the last call.
    pub(crate) fn check_invariants(&mut self, world: &World) {
        let happenings = world.containerd.happenings();
        let at = world.runtime.monotonic().as_secs_f64();
        for happening in &happenings[self.seen..] {
            self.lines.push(line(at, happening, &self.keys));
            if let Err(broken) = self.take(happening) {
                panic!("{broken}\n{}", self.history());
            }
        }
        self.seen = happenings.len();
    }

    /// No two containers of one name in one pod run at once, nor two sandboxes of one pod; no container starts twice.
    fn take(&mut self, happening: &RuntimeEvent) -> Result<(), String> {
        match happening {
            RuntimeEvent::Created(id, labels) => {
                *self.created.entry(key(labels)).or_default() += 1;
                self.keys.insert(id.clone(), key(labels));
            }
            RuntimeEvent::Started(id, labels) | RuntimeEvent::SandboxStarted(id, labels) => {
                let key = key(labels);
                self.keys.insert(id.clone(), key.clone());
                if let Some(other) = self.running.insert(key.clone(), id.clone()) {
                    return Err(format!("{key:?} runs twice: {other} and {id}"));
                }
                let started = self.started.entry(key).or_default();
                if started.contains(id) {
                    return Err(format!("{id} is started twice"));
                }
                started.push(id.clone());
            }
            RuntimeEvent::Ended(id, code) => {
                self.exits.insert(id.clone(), *code);
                self.running.retain(|_, running| running != id);
            }
            // One that never ran is no run of its container.
            RuntimeEvent::Removed(id) if !self.exits.contains_key(id) => {
                let key = self.keys.get(id).cloned().unwrap_or_default();
                self.created.entry(key).and_modify(|count| *count -= 1);
            }
            RuntimeEvent::Removed(_) => {}
        }
        Ok(())
    }

    pub(crate) fn history(&self) -> String {
        self.lines.join("\n")
    }

    fn exit_of(&self, key: &ContainerKey) -> Option<i32> {
        self.exits.get(self.started.get(key)?.last()?).copied()
    }
}

fn line(at: f64, happening: &RuntimeEvent, keys: &BTreeMap<String, ContainerKey>) -> String {
    let short = |id: &str| id[..6].to_owned();
    match happening {
        RuntimeEvent::SandboxStarted(id, labels) => {
            format!("{at:8.2} sandbox {} of {}", short(id), labels[POD_NAME])
        }
        RuntimeEvent::Created(id, labels) => {
            format!(
                "{at:8.2} created {} of {}/{}",
                short(id),
                labels[POD_NAME],
                labels[CONTAINER]
            )
        }
        RuntimeEvent::Started(id, labels) => {
            format!(
                "{at:8.2} started {} of {}/{}",
                short(id),
                labels[POD_NAME],
                labels[CONTAINER]
            )
        }
        RuntimeEvent::Ended(id, code) => {
            format!("{at:8.2} ended {} {:?} with {code}", short(id), keys.get(id))
        }
        RuntimeEvent::Removed(id) => format!("{at:8.2} removed {} {:?}", short(id), keys.get(id)),
    }
}

fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap()
}

fn purpose(pod: &Pod) -> &str {
    &pod.metadata.labels.as_ref().unwrap()[PURPOSE]
}

/// Checks that the wanted pods run, and that nothing else is left.
pub(crate) async fn check_converged(world: &World, moments: &Moments) -> Result<(), String> {
    let pods = world.pods().await;
    let deleted = pods.iter().find(|pod| pod.metadata.deletion_timestamp.is_some());
    if let Some(pod) = deleted {
        return Err(format!("{:?} is not gone", pod.metadata.name));
    }
    for pod in &pods {
        as_asked(world, moments, pod).map_err(|why| {
            let status = serde_json::to_string(&pod.status).unwrap_or_default();
            format!(
                "{} ({}): {why}\n{status}",
                pod.metadata.name.clone().unwrap(),
                purpose(pod)
            )
        })?;
    }
    nothing_left(world, &pods)
}

fn as_asked(world: &World, moments: &Moments, pod: &Pod) -> Result<(), String> {
    let expected = match purpose(pod) {
        "completes" | "fails" => once(moments, pod),
        "retries" => "Succeeded",
        "misses" => return Ok(()),
        _ => "Running",
    };
    if phase(pod) != expected {
        return Err(format!("is {} and not {expected}", phase(pod)));
    }
    let spec = pod.spec.as_ref().unwrap();
    if expected == "Running" {
        let statuses = pod
            .status
            .as_ref()
            .unwrap()
            .container_statuses
            .clone()
            .unwrap_or_default();
        if statuses.len() != spec.containers.len() {
            return Err("has no status of some container".to_owned());
        }
        statuses
            .iter()
            .try_for_each(|status| runs_truly(world, moments, pod, status))?;
    }
    Ok(())
}

/// The phase of a pod whose containers run once.
fn once(moments: &Moments, pod: &Pod) -> &'static str {
    let containers = &pod.spec.as_ref().unwrap().containers;
    let well = |name: &str| moments.exit_of(&(uid(pod), name.to_owned())) == Some(0);
    match containers.iter().all(|container| well(&container.name)) {
        true => "Succeeded",
        false => "Failed",
    }
}

/// The status of a container that is to run says what is so.
fn runs_truly(world: &World, moments: &Moments, pod: &Pod, status: &ContainerStatus) -> Result<(), String> {
    let key = (uid(pod), status.name.clone());
    let Some(id) = moments.running.get(&key) else {
        return Err(format!("{} does not run", status.name));
    };
    if status.container_id.as_deref() != Some(&format!("containerd://{id}")) || !status.ready {
        return Err(format!("of {} the status is another's than of {id}", status.name));
    }
    let made = moments.created.get(&key).copied().unwrap_or(0);
    if status.restart_count != made - 1 {
        return Err(format!(
            "{} was made {made} times and restarted {}",
            status.name, status.restart_count
        ));
    }
    let log = |id: &str| {
        let found = world
            .containerd
            .containers()
            .into_iter()
            .find(|found| found.id == id);
        found.map(|found| found.annotations["io.kubernetes.container.restartCount"].clone())
    };
    match log(id) {
        Some(count) if count == status.restart_count.to_string() => Ok(()),
        other => Err(format!("its log is counted {other:?}")),
    }
}

/// Sandboxes, containers, mounts, groups and files are those of pods that are there, and ended pods run nothing.
fn nothing_left(world: &World, pods: &[Pod]) -> Result<(), String> {
    let uids: BTreeSet<String> = pods.iter().map(uid).collect();
    let runs: BTreeSet<String> = pods
        .iter()
        .filter(|pod| !matches!(phase(pod), "Succeeded" | "Failed"))
        .map(uid)
        .collect();
    for sandbox in world.containerd.sandboxes() {
        let of = key(&sandbox.labels).0;
        if !uids.contains(&of) || (sandbox.runs && !runs.contains(&of)) {
            return Err(format!("sandbox {} of {of} is left", sandbox.id));
        }
    }
    for container in world.containerd.containers() {
        let of = key(&container.labels).0;
        if !uids.contains(&of) || (container.runs && !runs.contains(&of)) {
            return Err(format!("container {} of {of} is left", container.id));
        }
    }
    let of_a_pod = |text: &str, uids: &BTreeSet<String>| uids.iter().any(|uid| text.contains(uid.as_str()));
    for point in world.mounts.points() {
        let point = point.display().to_string();
        if !of_a_pod(&point, &runs) {
            return Err(format!("{point} is still mounted"));
        }
    }
    for group in world.groups.all() {
        if group.contains("/pod") && !of_a_pod(&group, &runs) {
            return Err(format!("group {group} is left"));
        }
    }
    host_ports_left(world, pods)?;
    files_left(world, &uids)
}

/// Ports of the node lead to the pods that request them, where these are, and nowhere else.
fn host_ports_left(world: &World, pods: &[Pod]) -> Result<(), String> {
    let running = pods.iter().filter(|pod| phase(pod) == "Running");
    let wanted = running.flat_map(|pod| {
        let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let ports = containers.flat_map(|container| container.ports.iter().flatten());
        ports.map(move |port| (port.host_port.unwrap_or_default(), ip.clone().unwrap_or_default()))
    });
    let wanted: BTreeMap<i32, String> = wanted.collect();
    let entries = world.host_ports.entries().into_iter();
    let present: BTreeMap<i32, String> = entries
        .map(|(key, target)| (i32::from(key.port), target.address.to_string()))
        .collect();
    match present == wanted {
        true => Ok(()),
        false => Err(format!("host ports are {present:?} and not {wanted:?}")),
    }
}

fn files_left(world: &World, uids: &BTreeSet<String>) -> Result<(), String> {
    let agent = world.data_dir().join("agent");
    for folder in [agent.join("pods"), agent.join("logs/pods")] {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            let uid = name.rsplit('_').next().unwrap_or_default().to_owned();
            if !uids.contains(&uid) {
                return Err(format!("{name} is left in {}", folder.display()));
            }
        }
    }
    Ok(())
}
