//! The strategy of kinds without rules of their own: a few traits, the rest is the table's.

use crate::certificates::signing_request;
use crate::context::RequestContext;
use crate::error::RegistryError;
use crate::options::DeleteOptions;
use crate::registry::Registry;
use crate::store::deletion::GarbagePolicy;
use crate::strategy::{AllocationChange, ObjectPart, Strategy, name_rule, path_segment_problems};
use crate::validation::{Path, ip_problems};
use crate::validation_rules::ValidationRules;
use crate::{
    apps, batch, certificates, coordination, core, discovery, extensions, networking, rbac, resource,
    scheduling, storage,
};
use apiserver_storage::Write;
use async_trait::async_trait;
use machinery_meta::syntax;
use machinery_runtime::Runtime;
use machinery_schema::{Ref, Tree};

/// Differences between kinds in the behavior that every kind has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits {
    pub names: NameRule,
    pub generation: bool,
    pub create_on_update: bool,
    pub unconditional_update: bool,
    pub returns_deleted: bool,
    pub garbage: GarbagePolicy,
    pub qualified_finalizers: bool,
}

/// The rule for names of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameRule {
    Subdomain,
    Label,
    Label1035,
    PathSegment,
    IpAddress,
    /// The kind's own validation says it.
    Any,
}

impl NameRule {
    pub fn problems(self, name: &str, prefix: bool) -> Vec<String> {
        match self {
            Self::Subdomain => name_rule(syntax::dns1123_subdomain, name, prefix),
            Self::Label => name_rule(syntax::dns1123_label, name, prefix),
            Self::Label1035 => name_rule(syntax::dns1035_label, name, prefix),
            Self::PathSegment => path_segment_problems(name, prefix),
            Self::IpAddress => ip_problems(name),
            Self::Any => Vec::new(),
        }
    }
}

impl Traits {
    pub const PLAIN: Self = Self {
        names: NameRule::Subdomain,
        generation: false,
        create_on_update: false,
        unconditional_update: true,
        returns_deleted: false,
        garbage: GarbagePolicy::Background,
        qualified_finalizers: true,
    };

    /// With a `metadata.generation` that counts.
    pub(crate) const COUNTED: Self = Self {
        generation: true,
        ..Self::PLAIN
    };

    pub(crate) const fn named(self, names: NameRule) -> Self {
        Self { names, ..self }
    }

    /// A PUT to a missing name creates.
    pub(crate) const fn put_creates(self) -> Self {
        Self {
            create_on_update: true,
            ..self
        }
    }

    /// A PUT must say which revision it replaces.
    pub(crate) const fn revision_wanted(self) -> Self {
        Self {
            unconditional_update: false,
            ..self
        }
    }

    /// A delete answers with the object.
    pub(crate) const fn returned(self) -> Self {
        Self {
            returns_deleted: true,
            ..self
        }
    }

    /// Dependents are orphaned by default.
    pub(crate) const fn orphaning(self) -> Self {
        Self {
            garbage: GarbagePolicy::Orphan,
            ..self
        }
    }

    /// Finalizers need no domain.
    pub(crate) const fn any_finalizers(self) -> Self {
        Self {
            qualified_finalizers: false,
            ..self
        }
    }
}

/// A kind of the table in the list of its group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    plural: &'static str,
    traits: Traits,
    rules: ValidationRules,
}

impl Kind {
    pub(crate) const fn of(plural: &'static str, traits: Traits, rules: ValidationRules) -> Self {
        Self {
            plural,
            traits,
            rules,
        }
    }
}

/// Differences of the kinds of each group. Every kind that is stored is in one of these lists or has a strategy of its own.
const GROUPS: [(&str, &[Kind]); 18] = [
    ("", core::KINDS),
    ("admissionregistration.k8s.io", extensions::ADMISSION),
    ("apiregistration.k8s.io", extensions::AGGREGATION),
    ("apps", apps::KINDS),
    ("autoscaling", extensions::AUTOSCALING),
    ("batch", batch::KINDS),
    ("certificates.k8s.io", certificates::KINDS),
    ("coordination.k8s.io", coordination::KINDS),
    ("discovery.k8s.io", discovery::KINDS),
    ("flowcontrol.apiserver.k8s.io", extensions::FLOW_CONTROL),
    ("networking.k8s.io", networking::KINDS),
    ("node.k8s.io", extensions::NODE),
    ("policy", extensions::POLICY),
    ("rbac.authorization.k8s.io", rbac::KINDS),
    ("resource.k8s.io", resource::KINDS),
    ("scheduling.k8s.io", scheduling::KINDS),
    ("storage.k8s.io", storage::KINDS),
    ("storagemigration.k8s.io", extensions::MIGRATION),
];

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub struct TableStrategy {
    pub traits: Traits,
    rules: ValidationRules,
    /// Group and plural, for the defaults set in code.
    kind: (&'static str, &'static str),
}

