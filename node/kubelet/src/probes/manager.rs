//! The probe tasks of one pod: kept in step with the containers that run.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod, PodStatus, Probe};
use machinery_runtime::{Runtime, TaskHandle};
use node_cri::{CriClient, v1};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::handler::{Target, execute};
use super::{ProbeKind, ProbeResults, ProbeView};
use crate::api::events::{EventSubject, EventType, NodeEvents};
use crate::metrics::probes::{ProbeLabels, ProbeMetrics};
use crate::pods::observed::ObservedContainer;
use crate::pods::{ContainerKind, all_containers, name, namespace, uid};

/// Time between a probe and one that is requested; as long as upstream's kubelet takes to see a container's start.
const REQUESTED_AFTER: Duration = Duration::from_secs(1);

type Results = Arc<Mutex<HashMap<String, ProbeResults>>>;

/// The probes of one pod.
#[derive(Debug)]
pub(crate) struct ProbeManager {
    runtime: Runtime,
    cri: CriClient,
    events: NodeEvents,
    results: Results,
    /// Wakes the pod's worker.
    wake: Arc<Notify>,
    tasks: BTreeMap<(String, ProbeKind), ProbeTask>,
    metrics: Arc<ProbeMetrics>,
}

/// The task of one probe.
#[derive(Debug)]
struct ProbeTask {
    handle: TaskHandle<()>,
    /// Requests a probe before the period is over.
    requested: Arc<Notify>,
    labels: ProbeLabels,
}

impl ProbeManager {
    /// No probe runs yet.
    pub(crate) fn new(
        runtime: Runtime,
        cri: CriClient,
        events: NodeEvents,
        wake: Arc<Notify>,
        metrics: Arc<ProbeMetrics>,
    ) -> Self {
        Self {
            runtime,
            cri,
            events,
            results: Results::default(),
            wake,
            tasks: BTreeMap::new(),
            metrics,
        }
    }

    /// All results now.
    pub(crate) fn view(&self) -> ProbeView {
        ProbeView::new(self.results.lock().clone())
    }

    /// Starts what is missing for the containers that run, ends what is left of others. The readiness of one that is not ready
    /// is probed soon, and not only at the end of its period (upstream's `UpdatePodStatus`).
    ///
    /// `status` is the pod's last reported one: a container that an earlier agent found started or
    /// ready stays so until its probe says otherwise.
    pub(crate) fn follow<'a>(
        &mut self,
        pod: &Pod,
        pod_ip: &str,
        status: &PodStatus,
        running: impl Iterator<Item = &'a ObservedContainer>,
    ) {
        let mut wanted = BTreeSet::new();
        for found in running {
            let Some(container) = probed(pod, &found.name) else {
                continue;
            };
            self.seed(&found.id, container, status);
            for (kind, probe) in probes(container) {
                wanted.insert((found.id.clone(), kind));
                let key = (found.id.clone(), kind);
                match self.tasks.get(&key) {
                    Some(task) if kind == ProbeKind::Readiness && !self.is_ready(&found.id) => {
                        task.requested.notify_one();
                    }
                    // A probe that has ended failed its container, or saw it start: neither runs again.
                    Some(_) => {}
                    None => {
                        let task = self.task(pod, pod_ip, container, found, kind, probe);
                        self.tasks.insert(key, task);
                    }
                }
            }
        }
        self.keep_tasks(|key| wanted.contains(key));
        let ids: BTreeSet<&String> = wanted.iter().map(|(id, _)| id).collect();
        // After the tasks: one that has just ended would write its result again.
        self.results.lock().retain(|id, _| ids.contains(id));
    }

    /// The pod ends: nothing is started again for a probe any more, but its readiness still decides whether it gets traffic
    /// (upstream's `StopLivenessAndStartup`).
    pub(crate) fn stop_liveness_and_startup(&mut self) {
        self.keep_tasks(|(_, kind)| *kind == ProbeKind::Readiness);
    }

    /// Ends all of them.
    pub(crate) fn stop(&mut self) {
        self.keep_tasks(|_| false);
    }

    /// Ends the others, and their figures but for those of a probe that goes on in a restarted container.
    fn keep_tasks(&mut self, is_kept: impl Fn(&(String, ProbeKind)) -> bool) {
        let (kept, ended): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.tasks)
            .into_iter()
            .partition(|(key, _)| is_kept(key));
        self.tasks = kept;
        for task in ended.into_values() {
            task.handle.abort();
            let is_same = |other: &ProbeTask| other.labels == task.labels;
            if !self.tasks.values().any(is_same) {
                self.metrics.forget(&task.labels);
            }
        }
    }

    fn is_ready(&self, id: &str) -> bool {
        let results = self.results.lock();
        results.get(id).is_some_and(|own| own.readiness == Some(true))
    }

    fn seed(&self, id: &str, container: &Container, status: &PodStatus) {
        let mut results = self.results.lock();
        // Only once for each container: later the probes' own results are newer than the status.
        if results.contains_key(id) || probes(container).next().is_none() {
            return;
        }
        // The id's first part is the runtime's name.
        let is_it = |status: &&ContainerStatus| {
            let full = status.container_id.as_deref().unwrap_or_default();
            full.rsplit_once("://").is_some_and(|(_, own)| own == id)
        };
        let all = status
            .container_statuses
            .iter()
            .chain(&status.init_container_statuses)
            .flatten();
        let known: Option<&ContainerStatus> = all.into_iter().find(is_it);
        let seed = ProbeResults {
            startup: known.filter(|known| known.started == Some(true)).map(|_| true),
            readiness: known.filter(|known| known.ready).map(|_| true),
            liveness: None,
        };
        results.insert(id.to_string(), seed);
    }

    fn task(
        &self,
        pod: &Pod,
        pod_ip: &str,
        container: &Container,
        found: &ObservedContainer,
        kind: ProbeKind,
        probe: &Probe,
    ) -> ProbeTask {
        let requested = Arc::<Notify>::default();
        let labels = ProbeLabels {
            kind: kind.title(),
            container: container.name.clone(),
            pod: name(pod).to_owned(),
            namespace: namespace(pod).to_owned(),
            pod_uid: uid(pod).to_owned(),
        };
        let prober = Prober {
            runtime: self.runtime.clone(),
            cri: self.cri.clone(),
            events: self.events.clone(),
            results: self.results.clone(),
            wake: self.wake.clone(),
            subject: EventSubject::container(pod, &container.name),
            target: Target {
                id: found.id.clone(),
                ports: container.ports.clone().unwrap_or_default(),
                pod_ip: pod_ip.to_string(),
            },
            has_startup_probe: container.startup_probe.is_some(),
            kind,
            probe: probe.clone(),
            started_at: found.started_at,
            requested: Arc::clone(&requested),
            metrics: self.metrics.clone(),
            labels: labels.clone(),
        };
        let runtime = self.runtime.clone();
        let handle = self.runtime.spawn("probe", async move {
            runtime.again_after_panics("probe", || prober.clone().run()).await;
        });
        ProbeTask {
            handle,
            requested,
            labels,
        }
    }
}

