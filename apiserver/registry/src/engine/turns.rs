//! Turns among the heavy work for pieces of a request that are large.

use crate::engine::context::{LARGE_BODY_BYTES, flow_of};
use machinery_meta::UserInfo;
use machinery_runtime::{HeavyFlow, Runtime};
use std::sync::Arc;

/// The account of work that no request caused.
const OWN_ACCOUNT: &str = "system:apiserver";

/// The user of a request and the namespace of its address: the owner of the work that reading for it takes.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    pub(crate) user: Arc<UserInfo>,
    pub(crate) namespace: Arc<str>,
}

/// Turns of one flow.
#[derive(Debug, Clone)]
pub(crate) struct Turns {
    runtime: Runtime,
    flow: HeavyFlow,
}

impl Turns {
    /// Turns of a reader, or of the server itself.
    pub(crate) fn of(runtime: &Runtime, reader: Option<&Reader>) -> Self {
        let flow = reader.map(|reader| flow_of(&reader.user, &reader.namespace));
        Self {
            runtime: runtime.clone(),
            flow: flow.unwrap_or_else(|| HeavyFlow::of_account(OWN_ACCOUNT)),
        }
    }

    /// The result of work on so many bytes: where they are few at once, otherwise as one piece of the heavy work.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        if bytes < LARGE_BODY_BYTES {
            return work();
        }
        self.runtime.heavy(self.flow.clone(), work).await
    }
}
