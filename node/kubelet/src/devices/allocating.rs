//! Gives devices to the containers of a pod, and to a container what it needs to use them.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Pod};
use node_plugin_api::calls::rpc_text;
use node_plugin_api::device_plugin::messages::{
    AllocateResponse, ContainerAllocateResponse, ContainerPreferredAllocationRequest,
};
use prost::Message as _;
use tonic::Status;

use super::RESPONSE_BYTES_MAX;
use super::admission::Admission;
use super::choice::{Choice, Open, no_longer_healthy};
use super::claims::{Claim, requests};
use super::container_options::ContainerOptions;
use super::inventory::{Absence, Connected};
use super::manager::DeviceManager;
use crate::plugins::calls::within;
use crate::pods::{all_containers, uid};
use crate::resource_managers::hints::NodeMask;

/// A plugin must say in this time what it gives; upstream waits without an end, for all pods.
const ALLOCATE_TIMEOUT: Duration = Duration::from_secs(120);
/// Upstream's `KubeletPreStartContainerRPCTimeoutInSecs`.
const PRE_START_TIMEOUT: Duration = Duration::from_secs(30);
/// A new pod waits this long after a start of the agent: for its plugin to register, and for the pods before it to be known.
const START_PATIENCE: Duration = Duration::from_secs(30);