impl TableStrategy {
    /// The strategy of a built-in resource.
    pub fn of(group: &'static str, plural: &'static str) -> Self {
        let listed = GROUPS.iter().find(|(own, _)| *own == group);
        let found = listed.and_then(|(_, kinds)| kinds.iter().find(|kind| kind.plural == plural));
        // Reviews and the like, which are not stored, have neither traits nor rules.
        let (traits, rules) = found.map_or((Traits::PLAIN, ValidationRules::NONE), |kind| {
            (kind.traits, kind.rules)
        });
        Self {
            traits,
            rules,
            kind: (group, plural),
        }
    }
}

#[async_trait]
impl Strategy for TableStrategy {
    fn name_problems(&self, name: &str, prefix: bool) -> Vec<String> {
        self.traits.names.problems(name, prefix)
    }

    fn generated_name(&self, base: &str, runtime: &Runtime) -> String {
        match self.traits.names {
            // Nothing is an address any more with letters behind it.
            NameRule::IpAddress => base.to_owned(),
            _ => crate::metadata::generate_name(base, runtime),
        }
    }

    fn defaults(&self, object: &mut Tree) {
        crate::defaults::apply(self.kind.0, self.kind.1, object);
    }

    fn prepare_for_create(&self, ctx: &RequestContext, object: &mut Tree) {
        match self.kind {
            ("batch", "jobs") => crate::batch::job::select_own_pods(object),
            ("", "persistentvolumes") => {
                object.set_str(&["status", "phase"], "Pending");
                let now = crate::metadata::format_time(ctx.runtime.now());
                object.set_str(&["status", "lastPhaseTransitionTime"], &now);
            }
            ("", "persistentvolumeclaims") => {
                object.set_str(&["status", "phase"], "Pending");
                crate::core::claim::same_data_source(object);
            }
            ("", "limitranges") if crate::metadata::name(object).is_empty() => {
                let name = ctx.runtime.uuid().to_string();
                object.set_str(&["metadata", "name"], &name);
            }
            ("certificates.k8s.io", "certificatesigningrequests") => requested_by(ctx, object),
            ("apps", "daemonsets") => object.set_str(&TEMPLATE_GENERATION, "1"),
            _ => {}
        }
    }

    fn prepare_for_update(&self, ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
        match (self.kind, part) {
            (("apps", "deployments"), ObjectPart::Status) => {
                crate::metadata::restore_field(object, old, "labels");
            }
            (("resource.k8s.io", "resourceclaims"), ObjectPart::Status) => {
                crate::metadata::restore_for_status(object, old);
                resource::allocation::drop_released(object, old);
            }
            (
                ("resource.k8s.io", "devicetaintrules")
                | ("certificates.k8s.io", "podcertificaterequests")
                | ("networking.k8s.io", "servicecidrs")
                | ("storagemigration.k8s.io", _)
                | ("storage.k8s.io", "volumeattachments" | "csinodes")
                | ("admissionregistration.k8s.io", "validatingadmissionpolicies")
                | ("apiregistration.k8s.io", _),
                ObjectPart::Status,
            ) => crate::metadata::restore_for_status(object, old),
            (("flowcontrol.apiserver.k8s.io", _), ObjectPart::Status) => {
                crate::metadata::restore_for_status(object, old);
                crate::metadata::restore_field(object, old, crate::metadata::GRACE);
            }
            (("certificates.k8s.io", "certificatesigningrequests"), part) => {
                let now = crate::metadata::format_time(ctx.runtime.now());
                signing_request::prepare_for_update(part, object, old, &now);
            }
            (("", "persistentvolumeclaims"), ObjectPart::Main) => {
                crate::core::claim::same_data_source(object)
            }
            (("apps", "daemonsets"), ObjectPart::Main) => {
                let before: i64 = old.str_at(&TEMPLATE_GENERATION).parse().unwrap_or(0);
                let changed = object.at(&["spec", "template"]) != old.at(&["spec", "template"]);
                let generation = (before + i64::from(changed)).to_string();
                object.set_str(&TEMPLATE_GENERATION, &generation);
            }
            _ => {}
        }
    }

    fn spec_changed(&self, object: &Tree, old: &Tree) -> bool {
        // A PriorityClass has a generation, and nothing that would count.
        if self.kind == ("scheduling.k8s.io", "priorityclasses") {
            return false;
        }
        // A Deployment's rollback once lived in its annotations; they have counted since. The service a slice belongs
        // to is a label.
        let annotated = self.kind == ("apps", "deployments")
            && object.at(&["metadata", "annotations"]) != old.at(&["metadata", "annotations"]);
        let labelled = self.kind == ("discovery.k8s.io", "endpointslices")
            && object.at(&["metadata", "labels"]) != old.at(&["metadata", "labels"]);
        annotated || labelled || crate::metadata::spec_differs(object, old)
    }

    fn warnings(&self, object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
        match self.kind {
            ("storage.k8s.io", "csidrivers") => csi_driver_warnings(object, old),
            ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets")
            | ("batch", "jobs")
            | ("", "replicationcontrollers") => template_warnings(object, old),
            _ => Vec::new(),
        }
    }

