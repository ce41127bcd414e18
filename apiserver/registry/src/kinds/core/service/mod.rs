//! Service: addresses are `IPAddress` objects, node ports bits of one range; both land with the service.
//!
//! `families` fills what follows from others before anything is taken; [`addresses`] and [`ports`] take and give back, within
//! the [`shares`] of namespaces; there is no
//! state in the process, and the group of writes makes it impossible to lose an address halfway. Damage from
//! elsewhere is put right by [`repair`].

mod addresses;
mod cluster_ips;
mod columns;
mod defaults;
mod families;
mod not_enforced;
mod port_range;
mod ports;
mod range;
pub mod repair;
pub(crate) mod shares;
pub mod validation;
mod warnings;

pub use crate::engine::node_ports::NodePorts;

use crate::engine::allocation::{Allocation, AllocationChange};
use crate::engine::context::RequestContext;
use crate::engine::kind::Kind;
use crate::engine::registry::Registry;
use crate::engine::selectable::Selectable;
use crate::engine::strategy::ObjectPart;
use crate::engine::traits::{NameRule, Traits};
use crate::engine::validation_rules::ValidationRules;
use machinery_schema::{Ref, Tree};

pub(crate) static KIND: Kind = Kind::of("", "services")
    .traits(Traits::PLAIN.named(NameRule::Label).put_creates().returned())
    .fields_not_enforced(not_enforced::fields)
    .rules(
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(validation::validate_status_update),
    )
    .defaults(families::defaults)
    .prepare_for_create(|_, object| families::normalise(object, None))
    .prepare_for_update(prepare_for_update)
    .warnings(|object, _| warnings::of(object))
    .default_lines(&[defaults::LINES])
    .columns(columns::cells)
    .selectable(|| Selectable::texts(["spec.clusterIP", "spec.type"]));

fn prepare_for_update(_ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
    if part != ObjectPart::Status {
        families::normalise(object, Some(old));
    }
}

/// Takes and gives back addresses, and ports of nodes.
pub(crate) fn allocate<'a>(
    ctx: &'a RequestContext,
    registry: &'a Registry,
    change: AllocationChange<'a>,
    object: &'a mut Tree,
) -> Allocation<'a> {
    Box::pin(async move {
        let mut writes = addresses::allocate(ctx, registry, change, object).await?;
        writes.extend(ports::allocate(ctx, registry, change, object).await?);
        Ok(writes)
    })
}

/// `ClusterIP`, `NodePort` … of a service.
fn service_type(service: Ref<'_>) -> &str {
    service.str_at(&["spec", "type"])
}

/// The service has, or is to have, an address of its own.
fn needs_address(service: Ref<'_>) -> bool {
    matches!(service_type(service), "ClusterIP" | "NodePort" | "LoadBalancer")
        && service.str_at(&["spec", "clusterIP"]) != "None"
}

/// Its ports may be open on every node.
fn may_have_node_ports(service: Ref<'_>) -> bool {
    matches!(service_type(service), "NodePort" | "LoadBalancer")
}

/// Its ports are to be open on every node; else only those are for which a node port is named.
fn allocates_node_ports(service: Ref<'_>) -> bool {
    let opted_out = service
        .at(&["spec", "allocateLoadBalancerNodePorts"])
        .and_then(Ref::as_bool)
        == Some(false);
    may_have_node_ports(service) && !(opted_out && service_type(service) == "LoadBalancer")
}

/// The kubelets' health check of a load balancer that keeps client addresses.
fn needs_health_port(service: Ref<'_>) -> bool {
    service_type(service) == "LoadBalancer" && service.str_at(&["spec", "externalTrafficPolicy"]) == "Local"
}
