//! Service: addresses are `IPAddress` objects, node ports bits of one range; both land with the service.
//!
//! `families` fills what follows from others before anything is taken; [`allocate`] takes and gives back; there is no
//! state in the process, and the group of writes makes it impossible to lose an address halfway. What somebody broke by
//! other ways is put right by [`repair`].

mod allocate;
mod cluster_ips;
mod families;
mod not_enforced;
mod port_range;
mod ports;
mod range;
pub mod repair;
pub mod validation;
mod warnings;

pub use port_range::NodePorts;

use crate::context::RequestContext;
use crate::error::RegistryError;
use crate::kind::{Kind, NameRule, Traits};
use crate::registry::Registry;
use crate::strategy::{AllocationChange, ObjectPart, Strategy, name_rule};
use crate::validation_rules::ValidationRules;
use apiserver_storage::Write;
use async_trait::async_trait;
use machinery_meta::syntax;
use machinery_schema::{Ref, Tree};

pub(crate) static KIND: Kind = Kind::of("", "services")
    .traits(Traits::PLAIN.named(NameRule::Label).put_creates().returned())
    .fields_not_enforced(not_enforced::fields);

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServiceStrategy;

#[async_trait]
impl Strategy for ServiceStrategy {
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        name_rule(syntax::dns1123_label, name, prefix)
    }

    fn defaults(&self, object: &mut Tree) {
        crate::defaults::apply("", "services", object);
        families::defaults(object);
    }

    fn prepare_for_create(&self, _ctx: &RequestContext, object: &mut Tree) {
        families::normalise(object, None);
    }

    fn prepare_for_update(&self, _ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
        if part != ObjectPart::Status {
            families::normalise(object, Some(old));
        }
    }

    fn counts_generation(&self) -> bool {
        false
    }

    fn allows_create_on_update(&self) -> bool {
        true
    }

    fn returns_deleted_object(&self) -> bool {
        true
    }

    fn rules(&self) -> ValidationRules {
        ValidationRules::create(validation::validate)
            .update(validation::validate_update)
            .status(validation::validate_status_update)
    }

    fn warnings(&self, object: Ref<'_>, _old: Option<Ref<'_>>) -> Vec<String> {
        warnings::of(object)
    }

    fn allocates(&self) -> bool {
        true
    }

    async fn allocate(
        &self,
        ctx: &RequestContext,
        registry: &Registry,
        change: AllocationChange<'_>,
        object: &mut Tree,
    ) -> Result<Vec<Write>, RegistryError> {
        let mut writes = allocate::addresses(ctx, registry, change, object).await?;
        writes.extend(ports::allocate(ctx, registry, change, object).await?);
        Ok(writes)
    }
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

/// Its ports are open on every node.
fn needs_node_ports(service: Ref<'_>) -> bool {
    let opted_out = service
        .at(&["spec", "allocateLoadBalancerNodePorts"])
        .and_then(Ref::as_bool)
        == Some(false);
    match service_type(service) {
        "NodePort" => true,
        "LoadBalancer" => !opted_out,
        _ => false,
    }
}

/// The kubelets' health check of a load balancer that keeps client addresses.
fn needs_health_port(service: Ref<'_>) -> bool {
    service_type(service) == "LoadBalancer" && service.str_at(&["spec", "externalTrafficPolicy"]) == "Local"
}
