//! The parts of a pod that checks look at.

use k8s_openapi::api::core::v1::{
    Container as ApiContainer, ContainerPort, EphemeralContainer, Lifecycle, PodSecurityContext, PodSpec,
    Probe, SecurityContext,
};
use std::collections::BTreeMap;

/// A pod or a template of pods.
#[derive(Debug, Clone, Copy)]
pub struct Pod<'a> {
    /// Of its metadata.
    pub annotations: Option<&'a BTreeMap<String, String>>,
    /// Containers, volumes and all else that it runs with.
    pub spec: &'a PodSpec,
}

/// A container of whatever sort.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Container<'a> {
    pub(crate) name: &'a str,
    pub(crate) security: Option<&'a SecurityContext>,
    pub(crate) ports: Option<&'a Vec<ContainerPort>>,
    pub(crate) probes: [Option<&'a Probe>; 3],
    pub(crate) lifecycle: Option<&'a Lifecycle>,
}

impl<'a> From<&'a ApiContainer> for Container<'a> {
    fn from(own: &'a ApiContainer) -> Self {
        let probes = [&own.liveness_probe, &own.readiness_probe, &own.startup_probe];
        Self {
            name: &own.name,
            security: own.security_context.as_ref(),
            ports: own.ports.as_ref(),
            probes: probes.map(Option::as_ref),
            lifecycle: own.lifecycle.as_ref(),
        }
    }
}

impl<'a> From<&'a EphemeralContainer> for Container<'a> {
    fn from(own: &'a EphemeralContainer) -> Self {
        let probes = [&own.liveness_probe, &own.readiness_probe, &own.startup_probe];
        Self {
            name: &own.name,
            security: own.security_context.as_ref(),
            ports: own.ports.as_ref(),
            probes: probes.map(Option::as_ref),
            lifecycle: own.lifecycle.as_ref(),
        }
    }
}

impl<'a> Pod<'a> {
    /// Init containers, containers and ephemeral containers, in upstream's order.
    pub(crate) fn containers(&self) -> impl Iterator<Item = Container<'a>> {
        let spec = self.spec;
        let init = spec.init_containers.iter().flatten().map(Container::from);
        let ephemeral = spec.ephemeral_containers.iter().flatten().map(Container::from);
        init.chain(spec.containers.iter().map(Container::from))
            .chain(ephemeral)
    }

    /// Names of the containers of which something is true.
    pub(crate) fn names(&self, is: impl FnMut(&Container<'a>) -> bool) -> Vec<&'a str> {
        self.containers().filter(is).map(|own| own.name).collect()
    }

    pub(crate) fn security(&self) -> Option<&'a PodSecurityContext> {
        self.spec.security_context.as_ref()
    }

    pub(crate) fn annotation(&self, key: &str) -> Option<&'a str> {
        self.annotations?.get(key).map(String::as_str)
    }

    /// Validation keeps Linux' security fields out of such a pod.
    pub(crate) fn is_of_windows(&self) -> bool {
        self.spec.os.as_ref().is_some_and(|os| os.name == "windows")
    }

    /// Root in it has no rights outside of it.
    pub(crate) fn has_user_namespace(&self) -> bool {
        self.spec.host_users == Some(false)
    }
}
