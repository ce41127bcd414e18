//! Deletion of expired tokens, each at its own time (upstream's `tokencleaner`).

use super::tokens;
use super::view::{Expiration, TokenView};
use crate::context::ControllerContext;
use crate::descriptor::ControllerDescriptor;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret;
use machinery_client::{ApiResource, Client, DeleteOptions, Informer, Precondition};
use machinery_meta::ObjectKey;
use machinery_reconcile::{Outcome, ReconcileError, Reconciler};
use machinery_runtime::Runtime;
use std::time::Duration;

/// Upstream has it off until an installer turns it on.
pub(crate) const ROW: ControllerDescriptor = ControllerDescriptor {
    name: "token-cleaner-controller",
    queue: "token_cleaner",
    service_account: "token-cleaner",
    default: true,
    start,
};

fn start(context: &ControllerContext) -> BoxFuture<'static, ()> {
    let tokens = tokens(context);
    let controller = ROW.controller(&context.runtime).watches(&tokens, |change| {
        let ends = change
            .new
            .as_ref()
            .filter(|own| own.expiration != Expiration::Never);
        ends.map(|own| own.key().clone())
    });
    controller.run(Cleaner {
        client: context.client(ROW.service_account),
        runtime: context.runtime.clone(),
        tokens,
    })
}

struct Cleaner {
    client: Client,
    runtime: Runtime,
    tokens: Informer<TokenView>,
}

impl Reconciler for Cleaner {
    type Key = ObjectKey;

    fn reconcile<'a>(&'a self, key: &'a ObjectKey) -> BoxFuture<'a, Result<Outcome, ReconcileError>> {
        Box::pin(async move {
            let Some(token) = self.tokens.get(key).filter(|own| !own.header.is_deleting()) else {
                return Ok(Outcome::Done);
            };
            let now = self.runtime.now();
            match token.expiration {
                own if own.is_over(now) => {}
                Expiration::At(at) => {
                    let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
                    return Ok(Outcome::RequeueAfter(left));
                }
                _ => return Ok(Outcome::Done),
            }
            let options = DeleteOptions {
                precondition: Precondition::uid(token.uid()),
                ..DeleteOptions::default()
            };
            match self
                .client
                .delete(&ApiResource::of::<Secret>(), key, &options)
                .await
            {
                // Gone, or another of its name.
                Err(error) if error.is_not_found() || error.is_conflict() => Ok(Outcome::Done),
                other => other
                    .map(|_| Outcome::Done)
                    .map_err(ReconcileError::doing("deleting an expired bootstrap token")),
            }
        })
    }
}
