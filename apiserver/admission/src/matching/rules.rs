//! Rules by which a webhook is called or a policy applies (upstream's `rules.Matcher`).

use crate::Operation;
use k8s_openapi::api::admissionregistration::v1::{NamedRuleWithOperations, RuleWithOperations};
use machinery_meta::GroupVersionResource;

/// The places of the objects that a rule is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    All,
    Namespaced,
    Cluster,
    /// Not known to this server: nothing.
    Other,
}

/// A rule.
#[derive(Debug)]
pub(crate) struct Rule {
    operations: Vec<String>,
    groups: Vec<String>,
    versions: Vec<String>,
    resources: Vec<String>,
    scope: Scope,
    /// Names of objects; without any, all.
    names: Vec<String>,
}

/// A request as a rule sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) operation: Operation,
    pub(crate) resource: &'a GroupVersionResource,
    pub(crate) subresource: &'a str,
    /// Of a namespace its own name.
    pub(crate) namespace: &'a str,
    /// Empty while a name is still to be generated.
    pub(crate) name: &'a str,
}

impl From<RuleWithOperations> for Rule {
    fn from(rule: RuleWithOperations) -> Self {
        Self {
            operations: rule.operations.unwrap_or_default(),
            groups: rule.api_groups.unwrap_or_default(),
            versions: rule.api_versions.unwrap_or_default(),
            resources: rule.resources.unwrap_or_default(),
            scope: match rule.scope.as_deref() {
                None | Some("*") => Scope::All,
                Some("Namespaced") => Scope::Namespaced,
                Some("Cluster") => Scope::Cluster,
                Some(_) => Scope::Other,
            },
            names: Vec::new(),
        }
    }
}

impl From<NamedRuleWithOperations> for Rule {
    fn from(rule: NamedRuleWithOperations) -> Self {
        let NamedRuleWithOperations {
            operations,
            api_groups,
            api_versions,
            resources,
            resource_names,
            scope,
        } = rule;
        let rule = RuleWithOperations {
            operations,
            api_groups,
            api_versions,
            resources,
            scope,
        };
        Self {
            names: resource_names.unwrap_or_default(),
            ..rule.into()
        }
    }
}

fn has(values: &[String], wanted: &str) -> bool {
    values.iter().any(|own| own == "*" || own == wanted)
}

impl Rule {
    pub(crate) fn matches(&self, asked: Asked<'_>) -> bool {
        let resource = asked.resource;
        self.scope_matches(asked)
            && has(&self.operations, asked.operation.as_str())
            && has(&self.groups, &resource.group)
            && has(&self.versions, &resource.version)
            && (self.names.is_empty() || self.names.iter().any(|own| own == asked.name))
            && self.resources.iter().any(|own| {
                let (name, part) = own.split_once('/').unwrap_or((own, ""));
                (name == "*" || name == resource.resource) && (part == "*" || part == asked.subresource)
            })
    }

    /// A namespace is of the cluster, whatever namespace its request is in.
    fn scope_matches(&self, asked: Asked<'_>) -> bool {
        let resource = asked.resource;
        let is_namespace =
            (&*resource.group, &*resource.version, &*resource.resource) == ("", "v1", "namespaces");
        let in_namespace = !is_namespace && !asked.namespace.is_empty();
        match self.scope {
            Scope::All => true,
            Scope::Namespaced => in_namespace,
            Scope::Cluster => !in_namespace,
            Scope::Other => false,
        }
    }
}