impl DeviceManager {
    /// Gives a new pod the devices that its containers request. In one of which something runs they keep what they have: what
    /// has ended may never start again, and is checked when it does.
    ///
    /// # Errors
    /// Upstream's sentence why it cannot have them; it has what it had before then.
    pub(crate) async fn allocate(&self, pod: &Pod, runs: bool) -> Result<Admission<'_>, String> {
        let containers = self.to_be_given(pod, runs);
        self.wait_for_plugins(&containers).await;
        let mut admission = self.begin_admission(pod, &containers).await;
        for container in containers {
            self.allocate_to(pod, container, None, &mut admission).await?;
        }
        Ok(admission)
    }

    /// Containers of a pod that are given devices.
    pub(crate) fn to_be_given<'p>(&self, pod: &'p Pod, runs: bool) -> Vec<&'p Container> {
        all_containers(pod)
            .map(|(_, container)| container)
            .filter(|container| !runs || !self.has_all(pod, container))
            .collect()
    }

    /// Reports whether a container requests devices of plugins.
    pub(crate) fn gives(&self, container: &Container) -> bool {
        !self.state.lock().requested(container).is_empty()
    }

    /// Reports whether a container has devices of all resources of which it requests some.
    fn has_all(&self, pod: &Pod, container: &Container) -> bool {
        let state = self.state.lock();
        let own = state.allocations.of(uid(pod), &container.name);
        let has = |resource: &str| own.is_some_and(|own| own.contains_key(resource));
        state.requested(container).into_iter().all(has)
    }

    /// After a start of the agent plugins register again, and earlier pods are listed.
    pub(crate) async fn wait_for_plugins(&self, containers: &[&Container]) {
        let requests_some = {
            let state = self.state.lock();
            containers
                .iter()
                .any(|container| !state.requested(container).is_empty())
        };
        if !requests_some {
            return;
        }
        let settled = self.settled.wait_for(|settled| *settled);
        let registered = self.plugins.wait_for(|_| {
            let state = self.state.lock();
            let mut requested = containers.iter().flat_map(|container| requests(container));
            !requested.any(|(resource, _)| state.inventory.awaits(resource))
        });
        let both = async { tokio::join!(settled, registered) };
        // What has not registered by then is refused below, and what deleted pods have is not free yet.
        let _ = self.runtime.timeout(START_PATIENCE, both).await;
    }

    /// Gives a container what it has not yet, of these NUMA nodes first, and of the resources whose turns are held. Devices of a plugin that has registered
    /// since are given when it starts.
    pub(crate) async fn allocate_to(
        &self,
        pod: &Pod,
        container: &Container,
        nodes: Option<NodeMask>,
        admission: &mut Admission<'_>,
    ) -> Result<(), String> {
        let mut changed = false;
        for (resource, required) in requests(container) {
            if !admission.holds(resource) {
                continue;
            }
            let claim = Claim {
                pod,
                container: &container.name,
                resource,
                required,
                nodes,
            };
            if self.allocate_resource(claim).await? {
                admission.given(claim);
                changed = true;
            }
        }
        match changed {
            true => self.saver.save().await,
            false => Ok(()),
        }
    }

    /// Reports whether the container was given devices that it had not.
    async fn allocate_resource(&self, claim: Claim<'_>) -> Result<bool, String> {
        let choice = self.state.lock().choose(claim)?;
        let chosen = match choice {
            Choice::Kept => return Ok(false),
            Choice::Chosen(chosen) => chosen,
            Choice::Open(open) => {
                let preferred = self.preferred(claim.resource, &open).await?;
                open.complete(&preferred)
            }
        };
        let plugin = self.plugin(claim.resource)?;
        let devices: Vec<String> = chosen.iter().cloned().collect();
        let began = self.runtime.monotonic();
        let call = plugin.client.allocate(devices);
        let answer = within(&self.runtime, ALLOCATE_TIMEOUT, call).await;
        let took = self.runtime.monotonic() - began;
        self.metrics
            .durations
            .of(&[claim.resource])
            .observe(took.as_secs_f64());
        let response = response(answer)?;
        self.state.lock().give(claim, chosen, response)?;
        Ok(true)
    }

    fn plugin(&self, resource: &str) -> Result<Connected, String> {
        let state = self.state.lock();
        let plugin = state.inventory.connected(resource).cloned();
        plugin.map_err(|absence| match absence {
            Absence::Gone => format!("unknown Device Plugin {resource}"),
            Absence::Awaited | Absence::Stopped(_) => stopped(resource),
        })
    }

    async fn preferred(&self, resource: &str, open: &Open) -> Result<Vec<String>, String> {
        let plugin = self.plugin(resource)?;
        if !plugin.options.get_preferred_allocation_available {
            return Ok(Vec::new());
        }
        let request = ContainerPreferredAllocationRequest {
            available_device_ids: open.all().cloned().collect(),
            must_include_device_ids: open.taken.iter().cloned().collect(),
            allocation_size: i32::try_from(open.required).unwrap_or(i32::MAX),
        };
        let call = plugin.client.preferred(request);
        let answer = within(&self.runtime, ALLOCATE_TIMEOUT, call).await;
        answer.map_err(|status| {
            format!(
                "device plugin GetPreferredAllocation rpc failed with err: {}",
                rpc_text(&status)
            )
        })
    }

    /// Returns what the devices of a container add to its configuration, when it is about to start.
    ///
    /// # Errors
    /// Upstream's sentence why it cannot start now.
    pub(crate) async fn container_options(
        &self,
        pod: &Pod,
        container: &Container,
    ) -> Result<ContainerOptions, String> {
        if !self.has_all(pod, container) {
            // What the agent before this one gave was lost.
            let mut admission = self.begin_admission(pod, &[container]).await;
            self.allocate_to(pod, container, None, &mut admission).await?;
            admission.keep();
        }
        let requested = self.state.lock().requested(container);
        if !requested.is_empty() {
            // An earlier write of what it has may have failed.
            self.saver.save().await?;
        }
        for resource in requested {
            self.pre_start(pod, container, resource).await?;
        }
        let own = self
            .state
            .lock()
            .allocations
            .of(uid(pod), &container.name)
            .cloned();
        let mut options = ContainerOptions::default();
        for (resource, allocation) in own.iter().flatten() {
            options.add(resource, &allocation.response);
        }
        Ok(options)
    }

    /// Returns upstream's sentence where devices of a pod are gone or ill since an agent before this one gave them, and one of
    /// these containers, which are about to start, has them.
    pub(crate) fn lost<'a>(&self, pod: &Pod, starting: impl IntoIterator<Item = &'a str>) -> Option<String> {
        let state = self.state.lock();
        let own = starting.into_iter();
        let own = own.filter_map(|container| state.allocations.of(uid(pod), container));
        let mut own = own.flatten();
        let has_listed =
            |resource: &str| state.inventory.connected(resource).is_ok() && !state.inventory.awaits(resource);
        let lost = own.find(|(resource, allocation)| !allocation.is_seen && has_listed(resource));
        lost.map(|(resource, _)| no_longer_healthy(resource))
    }

    async fn pre_start(&self, pod: &Pod, container: &Container, resource: &str) -> Result<(), String> {
        let failed = |why: &str| format!("device plugin PreStartContainer rpc failed with err: {why}");
        let (plugin, devices) = {
            let state = self.state.lock();
            state.check_seen(pod, container, resource)?;
            let plugin = match state.inventory.connected(resource) {
                Ok(plugin) => plugin,
                Err(Absence::Stopped(options)) if options.pre_start_required => {
                    return Err(failed(&stopped(resource)));
                }
                Err(Absence::Stopped(_) | Absence::Awaited) => return Ok(()),
                Err(Absence::Gone) => {
                    return Err(format!(
                        "endpoint not found in cache for a registered resource: {resource}"
                    ));
                }
            };
            if !plugin.options.pre_start_required {
                return Ok(());
            }
            let own = state.allocations.devices_of(uid(pod), &container.name, resource);
            let devices: Vec<String> = own.into_iter().flatten().map(str::to_owned).collect();
            (plugin.client.clone(), devices)
        };
        let answer = within(&self.runtime, PRE_START_TIMEOUT, plugin.pre_start(devices)).await;
        answer.map_err(|status| failed(&rpc_text(&status)))
    }
}

fn stopped(resource: &str) -> String {
    format!("endpoint {resource} has been stopped")
}

/// The answer for the one container that was requested.
fn response(answer: Result<AllocateResponse, Status>) -> Result<ContainerAllocateResponse, String> {
    let answer = answer.map_err(|status| rpc_text(&status))?;
    let first = answer.container_responses.into_iter().next();
    let first =
        first.ok_or_else(|| "no containers return in allocation response &AllocateResponse{}".to_owned())?;
    match first.encoded_len() {
        bytes if bytes > RESPONSE_BYTES_MAX => Err(format!(
            "allocation response of {bytes} bytes is larger than {RESPONSE_BYTES_MAX}"
        )),
        _ => Ok(first),
    }
}