impl Drop for ProbeManager {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A container that may have probes: not one that runs to its end.
fn probed<'a>(pod: &'a Pod, name: &str) -> Option<&'a Container> {
    let found = all_containers(pod).find(|(_, container)| container.name == name);
    found
        .filter(|(kind, _)| *kind != ContainerKind::Init)
        .map(|(_, container)| container)
}

fn probes(container: &Container) -> impl Iterator<Item = (ProbeKind, &Probe)> {
    let all = [
        (ProbeKind::Startup, &container.startup_probe),
        (ProbeKind::Liveness, &container.liveness_probe),
        (ProbeKind::Readiness, &container.readiness_probe),
    ];
    all.into_iter()
        .filter_map(|(kind, probe)| Some((kind, probe.as_ref()?)))
}

#[derive(Clone)]
struct Prober {
    runtime: Runtime,
    cri: CriClient,
    events: NodeEvents,
    results: Results,
    wake: Arc<Notify>,
    /// Not the pod itself: there are many probes, and it is large.
    subject: EventSubject,
    target: Target,
    has_startup_probe: bool,
    kind: ProbeKind,
    probe: Probe,
    started_at: Option<Timestamp>,
    requested: Arc<Notify>,
    metrics: Arc<ProbeMetrics>,
    labels: ProbeLabels,
}

/// Number of equal results in a row.
#[derive(Debug, Clone, Copy, Default)]
struct Streak {
    well: bool,
    length: i32,
}

impl Prober {
    async fn run(self) {
        let period = Duration::from_secs(
            u64::try_from(self.probe.period_seconds.unwrap_or(10))
                .unwrap_or(10)
                .max(1),
        );
        if self.runtime.monotonic() < period {
            // After an agent's start all probes of the node begin together: each somewhere in its first period.
            let part =
                f64::from(u32::try_from(self.runtime.random_u64() >> 32).unwrap_or(0)) / f64::from(u32::MAX);
            self.runtime.sleep(period.mul_f64(part)).await;
        }
        self.runtime.sleep(self.initial_delay()).await;
        let (mut streak, mut probed_at) = (Streak::default(), None);
        loop {
            if self.may_ask() {
                probed_at = Some(self.runtime.monotonic());
                // What was requested until now is answered by this one.
                let _ = self.requested.notified().now_or_never();
                if !self.once(&mut streak).await {
                    return;
                }
            }
            self.until_next(period, probed_at).await;
        }
    }

