//! What may change or refuse a write before it is stored.
//!
//! The plugins run in the order of [`plugins::all`]: first every one that may change the object, then, once it is
//! complete and valid, every one that may only refuse it. Which requests a plugin handles the plugin says itself.
//!
//! Objects are read through [`ObjectReader`](machinery_meta::reader::ObjectReader); storage, HTTP and `Status` are not
//! known here. Webhooks and CEL policies will be further plugins.

mod error;
pub mod permissions;
pub mod plugins;
mod request;

pub use error::AdmissionError;
pub use request::{Operation, Request};

use async_trait::async_trait;
use machinery_schema::Tree;

/// One plugin.
#[async_trait]
pub trait Plugin: Send + Sync {
    /// Upstream's name, as `--enable-admission-plugins` has it.
    fn name(&self) -> &'static str;

    /// Whether the plugin has anything to say about such a request.
    fn handles(&self, request: &Request<'_>) -> bool;

    /// May change the object.
    async fn mutate(
        &self,
        _request: &Request<'_>,
        _object: &mut Tree,
        _old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        Ok(())
    }

    /// May refuse; the object is absent on delete.
    async fn validate(
        &self,
        _request: &Request<'_>,
        _object: Option<&Tree>,
        _old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        Ok(())
    }
}

/// Plugins in running order.
pub struct AdmissionChain(Vec<Box<dyn Plugin>>);

impl std::fmt::Debug for AdmissionChain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.0.iter().map(|plugin| plugin.name()))
            .finish()
    }
}

impl AdmissionChain {
    pub fn new(plugins: Vec<Box<dyn Plugin>>) -> Self {
        Self(plugins)
    }

    fn asked<'a>(&'a self, request: &'a Request<'_>) -> impl Iterator<Item = &'a dyn Plugin> {
        self.0
            .iter()
            .map(|plugin| &**plugin)
            .filter(move |plugin| plugin.handles(request))
    }

    pub async fn mutate(
        &self,
        request: &Request<'_>,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        for plugin in self.asked(request) {
            plugin.mutate(request, object, old).await?;
        }
        Ok(())
    }

    pub async fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        for plugin in self.asked(request) {
            plugin.validate(request, object, old).await?;
        }
        Ok(())
    }
}
