//! One attempt to place a pod: what is computed of the pod once for all nodes, and the work done so far.
//!
//! Invariant: a list that a tenant makes as long as it likes is decoded at most once per attempt, the dry run of
//! preemption included, and only where a node asks.

use crate::config::args::DynamicResourcesArgs;
use crate::devices::pod_devices::PodDevices;
use crate::meter::Meter;
use crate::node_terms::{NodeTermIndex, items_of, steps_of};
use crate::nodes::{NodeId, NodeTable};
use crate::object::{
    NodeAffinity, NodeSelectorTerm, PreferredSchedulingTerm, Taint, Toleration, TopologySpreadConstraint,
};
use crate::pod::LONG_STEP;
use crate::pod::PodInfo;
use crate::pod_terms::OwnedTerm;
use crate::rejection::Rejection;
use crate::selector_counts::{CounterId, TermId};
use crate::volumes::pod_volumes::PodVolumes;
use std::any::Any;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

/// Tolerations that are looked through for every node; the answers of longer lists are kept by taint.
const FEW: usize = 16;
/// Rows of a column summed in the time of one step.
pub(crate) const ROWS_A_STEP: usize = 16;
/// Terms or constraints of one pod, times nodes or pods on nodes, whichever are more: 64 MiB of columns, and about a second.
const MAX_CELLS: usize = 1 << 24;

/// The pod being placed. Its steps are nodes rated, and items decoded or compared: each about a tenth of a microsecond.
#[derive(Debug)]
pub struct Attempt {
    pod: Arc<PodInfo>,
    decoded: OnceCell<Box<[Toleration]>>,
    node_affinity: OnceCell<NodeAffinity>,
    required_nodes: OnceCell<NodeTermIndex>,
    preferred_nodes: OnceCell<NodeTermIndex>,
    terms: OnceCell<Vec<Arc<OwnedTerm>>>,
    counters: OnceCell<TermCounters>,
    /// Terms of pods on nodes that are about the pod, and the version of the terms that they are of.
    about: RefCell<Option<(u64, Arc<[TermId]>)>>,
    spread: OnceCell<Vec<TopologySpreadConstraint>>,
    tolerated: RefCell<HashMap<Taint, bool>>,
    /// Nodes that the selector and the required affinity admit; labels stay as they are during an attempt.
    admitted: RefCell<Vec<Option<bool>>>,
    /// Sums of one plugin, made once per attempt.
    summary: OnceCell<Box<dyn Any + Send>>,
    volumes: OnceCell<Result<PodVolumes, Rejection>>,
    devices: OnceCell<Result<PodDevices, Rejection>>,
    steps: Cell<usize>,
    meter: Option<Meter>,
}

/// The pod being placed, and the nodes.
#[derive(Debug, Clone, Copy)]
pub struct Cycle<'a> {
    pub pod: &'a PodInfo,
    pub nodes: &'a NodeTable,
    /// Results computed of the pod once, whatever number of cycles the attempt takes.
    pub attempt: &'a Attempt,
}

/// Counters of a pod's terms of affinity to pods.
#[derive(Debug, Default)]
pub(crate) struct TermCounters {
    /// The counter of all terms of required affinity together.
    pub(crate) required: Option<CounterId>,
    /// Counters of the other terms, in their order.
    pub(crate) others: Vec<CounterId>,
}

impl Attempt {
    pub fn new(pod: &Arc<PodInfo>) -> Self {
        Self {
            pod: Arc::clone(pod),
            decoded: OnceCell::new(),
            node_affinity: OnceCell::new(),
            required_nodes: OnceCell::new(),
            preferred_nodes: OnceCell::new(),
            terms: OnceCell::new(),
            counters: OnceCell::new(),
            about: RefCell::default(),
            spread: OnceCell::new(),
            tolerated: RefCell::default(),
            admitted: RefCell::default(),
            summary: OnceCell::new(),
            volumes: OnceCell::new(),
            devices: OnceCell::new(),
            steps: Cell::new(0),
            meter: None,
        }
    }

    /// The attempt with its durations measured.
    #[must_use]
    pub fn measured(self, meter: Meter) -> Self {
        Self {
            meter: Some(meter),
            ..self
        }
    }

    /// Takes the durations of an attempt that begins anew.
    pub(crate) fn into_meter(self) -> Option<Meter> {
        self.meter
    }

