//! Bootstrap tokens, which are Secrets of type `bootstrap.kubernetes.io/token` in `kube-system`: expired ones are deleted, and
//! the ConfigMap `cluster-info` of `kube-public` is signed with each that is for signing, so that its bearer can verify it.
//!
//! Watches: those Secrets, and that ConfigMap. Tokens are read when they are needed, and not kept.

mod clean;
mod jws;
mod sign;
#[cfg(test)]
mod tests;
pub(crate) mod view;

pub(crate) use clean::ROW as CLEANER_ROW;
pub(crate) use sign::ROW as SIGNER_ROW;

use crate::context::ControllerContext;
use k8s_openapi::api::core::v1::Secret;
use machinery_client::{Informer, ListWatch};
use view::TokenView;

const NAMESPACE: &str = "kube-system";
const TYPE: &str = "bootstrap.kubernetes.io/token";

fn tokens(context: &ControllerContext) -> Informer<TokenView> {
    let source = ListWatch::of::<Secret>().fields(format!("type={TYPE}"));
    context.informers.informer(source.in_namespace(NAMESPACE))
}
