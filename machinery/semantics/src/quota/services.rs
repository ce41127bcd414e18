//! Services: their number, that of load balancers and of node ports.

use super::measured::{Amounts, Measured, Usage};
use k8s_openapi::api::core::v1::Service;
use machinery_meta::Quantity;

const NODE_PORTS: &str = "services.nodeports";
const LOAD_BALANCERS: &str = "services.loadbalancers";
pub(super) const RESOURCES: [&str; 4] = ["count/services", "services", NODE_PORTS, LOAD_BALANCERS];

/// The measure of a service.
pub fn service(service: &Service) -> Measured {
    let spec = service.spec.as_ref();
    let ports = || spec.into_iter().flat_map(|spec| spec.ports.iter().flatten());
    let (mut node_ports, mut load_balancers) = (0, 0);
    match spec.and_then(|spec| spec.type_.as_deref()) {
        Some("NodePort") => node_ports = ports().count(),
        Some("LoadBalancer") => {
            let allocates = spec.and_then(|spec| spec.allocate_load_balancer_node_ports);
            node_ports = match allocates {
                Some(false) => ports().filter(|port| port.node_port.unwrap_or(0) != 0).count(),
                _ => ports().count(),
            };
            load_balancers = 1;
        }
        _ => {}
    }
    let amount = |count: usize| Quantity::from_units(i64::try_from(count).unwrap_or(i64::MAX));
    let usage: Amounts = Box::new([
        ("count/services".into(), amount(1)),
        ("services".into(), amount(1)),
        (NODE_PORTS.into(), amount(node_ports)),
        (LOAD_BALANCERS.into(), amount(load_balancers)),
    ]);
    Measured {
        usage: Usage::Named(usage),
        ..Measured::default()
    }
}
