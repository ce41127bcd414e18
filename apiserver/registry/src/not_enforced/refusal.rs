//! Objects that guard something, as long as nothing acts on them.

use machinery_schema::Ref;

const WEBHOOKS: &str = "admission webhooks are not called";
const POLICIES: &str = "admission policies are not evaluated";

/// The reason not to store an object that nothing enforces; `None` for objects that may be stored with a warning.
///
/// Refused is what denies by itself: requests (webhooks and policies whose failure refuses them, bindings that deny),
/// and traffic (network policies that leave anything out).
pub fn refusal(group: &str, plural: &str, object: Ref<'_>) -> Option<String> {
    let (path, missing) = match (group, plural) {
        (
            "admissionregistration.k8s.io",
            "mutatingwebhookconfigurations" | "validatingwebhookconfigurations",
        ) => {
            let fails = |webhook: &Ref<'_>| webhook.str("failurePolicy") != "Ignore";
            let at = object.list("webhooks").position(|webhook| fails(&webhook))?;
            (format!("webhooks[{at}].failurePolicy: Fail"), WEBHOOKS)
        }
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => {
            let ignores = object.str_at(&["spec", "failurePolicy"]) == "Ignore";
            (!ignores).then(|| ("spec.failurePolicy: Fail".to_owned(), POLICIES))?
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => {
            let mut actions = object.get("spec")?.list("validationActions");
            let denies = actions.any(|action| action.as_str() == Some("Deny"));
            denies.then(|| ("spec.validationActions: Deny".to_owned(), POLICIES))?
        }
        ("networking.k8s.io", "networkpolicies") => {
            let kind = isolated(object.get("spec")?)?;
            (format!("spec.policyTypes: {kind}"), "traffic is not filtered")
        }
        _ => return None,
    };
    Some(format!(
        "{path}: {missing} by this server yet, so that nothing would be kept out; \
         a server that is started with --allow-unenforced stores it all the same"
    ))
}

/// The first direction in which a network policy leaves traffic out: where no rule lets everything through.
fn isolated(spec: Ref<'_>) -> Option<&'static str> {
    let lets_all_through = |rules: &str, peers: &str| {
        let open = |rule: Ref<'_>| rule.list(peers).next().is_none() && rule.list("ports").next().is_none();
        spec.list(rules).any(open)
    };
    let named = |kind: &str| spec.list("policyTypes").any(|own| own.as_str() == Some(kind));
    let is_default = spec.list("policyTypes").next().is_none();
    if (named("Ingress") || is_default) && !lets_all_through("ingress", "from") {
        return Some("Ingress");
    }
    let out = named("Egress") || (is_default && spec.list("egress").next().is_some());
    (out && !lets_all_through("egress", "to")).then_some("Egress")
}

#[cfg(test)]
mod tests {
    use super::*;
    use machinery_schema::{Strictness, decode_json};
    use serde_json::{Value, json};

    #[track_caller]
    fn check(group: &str, kind: &str, plural: &str, object: &Value, expected: Option<&str>) {
        let (schema, ty) = machinery_api::schema_for(group, "v1", kind).unwrap();
        let decoded = decode_json(schema, ty, object.to_string().as_bytes(), Strictness::Ignore).unwrap();
        let found = refusal(group, plural, decoded.tree.root());
        let found = found
            .as_deref()
            .map(|text| text.split(" by this server").next().unwrap());
        assert_eq!(found, expected, "{object}");
    }

    #[test]
    fn refusal_of_webhooks_goes_by_their_failure_policy() {
        let webhooks = |policies: &[Value]| {
            let of = |policy: &Value| json!({"name": "a.b.c", "failurePolicy": policy});
            json!({"webhooks": policies.iter().map(of).collect::<Vec<_>>()})
        };
        for (kind, plural) in [
            (
                "ValidatingWebhookConfiguration",
                "validatingwebhookconfigurations",
            ),
            ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
        ] {
            let check = |object: &Value, expected: Option<&str>| {
                check("admissionregistration.k8s.io", kind, plural, object, expected)
            };
            check(&json!({}), None);
            check(&webhooks(&[json!("Ignore")]), None);
            let second = "webhooks[1].failurePolicy: Fail: admission webhooks are not called";
            check(&webhooks(&[json!("Ignore"), json!("Fail")]), Some(second));
            check(&webhooks(&[json!("Ignore"), Value::Null]), Some(second));
        }
    }

    #[test]
    fn refusal_of_policies_goes_by_what_they_deny() {
        let group = "admissionregistration.k8s.io";
        let binding = |actions: Value, expected| {
            let (kind, plural) = (
                "ValidatingAdmissionPolicyBinding",
                "validatingadmissionpolicybindings",
            );
            check(
                group,
                kind,
                plural,
                &json!({"spec": {"validationActions": actions}}),
                expected,
            );
        };
        binding(json!(["Warn", "Audit"]), None);
        let denies = "spec.validationActions: Deny: admission policies are not evaluated";
        binding(json!(["Audit", "Deny"]), Some(denies));
        let policy = |spec: Value, expected| {
            let (kind, plural) = ("MutatingAdmissionPolicy", "mutatingadmissionpolicies");
            check(group, kind, plural, &json!({"spec": spec}), expected);
        };
        policy(json!({"failurePolicy": "Ignore"}), None);
        policy(
            json!({}),
            Some("spec.failurePolicy: Fail: admission policies are not evaluated"),
        );
    }

    #[test]
    fn refusal_of_network_policies_goes_by_what_they_leave_out() {
        let check = |spec: Value, expected| {
            let object = json!({ "spec": spec });
            check(
                "networking.k8s.io",
                "NetworkPolicy",
                "networkpolicies",
                &object,
                expected,
            );
        };
        let (into, out) = (
            "spec.policyTypes: Ingress: traffic is not filtered",
            "spec.policyTypes: Egress: traffic is not filtered",
        );
        check(json!({"policyTypes": ["Ingress"]}), Some(into));
        check(json!({}), Some(into));
        check(json!({"policyTypes": ["Ingress"], "ingress": [{}]}), None);
        check(
            json!({"policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": 80}]}]}),
            Some(into),
        );
        check(
            json!({"policyTypes": ["Ingress"], "ingress": [{"ports": [{"port": 80}]}, {}]}),
            None,
        );
        check(json!({"policyTypes": ["Egress"], "egress": [{}]}), None);
        check(json!({"policyTypes": ["Egress"]}), Some(out));
        check(
            json!({"ingress": [{}], "egress": [{"to": [{"podSelector": {}}]}]}),
            Some(out),
        );
    }
}
