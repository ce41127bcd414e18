//! ValidatingAdmissionWebhook: all webhooks that a request matches are called at once, and any may refuse it.

use super::Webhooks;
use super::call::{Invocation, in_time};
use super::conditions;
use crate::host::Equivalent;
use crate::matching::{Objects, Selection};
use crate::{AdmissionError, Operation, Plugin, Request, Step};
use async_trait::async_trait;
use futures::future::join_all;
use machinery_schema::Tree;
use std::sync::Arc;
use std::time::Duration;

const FAILED_OPEN: &str = "failed-open.validating.webhook.admission.k8s.io/";

/// See the module.
pub struct ValidatingWebhooks(Arc<Webhooks>);

impl ValidatingWebhooks {
    pub fn new(webhooks: &Arc<Webhooks>) -> Self {
        Self(Arc::clone(webhooks))
    }
}

/// The objects of a request in one version.
struct Version {
    to: Equivalent,
    new: Option<Tree>,
    old: Option<Tree>,
}

#[async_trait]
impl Plugin for ValidatingWebhooks {
    fn name(&self) -> &'static str {
        "ValidatingAdmissionWebhook"
    }

    fn steps(&self) -> &'static [Step] {
        &[Step::Validate]
    }

    fn operations(&self) -> &'static [Operation] {
        Operation::ALL
    }

    fn handles(&self, request: &Request<'_>) -> bool {
        !self.0.validating.load().is_empty() && super::may_see(request)
    }

    async fn validate(
        &self,
        request: &Request<'_>,
        object: Option<&Tree>,
        old: Option<&Tree>,
    ) -> Result<(), AdmissionError> {
        let Some(selection) = Selection::new(request, &*self.0.reader) else {
            return Ok(());
        };
        let objects = Objects { new: object, old };
        let all = self.0.validating.load_full();
        let (mut called, mut versions) = (Vec::new(), Vec::new());
        for webhook in all.iter() {
            if let Some(to) = selection.matching(&webhook.constraints, objects).await? {
                let at = self.version(&selection, objects, &to, &mut versions).await?;
                let own = in_version(objects, at, &versions);
                if conditions::hold(webhook, &selection, &to, own, &self.0.runtime).await? {
                    called.push((webhook, to, at));
                }
            }
        }
        if called.is_empty() {
            return Ok(());
        }
        in_time(&selection)?;
        let _held = self.0.hold(&selection, objects, called.len())?;
        let calls = called.iter().enumerate().map(|(index, (webhook, to, at))| {
            let invocation = Invocation {
                webhook,
                to,
                selection: &selection,
            };
            let objects = in_version(objects, *at, &versions);
            self.call(invocation, objects, index)
        });
        let begun = self.0.runtime.monotonic();
        let ends = join_all(calls).await;
        selection.host.waited(false, self.since(begun));
        ends.into_iter().collect()
    }
}

/// The objects of a request in the version at this place; without one they are the request's own.
fn in_version<'a>(objects: Objects<'a>, at: Option<usize>, versions: &'a [Version]) -> Objects<'a> {
    at.and_then(|at| versions.get(at)).map_or(objects, |own| Objects {
        new: own.new.as_ref(),
        old: own.old.as_ref(),
    })
}

impl ValidatingWebhooks {
    fn since(&self, begun: Duration) -> Duration {
        self.0.runtime.monotonic().saturating_sub(begun)
    }

    async fn call(
        &self,
        invocation: Invocation<'_>,
        objects: Objects<'_>,
        index: usize,
    ) -> Result<(), AdmissionError> {
        let begun = self.0.runtime.monotonic();
        let called = self.0.call(&invocation, objects, Step::Validate).await;
        let key = || format!("{FAILED_OPEN}round_0_index_{index}");
        self.0
            .settle(&invocation, Step::Validate, self.since(begun), called.err(), key)
    }

    /// The place of the objects in a webhook's version among those that are there; `None` for the request's own.
    async fn version(
        &self,
        selection: &Selection<'_>,
        objects: Objects<'_>,
        to: &Equivalent,
        versions: &mut Vec<Version>,
    ) -> Result<Option<usize>, AdmissionError> {
        let host = selection.host;
        if to.kind == *host.kind() {
            return Ok(None);
        }
        if let Some(at) = versions.iter().position(|own| own.to.kind == to.kind) {
            return Ok(Some(at));
        }
        let own = selection.own_version();
        versions.push(Version {
            to: to.clone(),
            new: selection.converted(objects.new, &own, to).await?,
            old: selection.converted(objects.old, &own, to).await?,
        });
        Ok(Some(versions.len() - 1))
    }
}

impl std::fmt::Debug for ValidatingWebhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValidatingWebhooks").finish_non_exhaustive()
    }
}
