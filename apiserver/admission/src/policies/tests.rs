use super::{ParamSource, Policies, PolicyObserver, PolicyRun};
use async_trait::async_trait;
use machinery_meta::GroupVersionKind;
use machinery_meta::label_selector::LabelSelector;
use machinery_meta::reader::ObjectReader;
use machinery_schema::Tree;
use std::sync::Arc;

/// No parameters, and nobody who counts.
#[derive(Debug)]
struct Nobody;

#[async_trait]
impl ParamSource for Nobody {
    fn is_namespaced(&self, _: &GroupVersionKind) -> Option<bool> {
        None
    }

    async fn get(&self, _: &GroupVersionKind, _: &str, _: &str) -> Result<Option<Tree>, String> {
        Ok(None)
    }

    async fn list(
        &self,
        _: &GroupVersionKind,
        _: &str,
        _: &LabelSelector,
        _: usize,
    ) -> Result<Vec<Tree>, String> {
        Ok(Vec::new())
    }
}

impl PolicyObserver for Nobody {
    fn validated(&self, _: PolicyRun<'_>, _: &'static str) {}

    fn mutated(&self, _: PolicyRun<'_>) {}
}

/// Policies of a server that has none.
pub(crate) fn none(reader: &Arc<dyn ObjectReader>) -> Arc<Policies> {
    let runtime = machinery_runtime::Simulation::new(1).runtime();
    Policies::new(Arc::clone(reader), Arc::new(Nobody), runtime, Arc::new(Nobody))
}
