//! Plugins that change or refuse a write before it is stored.
//!
//! They run in the order of [`plugins::all`]: first every plugin that may change the object, then, once the object is
//! complete and valid, every one that may only refuse it. Each plugin decides which requests it handles.
//!
//! A request comes by the registry's door to [`RequestAdmission`], which the server assembles at its start: the plugins
//! change it, the `rules` that upstream has in its registry look at it, the plugins refuse it, and `refusals` makes errors
//! of the registry of what they say.
//!
//! Plugins read objects through [`ObjectReader`](machinery_meta::reader::ObjectReader); storage, HTTP and `Status` are
//! not known here. Webhooks are plugins as well ([`webhooks`]): what they need beyond a [`Request`]'s names they ask of its
//! [`Host`]. Where one of them changes the object, all mutating plugins see it a second time ([`Reinvocation`]).

mod error;
mod expressions;
mod host;
mod matching;
pub mod permissions;
pub mod plugins;
pub mod policies;
mod refusals;
mod reinvocation;
mod rejection;
mod remarks;
mod request;
mod request_admission;
mod request_host;
mod request_remarks;
mod rules;
mod timing;
pub mod webhooks;

pub use error::AdmissionError;
pub use host::{Equivalent, Held, Host};
pub use machinery_meta::Operation;
pub use reinvocation::{Caller, Reinvocation};
pub use rejection::{Rejection, RejectionCause, RejectionDetails};
pub use remarks::{Remarks, Unheard};
pub use request::Request;
pub use request_admission::RequestAdmission;
pub use request_host::WaitingMemory;
pub use rules::RuleParts;
pub use timing::{Observer, PluginRun, Step};

use async_trait::async_trait;
use machinery_schema::Tree;
use std::fmt;
use std::sync::Arc;
use timing::Timing;

/// One plugin.
#[async_trait]
pub trait Plugin: Send + Sync {
    /// Upstream's name, as `--enable-admission-plugins` has it.
    fn name(&self) -> &'static str;

    /// Upstream's steps of this plugin: its time is counted in these alone.
    fn steps(&self) -> &'static [Step];

    /// Upstream's operations of this plugin: a request with one of them is counted, whatever its resource.
    fn operations(&self) -> &'static [Operation];

    /// Reports whether the plugin applies to the request; the chain calls `mutate` and `validate` only then.
    fn handles(&self, request: &Request<'_>) -> bool;

    /// Mutates the object.
    async fn mutate(
        &self,
        _request: &Request<'_>,
        _object: &mut Tree,
        _old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        Ok(())
    }

    /// Validates the request; the object is absent on delete.
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
pub struct AdmissionChain {
    plugins: Vec<Box<dyn Plugin>>,
    observer: Option<Arc<dyn Observer>>,
}

impl fmt::Debug for AdmissionChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.plugins.iter().map(|plugin| plugin.name()))
            .finish()
    }
}

impl AdmissionChain {
    pub fn new(plugins: Vec<Box<dyn Plugin>>) -> Self {
        Self {
            plugins,
            observer: None,
        }
    }

    /// Reports the durations of plugins to the observer.
    pub fn observe(&mut self, observer: Arc<dyn Observer>) {
        self.observer = Some(observer);
    }

    /// Number of plugins.
    pub fn len(&self) -> usize {
        self.plugins.len()
    }

    pub fn is_empty(&self) -> bool {
        self.plugins.is_empty()
    }

    fn numbered(&self) -> impl Iterator<Item = (usize, &dyn Plugin)> {
        self.plugins.iter().map(|plugin| &**plugin).enumerate()
    }

    pub async fn mutate(
        &self,
        request: &Request<'_>,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let mut timing = Timing::begin(self.observer.as_deref(), Step::Admit, request.operation);
        let state = Reinvocation::default();
        let request = Request {
            reinvocation: Some(&state),
            ..*request
        };
        let mut done = self.pass(&mut timing, &request, object, old).await;
        if done.is_ok() && state.begin_second() {
            done = self.pass(&mut timing, &request, object, old).await;
        }
        timing.ended(done.is_err());
        done
    }

    /// One pass over the plugins that may change the object.
    async fn pass(
        &self,
        timing: &mut Timing<'_>,
        request: &Request<'_>,
        object: &mut Tree,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        for (at, plugin) in self.numbered() {
            let step = counted_step(plugin, Step::Admit);
            if !plugin.handles(request) {
                timing.passed(at, plugin, step);
                continue;
            }
            let done = plugin.mutate(request, object, old).await;
            timing.plugin(at, plugin.name(), step, done.is_err());
            done?;
        }
        Ok(())
    }

    /// Asks whether the request may be. A delete passes both steps, as upstream's: it has no object that could be changed, so
    /// that plugins of the first step alone look at it there.
    pub async fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        if request.operation == Operation::Delete {
            self.examine(Step::Admit, request, object, old).await?;
        }
        self.examine(Step::Validate, request, object, old).await
    }

    async fn examine(
        &self,
        step: Step,
        request: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let mut timing = Timing::begin(self.observer.as_deref(), step, request.operation);
        let mut done = Ok(());
        for (at, plugin) in self.numbered() {
            let counted = counted_step(plugin, step);
            if !plugin.handles(request) || examining_step(plugin, request.operation) != step {
                timing.passed(at, plugin, counted);
                continue;
            }
            done = plugin.validate(request, object, old).await;
            timing.plugin(at, plugin.name(), counted, done.is_err());
            if done.is_err() {
                break;
            }
        }
        timing.ended(done.is_err());
        done
    }
}

/// The step, where upstream's plugin has it.
fn counted_step(plugin: &dyn Plugin, step: Step) -> Option<Step> {
    plugin.steps().contains(&step).then_some(step)
}

/// The step in which a plugin may refuse such a request without changing it.
fn examining_step(plugin: &dyn Plugin, operation: Operation) -> Step {
    match operation == Operation::Delete && plugin.steps() == [Step::Admit] {
        true => Step::Admit,
        false => Step::Validate,
    }
}
