//! Label selectors as objects write them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as ApiSelector;
use machinery_meta::label_selector::{LabelSelector, Operator, ParseSelectorError};

/// Compiles an object's selector. An absent one matches nothing (`None`), an empty one everything.
///
/// # Errors
/// An operator is unknown or does not fit its values; validation refuses such objects.
pub fn from_api(selector: Option<&ApiSelector>) -> Result<Option<LabelSelector>, ParseSelectorError> {
    let Some(selector) = selector else { return Ok(None) };
    let mut out = LabelSelector::from_pairs(
        selector
            .match_labels
            .iter()
            .flatten()
            .map(|(k, v)| (k.clone(), v.clone())),
    );
    let expressions = selector.match_expressions.iter().flatten();
    out.require_all(expressions.map(|expression| {
        let operator = operator(&expression.operator)?;
        let values = expression.values.clone().unwrap_or_default();
        Ok((expression.key.as_str(), operator, values))
    }))?;
    Ok(Some(out))
}

/// The operator of a `matchExpressions` by its name.
///
/// # Errors
/// There is none of that name.
pub fn operator(text: &str) -> Result<Operator, ParseSelectorError> {
    Ok(match text {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        other => {
            return Err(ParseSelectorError(format!(
                "{other:?} is not a valid label selector operator"
            )));
        }
    })
}
