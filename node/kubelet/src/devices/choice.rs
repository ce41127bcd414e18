//! Choice of the devices that a container gets. Words of refusals are upstream's. Pure.

use std::collections::BTreeSet;

/// A container that requests devices of a resource, and the devices that there are.
#[derive(Debug, Clone)]
pub(super) struct Request<'a> {
    /// Uid of the pod.
    pub(super) uid: &'a str,
    /// Name of the container.
    pub(super) container: &'a str,
    /// The resource.
    pub(super) resource: &'a str,
    /// Number of devices that the container requests.
    pub(super) required: usize,
    /// Devices that it has already.
    pub(super) own: Option<BTreeSet<&'a str>>,
    /// Devices of init containers of its pod, which it may share.
    pub(super) reusable: BTreeSet<String>,
    /// Devices that the plugin says are well; `None` where it has not registered.
    pub(super) healthy: Option<BTreeSet<&'a str>>,
    /// Devices that pods have.
    pub(super) allocated: BTreeSet<&'a str>,
}

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    /// The container has what it requests.
    Kept,
    /// It gets these.
    Chosen(BTreeSet<String>),
    /// Some are to be chosen yet, in which the plugin may have a say.
    Open(Open),
}

/// Devices that are still to be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Open {
    /// Chosen already.
    pub(super) taken: BTreeSet<String>,
    /// Devices to choose from.
    pub(super) available: BTreeSet<String>,
    /// Devices to choose from when all of those are taken.
    pub(super) last: BTreeSet<String>,
    /// Number of devices of the container in the end.
    pub(super) required: usize,
}

/// Decides as far as that goes without the plugin.
///
/// # Errors
/// Upstream's sentence why the pod cannot have them.
pub(super) fn choose(request: &Request<'_>) -> Result<Choice, String> {
    let (resource, required) = (request.resource, request.required);
    let kept = has_devices(request)?;
    let Some(healthy) = &request.healthy else {
        return Err(format!("cannot allocate unregistered device {resource}"));
    };
    if healthy.is_empty() {
        return Err(no_healthy(resource));
    }
    let own = request.own.iter().flatten();
    if own.into_iter().any(|device| !healthy.contains(device)) {
        return Err(no_longer_healthy(resource));
    }
    if kept || required == 0 {
        return Ok(Choice::Kept);
    }
    let taken: BTreeSet<String> = request.reusable.iter().take(required).cloned().collect();
    if taken.len() == required {
        return Ok(Choice::Chosen(taken));
    }
    let available = healthy.difference(&request.allocated);
    let available: BTreeSet<String> = available.map(|device| (*device).to_owned()).collect();
    let needed = required - taken.len();
    if available.len() < needed {
        return Err(format!(
            "requested number of devices unavailable for {resource}. Requested: {needed}, Available: {}",
            available.len()
        ));
    }
    Ok(Choice::Open(Open {
        taken,
        available,
        last: BTreeSet::new(),
        required,
    }))
}

/// Upstream's sentence where a resource has no devices, or none that are well.
pub(super) fn no_healthy(resource: &str) -> String {
    format!("no healthy devices present; cannot allocate unhealthy devices {resource}")
}

/// Upstream's sentence where devices that a container has are gone or ill.
pub(super) fn no_longer_healthy(resource: &str) -> String {
    format!(
        "previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}"
    )
}

/// Reports whether the container has its devices already.
fn has_devices(request: &Request<'_>) -> Result<bool, String> {
    let Some(own) = &request.own else { return Ok(false) };
    if own.len() == request.required {
        return Ok(true);
    }
    Err(format!(
        "pod {:?} container {:?} changed request for resource {:?} from {} to {}",
        request.uid,
        request.container,
        request.resource,
        own.len(),
        request.required
    ))
}

/// Place of a device beside the NUMA nodes that its container is to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nearness {
    /// On one of them.
    Near,
    /// On others.
    Far,
    /// On none.
    Nowhere,
}

impl Open {
    /// Everything that the container has or may get, in order.
    pub(super) fn all(&self) -> impl Iterator<Item = &String> {
        let all: BTreeSet<&String> = self
            .available
            .iter()
            .chain(&self.last)
            .chain(&self.taken)
            .collect();
        all.into_iter()
    }

    /// Takes those that are near first, and those without a place last: upstream's `filterByAffinity`.
    pub(super) fn aligned(mut self, nearness: impl Fn(&str) -> Nearness) -> Choice {
        let of = |wanted: Nearness, from: &BTreeSet<String>| -> BTreeSet<String> {
            let found = from.iter().filter(|device| nearness(device) == wanted);
            found.cloned().collect()
        };
        let near = of(Nearness::Near, &self.available);
        if self.required - self.taken.len() < near.len() {
            self.available = near;
            return Choice::Open(self);
        }
        self.last = of(Nearness::Nowhere, &self.available);
        self.available = of(Nearness::Far, &self.available);
        self.taken.extend(near);
        match self.taken.len() >= self.required {
            true => Choice::Chosen(self.taken),
            false => Choice::Open(self),
        }
    }

    /// Chooses: what the plugin prefers first, in its order, and then whatever there is.
    pub(super) fn complete(self, preferred: &[String]) -> BTreeSet<String> {
        let is_there = |device: &&String| self.available.contains(*device) || self.last.contains(*device);
        let preferred = preferred.iter().filter(is_there);
        let mut chosen = self.taken;
        for device in preferred.chain(&self.available).chain(&self.last) {
            if chosen.len() >= self.required {
                break;
            }
            chosen.insert(device.clone());
        }
        chosen
    }
}