    /// Waits for the end of the period, or until a probe is requested and the last one is some time ago.
    async fn until_next(&self, period: Duration, probed_at: Option<Duration>) {
        let requested = async {
            self.requested.notified().await;
            if let Some(probed_at) = probed_at {
                self.runtime.sleep_until(probed_at + REQUESTED_AFTER).await;
            }
        };
        tokio::select! {
            biased;
            () = self.runtime.sleep(period) => {}
            () = requested => {}
        }
    }

    fn initial_delay(&self) -> Duration {
        let delay = u64::try_from(self.probe.initial_delay_seconds.unwrap_or(0)).unwrap_or(0);
        let now = self.runtime.now();
        let age = self
            .started_at
            .and_then(|started| Duration::try_from(now.duration_since(started)).ok());
        Duration::from_secs(delay).saturating_sub(age.unwrap_or_default())
    }

    /// Reports whether the probe may run: before a container has started only its startup probe, after, only the others.
    fn may_ask(&self) -> bool {
        let results = self
            .results
            .lock()
            .get(&self.target.id)
            .copied()
            .unwrap_or_default();
        let started = !self.has_startup_probe || results.startup == Some(true);
        started != (self.kind == ProbeKind::Startup)
    }

    /// Probes once; returns whether to go on.
    async fn once(&self, streak: &mut Streak) -> bool {
        let began = self.runtime.monotonic();
        let answer = execute(&self.runtime, &self.cri, &self.probe, &self.target).await;
        let took = self.runtime.monotonic() - began;
        let well = answer.is_ok();
        // A probe that races with the container's end would count as a failure, with an event about a container
        // that has succeeded.
        if !well && !self.is_running().await {
            return false;
        }
        self.metrics.probed(&self.labels, well, took);
        let event = match answer {
            Ok(None) => None,
            Ok(Some(message)) => Some(("ProbeWarning", format!("probe warning: {message}"))),
            Err(message) => Some(("Unhealthy", format!("probe failed: {message}"))),
        };
        if let Some((reason, text)) = event {
            let text = format!("{} {text}", self.kind.title());
            self.events.about(&self.subject, EventType::Warning, reason, text);
        }
        *streak = match *streak {
            Streak { well: before, length } if before == well => Streak {
                well,
                length: length + 1,
            },
            _ => Streak { well, length: 1 },
        };
        let needed = if well {
            self.probe.success_threshold.unwrap_or(1)
        } else {
            self.probe.failure_threshold.unwrap_or(3)
        };
        // The result changes at the threshold alone; below it the last one holds.
        if streak.length < needed {
            return true;
        }
        self.set(well);
        // A failed container will be stopped; one that has started is the other probes' matter.
        match self.kind {
            ProbeKind::Startup => false,
            ProbeKind::Liveness => well,
            ProbeKind::Readiness => true,
        }
    }

    /// A container that has ended fails no probe. Where the runtime does not say, it may be running.
    async fn is_running(&self) -> bool {
        let request = v1::ContainerStatusRequest {
            container_id: self.target.id.clone(),
            verbose: false,
        };
        match self.cri.container_status(request).await {
            Ok(answer) => answer
                .status
                .is_none_or(|status| status.state == v1::ContainerState::ContainerRunning as i32),
            Err(error) => !error.is_not_found(),
        }
    }

    fn set(&self, well: bool) {
        let mut results = self.results.lock();
        let Some(entry) = results.get_mut(&self.target.id) else {
            return;
        };
        let place = match self.kind {
            ProbeKind::Startup => &mut entry.startup,
            ProbeKind::Liveness => &mut entry.liveness,
            ProbeKind::Readiness => &mut entry.readiness,
        };
        if *place != Some(well) {
            *place = Some(well);
            self.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The probes of a pod whose runtime answers so, and whose API server is away.
    fn manager<F, A>(runtime: &Runtime, answer: F) -> ProbeManager
    where
        F: FnMut(http::Request<tonic::body::Body>) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Result<http::Response<tonic::body::Body>, tonic::Status>> + Send + 'static,
    {
        let transport = node_cri::Transport::new(tower::service_fn(answer));
        let cri = CriClient::connect_through(transport, std::path::PathBuf::new());
        let nobody = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<http_body_util::Empty<bytes::Bytes>>, _>(std::io::Error::other("away"))
        });
        let client = kube::Client::new(nobody, "default");
        let events = NodeEvents::new(machinery_client::Client::new(client, runtime.clone()), "n");
        ProbeManager::new(runtime.clone(), cri, events, Arc::default(), Arc::default())
    }

