//! Steps of a round that tenants can make long: they take turns on threads of their own, charged to the namespace.

use machinery_runtime::HeavyFlow;

/// Lookups and comparisons that a round does on the thread where it is: a few milliseconds.
pub(crate) const LIGHT: usize = 65_536;

/// The flow of a controller's heavy work for a namespace: what one namespace owes delays no other's.
pub(crate) fn flow(controller: &str, namespace: &str) -> HeavyFlow {
    HeavyFlow::of_account(format!("{controller} of {namespace}")).within(namespace)
}
