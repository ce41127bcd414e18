//! Changes that the expressions of mutating policies make of an object.

use super::definition::Mutation;
use crate::AdmissionError;
use crate::expressions::{Expression, Inputs, Unevaluated, evaluate};
use crate::matching::{PatchFailure, strictly_patched};
use machinery_cel::{Object, RUNTIME_BUDGET, Value};
use machinery_schema::apply::Typed;
use machinery_schema::patch::PatchError;
use machinery_schema::{Strictness, Tree, decode_json, to_untyped};
use serde_json::{Map, Value as Json, json};

/// The reason for which a mutation is not made.
#[derive(Debug)]
pub(super) enum Failure {
    /// The failure policy decides.
    Mutation(String),
    /// The request ends.
    Request(AdmissionError),
}

impl From<Unevaluated> for Failure {
    fn from(why: Unevaluated) -> Self {
        match why {
            Unevaluated::OutOfBudget(why) => Self::Mutation(why),
            Unevaluated::Request(error) => Self::Request(error),
        }
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Self {
        Self::Mutation(why)
    }
}

/// An object with a mutation, and what the expression did cost.
pub(super) struct Mutated {
    /// `None` where the object stays as it is.
    pub(super) object: Option<Tree>,
    pub(super) cost: u64,
}

/// Makes one mutation of an object.
///
/// # Errors
/// See [`Failure`].
pub(super) async fn mutated(
    mutation: &Mutation,
    object: &Tree,
    inputs: &Inputs<'_>,
) -> Result<Mutated, Failure> {
    let (expression, is_patch) = match mutation {
        Mutation::Apply(own) => (own, false),
        Mutation::JsonPatch(own) => (own, true),
    };
    if let Some(why) = expression.problem() {
        return Err(why.to_owned().into());
    }
    let (json, cost) = evaluated(expression, is_patch, inputs).await?;
    let text = json.to_string();
    let host = inputs.selection.host;
    let heavy = host.heavy_from(text.len() + object.arena_bytes()).await;
    heavy.map_err(Failure::Request)?;
    let object = match is_patch {
        true => json_patch(object, &text, host.is_custom())?,
        false => Some(apply(object, json)?),
    };
    Ok(Mutated { object, cost })
}

async fn evaluated(
    expression: &Expression,
    is_patch: bool,
    inputs: &Inputs<'_>,
) -> Result<(Json, u64), Failure> {
    let take = |value: &Value<'_>| match is_patch {
        true => operations(value),
        false => value.to_json().map_err(|error| error.0),
    };
    let mut done = evaluate(&[Some(expression)], inputs, RUNTIME_BUDGET, take).await?;
    let value = done.values.pop().flatten();
    let value = value.ok_or_else(|| "there is no expression".to_owned())?.result?;
    Ok((value, RUNTIME_BUDGET - done.left))
}

/// The operations of a JSON patch.
fn operations(value: &Value<'_>) -> Result<Json, String> {
    const NO_LIST: &str = "type mismatch: JSONPatchType.expression should evaluate to array of JSONPatch";
    let Value::List(list) = value else {
        return Err(NO_LIST.to_owned());
    };
    let operation = |own: Value<'_>| match &own {
        Value::Object(own) => operation(own),
        _ => Err(NO_LIST.to_owned()),
    };
    let each = list
        .iter()
        .map(|own| own.map_err(|error| error.to_string()).and_then(operation));
    each.collect::<Result<Vec<Json>, String>>().map(Json::Array)
}

fn operation(own: &Object<'_>) -> Result<Json, String> {
    let text = |name: &str| own.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut out = Map::new();
    out.insert("op".to_owned(), json!(text("op")));
    out.insert("path".to_owned(), json!(text("path")));
    if !text("from").is_empty() {
        out.insert("from".to_owned(), json!(text("from")));
    }
    if let Some(value) = own.get("value") {
        let mut value = value.to_json().map_err(|error| {
            format!(
                "JSONPath valueExpression evaluated to a type that could not marshal to JSON: {}",
                error.0
            )
        })?;
        large_integers_as_text(&mut value);
        out.insert("value".to_owned(), value);
    }
    Ok(Json::Object(out))
}

/// Go's protobuf value holds numbers as doubles, and so writes integers that one cannot hold as text.
fn large_integers_as_text(value: &mut Json) {
    const LARGEST: i64 = 1 << 53;
    match value {
        Json::Number(number) => {
            let is_large = number
                .as_i64()
                .is_some_and(|own| !(-LARGEST..=LARGEST).contains(&own));
            if is_large || number.as_u64().is_some_and(|own| own > LARGEST.unsigned_abs()) {
                *value = number.to_string().into();
            }
        }
        Json::Array(items) => items.iter_mut().for_each(large_integers_as_text),
        Json::Object(members) => members.values_mut().for_each(large_integers_as_text),
        _ => {}
    }
}

/// The object with a JSON patch; a patch whose test fails changes nothing.
fn json_patch(object: &Tree, text: &str, is_custom: bool) -> Result<Option<Tree>, Failure> {
    match strictly_patched(object, text.as_bytes(), is_custom) {
        Ok(object) => Ok(Some(object)),
        Err(PatchFailure::Patch(PatchError::DoesNotApply(why))) if why.ends_with("test failed") => Ok(None),
        Err(PatchFailure::Patch(why)) => Err(format!("JSON Patch: {why}").into()),
        Err(why @ (PatchFailure::Object(_) | PatchFailure::Unknown(_))) => {
            Err(Failure::Request(AdmissionError::Internal(why.to_string())))
        }
    }
}

/// The object with a configuration merged into it, without owners of what it sets.
fn apply(object: &Tree, configuration: Json) -> Result<Tree, Failure> {
    let failed = |why: String| Failure::Mutation(format!("error applying patch: {why}"));
    let Json::Object(mut members) = configuration else {
        return Err(failed("the configuration is no object".to_owned()));
    };
    for name in ["apiVersion", "kind"] {
        members.insert(name.to_owned(), json!(object.str_at(&[name])));
    }
    let configuration = Tree::from_json(&Json::Object(members).to_string());
    let configuration = configuration.map_err(|error| failed(error.to_string()))?;
    let typed = |document| Typed {
        schema: object.schema(),
        ty: object.ty(),
        document,
    };
    let wanted = typed(&configuration);
    let problems = wanted.problems();
    if !problems.is_empty() {
        let problems = problems.join("\n");
        return Err(failed(format!(
            "failed to convert patch object to typed object: {problems}"
        )));
    }
    let atomics = wanted.atomics();
    if !atomics.is_empty() {
        let atomics = atomics.join(", ");
        return Err(failed(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {atomics}"
        )));
    }
    let live = to_untyped(object);
    let merged = typed(&live).merge(&configuration);
    let merged = merged.map_err(|error| failed(format!("failed to merge patch: {error}")))?;
    let text = merged.root().to_json();
    let decoded = decode_json(object.schema(), object.ty(), text.as_bytes(), Strictness::Ignore);
    decoded
        .map(|own| own.tree)
        .map_err(|error| failed(format!("failed to convert typed object to object: {error}")))
}