    /// Times of the first probes of so many containers, in milliseconds from `follow`.
    fn first_questions(containers: usize, after: Duration) -> Vec<u128> {
        let simulation = machinery_runtime::Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            runtime.sleep(after).await;
            let began = runtime.monotonic();
            let times = Arc::new(Mutex::new(Vec::new()));
            let (noted, clock) = (times.clone(), runtime.clone());
            let well = move |_: http::Request<tonic::body::Body>| {
                noted.lock().push((clock.monotonic() - began).as_millis());
                async { Ok::<_, tonic::Status>(crate::cri_answers::empty_message()) }
            };
            let mut probes = manager(&runtime, well);
            let names: Vec<String> = (0..containers).map(|number| format!("c{number}")).collect();
            let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 10});
            let all: Vec<_> = names
                .iter()
                .map(|name| json!({"name": name, "readinessProbe": probe}))
                .collect();
            let pod: Pod = serde_json::from_value(json!({"spec": {"containers": all}})).unwrap();
            let running: Vec<ObservedContainer> = names.iter().map(|name| observed(name)).collect();
            probes.follow(&pod, "10.0.0.1", &PodStatus::default(), running.iter());
            runtime.sleep(Duration::from_secs(10)).await;
            times.lock().clone()
        })
    }

    fn observed(name: &str) -> ObservedContainer {
        ObservedContainer {
            id: name.to_owned(),
            name: name.to_owned(),
            ..ObservedContainer::default()
        }
    }

    #[test]
    fn probe_holds_nothing_of_the_pod_but_what_it_asks_and_whom() {
        let simulation = machinery_runtime::Simulation::new(1);
        let runtime = simulation.runtime();
        let (held, probed) = simulation.run(async move {
            let well = |_: http::Request<tonic::body::Body>| async {
                Ok::<_, tonic::Status>(crate::cri_answers::empty_message())
            };
            let mut probes = manager(&runtime, well);
            let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 10});
            let large = "x".repeat(1 << 20);
            let pod: Pod = serde_json::from_value(json!({
                "metadata": {"name": "p", "annotations": {"a": large}},
                "spec": {"containers": [{"name": "c", "env": [{"name": "E", "value": large}],
                    "startupProbe": probe, "livenessProbe": probe, "readinessProbe": probe}]},
            }))
            .unwrap();
            let before = machinery_fuzz::held();
            probes.follow(&pod, "10.0.0.1", &PodStatus::default(), [observed("c")].iter());
            runtime.sleep(Duration::from_secs(30)).await;
            (machinery_fuzz::held().saturating_sub(before), probes.tasks.len())
        });
        assert_eq!(probed, 3);
        assert!(held < 1 << 18, "{held} bytes");
    }

    #[test]
    fn readiness_of_a_container_that_is_not_ready_is_probed_soon() {
        let simulation = machinery_runtime::Simulation::new(1);
        let runtime = simulation.runtime();
        simulation.run(async move {
            // No agent's start: those probes are spread over their period.
            runtime.sleep(Duration::from_secs(60)).await;
            let times = Arc::new(Mutex::new(Vec::new()));
            let (noted, clock) = (times.clone(), runtime.clone());
            let ill = move |_: http::Request<tonic::body::Body>| {
                noted.lock().push(clock.monotonic().as_secs() - 60);
                async { Err::<http::Response<tonic::body::Body>, _>(tonic::Status::unknown("not yet")) }
            };
            let mut probes = manager(&runtime, ill);
            let probe = json!({"exec": {"command": ["true"]}, "periodSeconds": 10});
            let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [
                {"name": "c", "readinessProbe": probe}]}}))
            .unwrap();
            let probed = || {
                let mut seconds = times.lock().clone();
                seconds.dedup();
                seconds
            };
            for _ in 0..3 {
                probes.follow(&pod, "10.0.0.1", &PodStatus::default(), [observed("c")].iter());
                runtime.sleep(Duration::from_millis(100)).await;
            }
            runtime.sleep(Duration::from_secs(5)).await;
            assert_eq!(probed(), [0, 1]);
            probes.follow(&pod, "10.0.0.1", &PodStatus::default(), [observed("c")].iter());
            runtime.sleep(Duration::from_secs(12)).await;
            assert_eq!(probed(), [0, 1, 5, 15]);
        });
    }

    #[test]
    fn probes_of_a_node_whose_agent_has_just_begun_spread_over_their_period() {
        let times = first_questions(100, Duration::ZERO);
        assert!(times.len() >= 100, "each has asked");
        for second in 0..10 {
            let within = times.iter().filter(|at| *at / 1000 == second).count();
            assert!(within < 30, "{within} in second {second}");
        }
        let later = first_questions(100, Duration::from_secs(60));
        assert!(
            later.iter().take(100).all(|at| *at < 1000),
            "a container waits for nothing"
        );
    }
}