    /// Durations of this attempt, where they are measured.
    pub fn meter(&self) -> Option<&Meter> {
        self.meter.as_ref()
    }

    /// Durations of single plugins, in the attempts in which these are measured.
    pub(crate) fn sampling(&self) -> Option<&Meter> {
        self.meter.as_ref().filter(|meter| meter.is_sampled())
    }

    pub fn pod(&self) -> &Arc<PodInfo> {
        &self.pod
    }

    /// The attempt on these nodes.
    pub fn on<'b>(&'b self, nodes: &'b NodeTable) -> Cycle<'b> {
        Cycle {
            pod: &self.pod,
            nodes,
            attempt: self,
        }
    }

    /// Reports whether the pod tolerates the taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        if let Some(known) = self.tolerated.borrow().get(taint) {
            return *known;
        }
        let tolerations = self.tolerations();
        let tolerated = tolerations.iter().any(|one| one.tolerates(taint));
        if tolerations.len() > FEW {
            self.worked(tolerations.len());
            self.tolerated.borrow_mut().insert(taint.clone(), tolerated);
        }
        tolerated
    }

    fn tolerations(&self) -> &[Toleration] {
        self.pod.shape.tolerations.items_once(&self.decoded, |decoded| {
            self.worked(decoded);
        })
    }

    /// The pod's affinity to nodes.
    pub fn node_affinity(&self) -> &NodeAffinity {
        let affinity = &self.pod.shape.node_affinity;
        affinity.get_once(&self.node_affinity, |bytes| self.worked(bytes / LONG_STEP))
    }

    /// The pod's terms of affinity to pods.
    pub fn terms(&self) -> &[Arc<OwnedTerm>] {
        match self.pod.terms_if_short() {
            Some(terms) => terms,
            None => self.terms.get_or_init(|| {
                self.worked(self.pod.term_steps());
                self.pod.terms().into_owned()
            }),
        }
    }

    /// Counters of the pod's own terms, made once per attempt.
    pub(crate) fn counters(&self, make: impl FnOnce() -> TermCounters) -> &TermCounters {
        self.counters.get_or_init(make)
    }

    /// Terms of pods on nodes that are about the pod: looked for again only where pods with other terms came or went.
    pub(crate) fn terms_about(&self, nodes: &NodeTable) -> Arc<[TermId]> {
        let counts = nodes.counts();
        let mut kept = self.about.borrow_mut();
        if let Some((_, terms)) = kept
            .as_ref()
            .filter(|(version, _)| *version == counts.terms_version())
        {
            return Arc::clone(terms);
        }
        let (terms, compared) = counts.terms_about(&self.pod.pod.metadata, nodes.namespaces());
        self.worked(compared + self.pod.pod.metadata.labels.len());
        let terms: Arc<[TermId]> = terms.into();
        *kept = Some((counts.terms_version(), Arc::clone(&terms)));
        terms
    }

    /// The pod's own spread constraints.
    pub fn spread_constraints(&self) -> &[TopologySpreadConstraint] {
        let constraints = &self.pod.pod.spec.topology_spread_constraints;
        constraints.get_once(&self.spread, |bytes| self.worked(bytes / LONG_STEP))
    }

    /// Reports whether the pod's node selector and required node affinity admit the node: compared once per attempt.
    pub fn admits(&self, nodes: &NodeTable, node: NodeId) -> bool {
        let selector = &self.pod.shape.node_selector;
        let required = self.node_affinity().required.as_ref();
        if selector.is_empty() && required.is_none() {
            return true;
        }
        let mut admitted = self.admitted.borrow_mut();
        if admitted.len() <= node {
            admitted.resize(nodes.rows().max(node + 1), None);
        }
        *admitted[node].get_or_insert_with(|| {
            self.worked(beyond_few(selector.len()));
            let labels = &nodes.labels[node];
            selector.iter().all(|(key, value)| labels.get(key) == Some(value))
                && required
                    .is_none_or(|required| self.any_term_admits(&required.node_selector_terms, nodes, node))
        })
    }

    fn any_term_admits(&self, terms: &[NodeSelectorTerm], nodes: &NodeTable, node: NodeId) -> bool {
        let (name, labels) = (&nodes.names[node], &nodes.labels[node]);
        let index = self.required_nodes.get_or_init(|| self.filed(|| terms.iter()));
        let mut steps = labels.len();
        let admitted = index.candidates(name, labels).any(|id| {
            steps += steps_of(&terms[id]);
            index.matches(id, &terms[id], name, labels)
        });
        self.worked(beyond_few(steps));
        admitted
    }

    fn filed<'a, I: Iterator<Item = &'a NodeSelectorTerm>>(&self, terms: impl Fn() -> I) -> NodeTermIndex {
        self.worked(beyond_few(terms().map(items_of).sum()));
        NodeTermIndex::of(terms())
    }

    /// Sum of the weights of the terms that prefer the node.
    pub fn preference(&self, preferred: &[PreferredSchedulingTerm], nodes: &NodeTable, node: NodeId) -> i64 {
        let (name, labels) = (&nodes.names[node], &nodes.labels[node]);
        let index = self
            .preferred_nodes
            .get_or_init(|| self.filed(|| preferred.iter().map(|one| &one.preference)));
        let mut steps = labels.len();
        let matching = index.candidates(name, labels).filter(|id| {
            let term = &preferred[*id].preference;
            steps += steps_of(term);
            index.matches(*id, term, name, labels)
        });
        let sum = matching.map(|id| i64::from(preferred[id].weight)).sum();
        self.worked(beyond_few(steps));
        sum
    }

    /// Items that rating one node compares at most, beside those of affinity to nodes and the tolerations.
    pub fn rated_items(&self) -> usize {
        let shape = &self.pod.shape;
        shape.ports.len() + shape.images.len() + shape.requests.scalars.len()
    }

    /// Sums of a plugin over all nodes, made once per attempt. One plugin has some: the type of another's finds nothing.
    pub(crate) fn summary<T: Any + Send>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.summary.get_or_init(|| Box::new(make())).downcast_ref()
    }

    /// The pod's claims, sorted once per attempt: they stay as they are in it.
    pub(crate) fn volumes(&self, nodes: &NodeTable) -> &Result<PodVolumes, Rejection> {
        self.volumes.get_or_init(|| PodVolumes::of(self, &nodes.volumes))
    }

    /// The pod's claims, where they were requested.
    pub(crate) fn volumes_if_known(&self) -> Option<&Result<PodVolumes, Rejection>> {
        self.volumes.get()
    }

    /// The pod's claims of devices, sorted once per attempt.
    pub(crate) fn devices(
        &self,
        nodes: &NodeTable,
        args: DynamicResourcesArgs,
    ) -> &Result<PodDevices, Rejection> {
        self.devices
            .get_or_init(|| PodDevices::of(self, &nodes.devices, args))
    }

    /// The error by which the search for devices ended the attempt, if one did.
    pub(crate) fn devices_error(&self) -> Option<&str> {
        self.devices.get()?.as_ref().ok()?.error()
    }

    /// The pod's claims of devices, where they were requested.
    pub(crate) fn devices_if_known(&self) -> Option<&Result<PodDevices, Rejection>> {
        self.devices.get()
    }

    /// Counts so many columns summed over all nodes.
    pub fn summed(&self, columns: usize, nodes: &NodeTable) {
        self.worked(columns.saturating_mul(nodes.rows()) / ROWS_A_STEP);
    }

    /// Counts steps done for the pod.
    pub fn worked(&self, steps: usize) {
        self.steps.set(self.steps.get().saturating_add(steps));
    }

    /// Steps done for the pod so far, or since they were last taken.
    pub fn steps(&self) -> usize {
        self.steps.get()
    }

    /// Takes the steps done: counting begins anew.
    pub fn take_steps(&self) -> usize {
        self.steps.take()
    }
}

/// Items of a list as steps; few of them are part of the step of their node.
pub(crate) fn beyond_few(items: usize) -> usize {
    if items > FEW { items } else { 0 }
}

/// Refuses a pod whose terms or constraints, `count` of them, are too many for so many nodes and pods.
pub(crate) fn bounded(what: &str, count: usize, nodes: &NodeTable) -> Result<(), Rejection> {
    let (rows, pods) = (nodes.rows(), nodes.pod_count());
    if count.saturating_mul(rows.max(pods)) <= MAX_CELLS {
        return Ok(());
    }
    let count_of_nodes = nodes.node_count();
    Err(Rejection::unresolvable(format!(
        "pod has too many {what} to be placed among {count_of_nodes} nodes and {pods} pods: {count}"
    )))
}
