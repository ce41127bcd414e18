//! Match conditions: expressions that must all be true of a request (upstream's `matchconditions`), compiled with their configuration.

use super::Webhook;
use crate::AdmissionError;
use crate::expressions::{Expression, Inputs, Matched, matched};
use crate::host::Equivalent;
use crate::matching::{Objects, Selection, request};
use crate::rejection::cut;
use machinery_cel::{AdmissionVariables, Env, Type, admission_env};
use machinery_runtime::Runtime;
use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;

static ENV: LazyLock<Env> = LazyLock::new(|| {
    let variables = AdmissionVariables {
        authorizer: true,
        ..AdmissionVariables::default()
    };
    admission_env(variables).for_stored()
});

pub(super) fn compile(text: &str) -> Expression {
    Expression::compile(&ENV, text, &[Type::Bool]).0
}

/// Reports whether a webhook's conditions hold for a request that its rules and selectors match, which is in its version.
pub(super) async fn hold(
    webhook: &Webhook,
    selection: &Selection<'_>,
    to: &Equivalent,
    objects: Objects<'_>,
    runtime: &Runtime,
) -> Result<bool, AdmissionError> {
    if webhook.conditions.is_empty() {
        return Ok(true);
    }
    let request = request::of_conditions(request::json(selection, to));
    let inputs = Inputs {
        selection,
        objects,
        request: &request,
        namespace: None,
        params: None,
        variables: None,
        runtime: None,
        work: &AtomicU64::new(0),
    };
    selection.host.heavy_from(inputs.bytes()).await?;
    match matched(&webhook.conditions, &inputs).await?.0 {
        Matched::Yes => Ok(true),
        Matched::No => Ok(false),
        Matched::Failed(_) if webhook.ignores_failure => Ok(false),
        Matched::Failed(why) => {
            let why = cut(why);
            if let Some(left_out) = webhook.log.should_log(runtime.monotonic()) {
                let webhook = &webhook.name;
                tracing::warn!(webhook, %why, left_out, "failed evaluating match conditions, failing closed");
            }
            Err(AdmissionError::Forbidden(why))
        }
    }
}
