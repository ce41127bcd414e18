//! Policies that leave traffic out, as long as nothing filters it.

use machinery_schema::Ref;

/// The first direction in which a policy leaves anything out.
pub(crate) fn refusal(policy: Ref<'_>) -> Option<(String, &'static str)> {
    let kind = isolated(policy.get("spec")?)?;
    Some((format!("spec.policyTypes: {kind}"), "traffic is not filtered"))
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
