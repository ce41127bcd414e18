//! Steps of a round that tenants can make long: they take turns on threads of their own, charged to the namespace.

use crate::views::Selector;
use machinery_client::Object;
use machinery_runtime::{HeavyFlow, Runtime};
use std::sync::Arc;

/// Lookups and comparisons that a round does on the thread where it is: a few milliseconds.
pub(crate) const LIGHT: usize = 65_536;

/// The flow of a controller's heavy work for a namespace.
pub(crate) fn flow(controller: &str, namespace: &str) -> HeavyFlow {
    HeavyFlow::of_component(controller, namespace)
}

/// Takes a step of so many comparisons: here where they are few, in the turn of its namespace where they are many.
pub(crate) async fn step<T: Send + 'static>(
    runtime: &Runtime,
    flow: impl FnOnce() -> HeavyFlow,
    comparisons: usize,
    step: impl FnOnce() -> T + Send + 'static,
) -> T {
    match comparisons > LIGHT {
        true => runtime.heavy(flow(), step).await,
        false => step(),
    }
}

/// Objects, in their order: those that a selector selects, and the others.
pub(crate) type Split<P> = (Vec<Arc<Object<P>>>, Vec<Arc<Object<P>>>);

/// Splits objects by a selector; see [`step`].
pub(crate) async fn split<P: Send + Sync + 'static>(
    runtime: &Runtime,
    flow: impl FnOnce() -> HeavyFlow,
    selector: &Selector,
    objects: Vec<Arc<Object<P>>>,
) -> Split<P> {
    let comparisons = selector.comparisons().saturating_mul(objects.len());
    let selector = selector.clone();
    let split = move || {
        objects
            .into_iter()
            .partition(|object| selector.matches(&object.header))
    };
    step(runtime, flow, comparisons, split).await
}
