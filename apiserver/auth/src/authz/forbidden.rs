//! The words of a refusal (apiserver's `responsewriters.Forbidden`).

use super::{Attributes, AttributesTarget, Decision};
use machinery_meta::GroupResource;

/// The content of an answer with 403; `endpoints::status` makes the `Status` of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Forbidden {
    /// Empty for a path.
    pub resource: GroupResource,
    pub name: String,
    /// `User "x" cannot list resource "pods" …`, with the authorizers' reason behind it.
    pub detail: String,
}

impl Forbidden {
    pub fn new(attributes: &Attributes<'_>, decision: &Decision) -> Self {
        let mut detail = escape(&cannot(attributes));
        let reason = decision.reason().to_string();
        if !reason.is_empty() {
            detail.push_str(": ");
            detail.push_str(&reason);
        }
        match &attributes.target {
            AttributesTarget::Path(_) => Self {
                resource: GroupResource::default(),
                name: String::new(),
                detail,
            },
            AttributesTarget::Resource(target) => Self {
                resource: GroupResource::new(target.group, target.resource),
                name: target.name.to_owned(),
                detail,
            },
        }
    }

    /// The whole message of the `Status`.
    pub fn message(&self) -> String {
        match (self.resource.resource.is_empty(), self.name.is_empty()) {
            (true, _) => format!("forbidden: {}", self.detail),
            (false, true) => format!("{} is forbidden: {}", self.resource, self.detail),
            (false, false) => format!("{} {:?} is forbidden: {}", self.resource, self.name, self.detail),
        }
    }
}

fn cannot(attributes: &Attributes<'_>) -> String {
    let (user, verb) = (&attributes.user.name, attributes.verb);
    match &attributes.target {
        AttributesTarget::Path(path) => format!("User {user:?} cannot {verb} path {path:?}"),
        AttributesTarget::Resource(target) => {
            let resource = if target.subresource.is_empty() {
                target.resource.to_owned()
            } else {
                format!("{}/{}", target.resource, target.subresource)
            };
            let group = target.group;
            if target.namespace.is_empty() {
                format!(
                    "User {user:?} cannot {verb} resource {resource:?} in API group {group:?} at the cluster scope"
                )
            } else {
                let namespace = target.namespace;
                format!(
                    "User {user:?} cannot {verb} resource {resource:?} in API group {group:?} in the namespace {namespace:?}"
                )
            }
        }
    }
}

/// Names come from outside and may end up in a browser.
fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authz::Reason;
    use crate::authz::attributes::ResourceTarget;
    use machinery_meta::UserInfo;

    #[track_caller]
    fn check(target: AttributesTarget<'_>, reason: Reason, expected: &str) {
        let user = UserInfo::named("jane<", ["dev"]);
        let attributes = Attributes {
            asker: None,
            user: &user,
            verb: "list",
            target,
        };
        assert_eq!(
            Forbidden::new(&attributes, &Decision::NoOpinion(reason)).message(),
            expected
        );
    }

    #[test]
    fn forbidden_message_matches_upstream() {
        let pods = ResourceTarget {
            version: "v1",
            resource: "pods",
            namespace: "a",
            ..ResourceTarget::default()
        };
        check(
            AttributesTarget::Resource(pods),
            Reason::None,
            r#"pods is forbidden: User "jane&lt;" cannot list resource "pods" in API group "" in the namespace "a""#,
        );
        let scale = ResourceTarget {
            group: "apps",
            version: "v1",
            resource: "deployments",
            subresource: "scale",
            name: "web",
            ..ResourceTarget::default()
        };
        check(
            AttributesTarget::Resource(scale),
            Reason::Text("RBAC: x".into()),
            r#"deployments.apps "web" is forbidden: User "jane&lt;" cannot list resource "deployments/scale" in API group "apps" at the cluster scope: RBAC: x"#,
        );
        check(
            AttributesTarget::Path("/metrics"),
            Reason::None,
            r#"forbidden: User "jane&lt;" cannot list path "/metrics""#,
        );
    }
}
