//! The rule of effective requests and limits, over any form of amounts: the API server and the kubelet count exact
//! quantities, the scheduler 64-bit numbers. Source: upstream's `component-helpers/resource`, `PodRequests` and `PodLimits`.

use super::{ResourceList, is_pod_level_resource};
use std::collections::HashMap;

/// Amounts by resource, to be summed up over the containers of a pod.
pub trait Amounts: Default {
    /// A list of amounts, as an object has it.
    type List;

    /// Reads a list; what cannot be read counts as zero, as validation keeps it out.
    fn read(list: &Self::List) -> Self;

    /// Adds the other's amounts.
    fn add(&mut self, other: &Self);

    /// Keeps the larger of both amounts, resource by resource.
    fn raise_to(&mut self, other: &Self);

    /// Takes the list's amounts of the named resources in place of its own.
    fn replace(&mut self, list: &Self::List, is_named: fn(&str) -> bool);
}

/// Lists of one container, on the side of requests or of limits.
#[derive(Debug)]
pub struct ContainerLists<'p, L> {
    /// It is an init container that keeps running.
    pub is_sidecar: bool,
    /// Amounts of the spec.
    pub spec: Option<&'p L>,
    /// Amounts that the node has granted; limits have none.
    pub allocated: Option<&'p L>,
    /// Amounts in effect on the node.
    pub actuated: Option<&'p L>,
}

/// Lists of one pod, on the side of requests or of limits.
#[derive(Debug)]
pub struct PodLists<'p, L> {
    /// Lists of the containers.
    pub containers: Vec<ContainerLists<'p, L>>,
    /// Lists of the init containers, in their order.
    pub init_containers: Vec<ContainerLists<'p, L>>,
    /// Amounts of the pod as a whole.
    pub pod_level: Option<&'p L>,
    /// Overhead of the runtime class.
    pub overhead: Option<&'p L>,
    /// The node will never grant what the spec has now: [`is_resize_infeasible`].
    pub is_infeasible: bool,
}

impl<'p, L> PodLists<'p, L> {
    /// Requests that the scheduler and the node reserve; `amounts` reads the list of one container.
    ///
    /// Pod-level requests take the place of the containers' for the resources that they may name; overhead comes on top.
    pub fn requests<A: Amounts<List = L>>(&self, amounts: impl Fn(Option<&'p L>) -> A) -> A {
        let mut total = self.of_containers(amounts);
        if let Some(own) = self.pod_level {
            total.replace(own, is_pod_level_resource);
        }
        if let Some(overhead) = self.overhead {
            total.add(&A::read(overhead));
        }
        total
    }

    /// Amounts of the containers: the most of those of the spec, those that the node has granted and those in effect,
    /// while these differ by a resize (upstream's `UseStatusResources`).
    pub fn of_containers<A: Amounts>(&self, amounts: impl Fn(Option<&'p L>) -> A) -> A {
        let mut total = A::default();
        if !self.is_infeasible {
            total = self.sum(|own| amounts(own.spec));
        }
        if self.is_infeasible || self.is_reported() {
            let spec = |own: &ContainerLists<'p, L>| own.spec.filter(|_| !self.is_infeasible);
            let allocated = |own: &ContainerLists<'p, L>| own.allocated.or_else(|| spec(own));
            total.raise_to(&self.sum(|own| amounts(allocated(own))));
            total.raise_to(&self.sum(|own| amounts(own.actuated.or_else(|| allocated(own)))));
        }
        total
    }

    fn is_reported(&self) -> bool {
        let mut all = self.containers.iter().chain(&self.init_containers);
        all.any(|own| own.allocated.is_some() || own.actuated.is_some())
    }

    /// Containers and sidecars together, or the largest moment of initialisation, whichever is more: each init container
    /// runs beside the sidecars started before it.
    fn sum<A: Amounts>(&self, amounts: impl Fn(&ContainerLists<'p, L>) -> A) -> A {
        let mut total = A::default();
        for container in &self.containers {
            total.add(&amounts(container));
        }
        let mut sidecars = A::default();
        let mut initialising = A::default();
        for container in &self.init_containers {
            let own = amounts(container);
            if container.is_sidecar {
                total.add(&own);
                sidecars.add(&own);
                initialising.raise_to(&sidecars);
            } else {
                let mut moment = own;
                moment.add(&sidecars);
                initialising.raise_to(&moment);
            }
        }
        total.raise_to(&initialising);
        total
    }
}

impl PodLists<'_, super::ApiList> {
    /// Limits of the pod as a whole. Overhead is added to the limits that are set.
    pub(super) fn limits(&self) -> ResourceList {
        let mut total = self.of_containers(ResourceList::from_api);
        if let Some(own) = self.pod_level {
            total.replace(own, is_pod_level_resource);
        }
        for (name, amount) in ResourceList::from_api(self.overhead).iter() {
            if let Some(limit) = total.0.get_mut(name).filter(|limit| !limit.is_zero()) {
                *limit = *limit + amount;
            }
        }
        total
    }
}

/// Statuses of a pod's containers by name, those of containers before those of init containers; of one name the first counts.
pub fn statuses_by_name<'p, S>(statuses: impl Iterator<Item = (&'p str, &'p S)>) -> HashMap<&'p str, &'p S> {
    let mut by_name = HashMap::new();
    for (name, status) in statuses {
        by_name.entry(name).or_insert(status);
    }
    by_name
}

/// Reports whether the node will never grant the resize that the spec requests, by the types and reasons of the pod's
/// conditions: the first `PodResizePending` says so.
pub fn is_resize_infeasible<'p>(mut conditions: impl Iterator<Item = (&'p str, &'p str)>) -> bool {
    let pending = conditions.find(|(type_, _)| *type_ == "PodResizePending");
    pending.is_some_and(|(_, reason)| reason == "Infeasible")
}
