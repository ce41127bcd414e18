//! Users made of claims by the rules of an issuer, in upstream's order and words.

use super::claims::Claims;
use crate::authn::structured::{JwtRules, Mapping, string_list};
use machinery_meta::UserInfo;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
const EMAIL: &str = "email";
const EMAIL_VERIFIED: &str = "email_verified";

/// The user of a token that is verified.
///
/// # Errors
/// A claim is missing or of another type, or a rule does not hold.
pub(super) fn of_claims(rules: &JwtRules, claims: &Claims) -> Result<UserInfo, String> {
    let user = UserInfo {
        name: user_name(rules, claims)?,
        groups: groups(rules, claims)?,
        uid: uid(rules, claims)?,
        extra: extra(rules, claims)?,
    };
    check_claims(rules, claims)?;
    check_user(rules, &user)?;
    Ok(user)
}

fn user_name(rules: &JwtRules, claims: &Claims) -> Result<String, String> {
    let (name, prefix) = match &rules.username {
        Mapping::Claim { name, prefix } => (name, prefix),
        Mapping::Expression(expression) => {
            let failed = |why: String| format!("oidc: error evaluating username claim expression: {why}");
            let name = expression.evaluate(claims.value(), |value| {
                let name = value.as_str().map(str::to_owned);
                name.ok_or_else(|| "username claim expression must return a string".to_owned())
            });
            return match name.map_err(failed)? {
                name if name.is_empty() => {
                    Err("oidc: empty username via CEL expression is not allowed".to_owned())
                }
                name => Ok(name),
            };
        }
    };
    let own: String = claims
        .get(name)
        .map_err(|why| format!("oidc: parse username claims {name:?}: {why}"))?;
    if name == EMAIL && claims.has(EMAIL_VERIFIED) {
        let verified: bool = claims
            .get(EMAIL_VERIFIED)
            .map_err(|why| format!("oidc: parse 'email_verified' claim: {why}"))?;
        if !verified {
            return Err("oidc: email not verified".to_owned());
        }
    }
    Ok(format!("{prefix}{own}"))
}

fn groups(rules: &JwtRules, claims: &Claims) -> Result<Vec<String>, String> {
    match &rules.groups {
        None => Ok(Vec::new()),
        Some(Mapping::Claim { name, prefix }) => {
            if !claims.has(name) {
                return refuse_distributed(name, claims);
            }
            let groups = claims.texts(name);
            let groups = groups.map_err(|why| format!("oidc: parse groups claim {name:?}: {why}"))?;
            Ok(groups.iter().map(|group| format!("{prefix}{group}")).collect())
        }
        Some(Mapping::Expression(expression)) => {
            let groups = expression.evaluate(claims.value(), string_list);
            groups.map_err(|why| format!("oidc: error evaluating group claim expression: {why}"))
        }
    }
}

/// Groups that the token says are to be had elsewhere: a user without them would be another user.
fn refuse_distributed(name: &str, claims: &Claims) -> Result<Vec<String>, String> {
    let member = |key: &str, name: &str| claims.value().get(key)?.get(name);
    let Some(source) = member("_claim_names", name) else {
        return Ok(Vec::new());
    };
    let source = source.as_str().and_then(|own| member("_claim_sources", own));
    let endpoint = source.map(|own| own.get("endpoint").and_then(Value::as_str).unwrap_or_default());
    match endpoint {
        // One that the token holds itself, which upstream passes over.
        Some("") => Ok(Vec::new()),
        _ => Err(format!(
            "oidc: could not expand distributed claims: claim {name:?} is a distributed claim, which this server does not support"
        )),
    }
}

fn uid(rules: &JwtRules, claims: &Claims) -> Result<String, String> {
    match &rules.uid {
        None => Ok(String::new()),
        Some(Mapping::Claim { name, .. }) => claims
            .get(name)
            .map_err(|why| format!("oidc: parse uid claim {name:?}: {why}")),
        Some(Mapping::Expression(expression)) => {
            let uid = expression.evaluate(claims.value(), |value| {
                let uid = value.as_str().map(str::to_owned);
                uid.ok_or_else(|| "uid claim expression must return a string".to_owned())
            });
            uid.map_err(|why| format!("oidc: error evaluating uid claim expression: {why}"))
        }
    }
}

fn extra(rules: &JwtRules, claims: &Claims) -> Result<BTreeMap<String, Vec<String>>, String> {
    let mut extra = BTreeMap::new();
    if let Ok(id) = claims.get::<String>("jti")
        && !id.is_empty()
    {
        extra.insert(CREDENTIAL_ID.to_owned(), vec![format!("JTI={id}")]);
    }
    for rule in &rules.extra {
        let values = rule.values.evaluate(claims.value(), string_list);
        let values = values.map_err(|why| {
            let text = rule.values.text();
            format!("oidc: error evaluating extra claim expression: {text}: {why}")
        })?;
        if !values.is_empty() {
            extra.insert(rule.key.clone(), values);
        }
    }
    Ok(extra)
}

fn check_claims(rules: &JwtRules, claims: &Claims) -> Result<(), String> {
    for (name, expected) in &rules.required {
        if !claims.has(name) {
            return Err(format!("oidc: required claim {name} not present in ID token"));
        }
        let own: String = claims
            .get(name)
            .map_err(|why| format!("oidc: parse claim {name}: {why}"))?;
        if own != *expected {
            return Err(format!(
                "oidc: required claim {name} value does not match. want = {expected}"
            ));
        }
    }
    for rule in &rules.claims {
        let held = rule.condition.holds(claims.value());
        require(held, rule.condition.text(), &rule.message)
            .map_err(|why| format!("oidc: error evaluating claim validation expression: {why}"))?;
    }
    Ok(())
}

fn check_user(rules: &JwtRules, user: &UserInfo) -> Result<(), String> {
    if rules.users.is_empty() {
        return Ok(());
    }
    let value: Value = json!({
        "username": user.name,
        "uid": user.uid,
        "groups": user.groups,
        "extra": user.extra,
    });
    for rule in &rules.users {
        let held = rule.condition.holds(&value);
        require(held, rule.condition.text(), &rule.message)
            .map_err(|why| format!("oidc: error evaluating user info validation rule: {why}"))?;
    }
    Ok(())
}

fn require(held: Result<bool, String>, text: &str, message: &str) -> Result<(), String> {
    match held? {
        true => Ok(()),
        false => Err(format!("validation expression '{text}' failed: {message}")),
    }
}