    fn delete_warnings(&self, options: &DeleteOptions) -> Vec<String> {
        let silent = options.propagation.is_some() || options.orphan_dependents.is_some();
        if self.kind != ("batch", "jobs") || silent {
            return Vec::new();
        }
        vec!["child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning".into()]
    }

    fn rules(&self) -> ValidationRules {
        self.rules
    }

    fn wants_qualified_finalizers(&self) -> bool {
        self.traits.qualified_finalizers
    }

    fn allows_create_on_update(&self) -> bool {
        self.traits.create_on_update
    }

    fn allows_unconditional_update(&self) -> bool {
        self.traits.unconditional_update
    }

    fn counts_generation(&self) -> bool {
        self.traits.generation
    }

    fn garbage_policy(&self) -> GarbagePolicy {
        self.traits.garbage
    }

    fn returns_deleted_object(&self) -> bool {
        self.traits.returns_deleted
    }

    fn allocates(&self) -> bool {
        self.kind.0 == "resource.k8s.io" && resource::admin_access::KINDS.contains(&self.kind.1)
    }

    async fn allocate(
        &self,
        _ctx: &RequestContext,
        registry: &Registry,
        change: AllocationChange<'_>,
        object: &mut Tree,
    ) -> Result<Vec<Write>, RegistryError> {
        if self.allocates() {
            resource::admin_access::check(registry, self.kind.1, change, object).await?;
        }
        Ok(Vec::new())
    }
}

/// The annotation in which DaemonSets count changes of the template, older than revisions.
const TEMPLATE_GENERATION: [&str; 3] = [
    "metadata",
    "annotations",
    "deprecated.daemonset.template.generation",
];

/// Warnings about a new or changed pod template.
fn template_warnings(object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    let template = |object: Ref<'_>| object.at(&["spec", "template"]).map(Ref::to_json);
    match object.at(&["spec", "template"]) {
        Some(new) if old.is_none_or(|old| template(old) != template(object)) => {
            let spec = Path::of("spec");
            crate::core::pod::warnings::of(&spec.child("template"), new)
        }
        _ => Vec::new(),
    }
}

/// Tokens for a driver are better kept out of its logs.
fn csi_driver_warnings(object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
    let requests = |object: Ref<'_>| object.at(&["spec", "tokenRequests"]).map(Ref::to_json);
    let asks = object
        .at(&["spec", "tokenRequests"])
        .is_some_and(|requests| !requests.is_empty());
    let unset = object
        .at(&["spec", "serviceAccountTokenInSecrets"])
        .is_none_or(Ref::is_null);
    if asks && unset && old.is_none_or(|old| requests(old) != requests(object)) {
        return vec!["spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes".into()];
    }
    Vec::new()
}

/// A signing request names who made it.
fn requested_by(ctx: &RequestContext, object: &mut Tree) {
    object.set_str(&["spec", "username"], &ctx.user.name);
    object.remove(&["spec", "groups"]);
    object.remove(&["spec", "extra"]);
    object.remove(&["spec", "uid"]);
    if !ctx.user.uid.is_empty() {
        object.set_str(&["spec", "uid"], &ctx.user.uid);
    }
    for group in &ctx.user.groups {
        object.push(&["spec", "groups"], group.as_str());
    }
    for (key, values) in &ctx.user.extra {
        for value in values {
            object.push(&["spec", "extra", key], value.as_str());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists of kinds and the one table of kinds name the same: a name that is misspelt in a list would be a kind without
    /// the rules that were written for it.
    #[test]
    fn kinds_of_the_lists_are_those_of_the_table() {
        let table = machinery_api::table();
        let listed: Vec<(&str, &str)> = GROUPS
            .iter()
            .flat_map(|(group, kinds)| kinds.iter().map(move |kind| (*group, kind.plural)))
            .collect();
        let known = |(group, plural): &(&str, &str)| {
            let mut kinds = table.kinds().iter();
            kinds.any(|kind| kind.gvk.group == *group && kind.plural == *plural)
        };
        let unknown: Vec<_> = listed.iter().filter(|kind| !known(kind)).collect();
        assert!(unknown.is_empty(), "not in the table: {unknown:?}");
        for (at, kind) in listed.iter().enumerate() {
            assert!(!listed[..at].contains(kind), "{kind:?} is there twice");
            let own = core::strategy(kind.0, kind.1).or_else(|| extensions::strategy(kind.0, kind.1));
            assert!(
                own.is_none(),
                "{kind:?} has a strategy of its own: its line says nothing"
            );
        }
        for kind in table.kinds().iter().filter(|kind| kind.etcd_prefix.is_some()) {
            let (group, plural) = (kind.gvk.group.as_str(), kind.plural.as_str());
            let own = core::strategy(group, plural).or_else(|| extensions::strategy(group, plural));
            assert!(
                own.is_some() || listed.contains(&(group, plural)),
                "{group}/{plural} is stored and in no list: give it a line, of plain traits where it has no others"
            );
        }
    }
}
