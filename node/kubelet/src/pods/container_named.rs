//! A pod's container by its name.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::{Container, Pod};

use super::ephemeral::ephemeral_containers;
use super::{ContainerKind, all_containers};

/// The container of a name, of whatever kind.
pub(crate) fn container_named<'a>(pod: &'a Pod, name: &str) -> Option<(ContainerKind, Cow<'a, Container>)> {
    let lasting = all_containers(pod).map(|(kind, container)| (kind, Cow::Borrowed(container)));
    let ephemeral =
        ephemeral_containers(pod).map(|container| (ContainerKind::Ephemeral, Cow::Owned(container)));
    lasting
        .chain(ephemeral)
        .find(|(_, container)| container.name == name)
}
