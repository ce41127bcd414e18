//! The strategy of kinds without rules of their own: a few traits, the rest is the table's.

use crate::context::RequestContext;
use crate::error::RegistryError;
use crate::kind::{Kind, NameRule, Traits};
use crate::kinds::certificates::certificate_signing_request::validation as signing_request;
use crate::kinds::resource;
use crate::options::DeleteOptions;
use crate::registry::Registry;
use crate::store::deletion::GarbagePolicy;
use crate::strategy::{AllocationChange, ObjectPart, Strategy};
use crate::validation_rules::ValidationRules;
use apiserver_storage::Write;
use async_trait::async_trait;
use machinery_runtime::Runtime;
use machinery_schema::{Ref, Tree};

/// See the module's comment.
#[derive(Debug, Clone, Copy)]
pub struct TableStrategy {
    pub traits: Traits,
    rules: ValidationRules,
    /// Group and plural, for the defaults set in code.
    kind: (&'static str, &'static str),
}

impl TableStrategy {
    /// The strategy of a built-in kind.
    pub fn of(kind: &'static Kind) -> Self {
        Self {
            traits: kind.traits,
            rules: kind.rules,
            kind: (kind.group, kind.plural),
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
            ("batch", "jobs") => crate::kinds::batch::job::select_own_pods(object),
            ("", "persistentvolumes") => {
                object.set_str(&["status", "phase"], "Pending");
                let now = crate::metadata::format_time(ctx.runtime.now());
                object.set_str(&["status", "lastPhaseTransitionTime"], &now);
            }
            ("", "persistentvolumeclaims") => {
                object.set_str(&["status", "phase"], "Pending");
                crate::kinds::core::persistent_volume_claim::same_data_source(object);
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
                resource::resource_claim::allocation::drop_released(object, old);
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
                crate::kinds::core::persistent_volume_claim::same_data_source(object)
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
            ("", "resourcequotas") if old.is_none() => crate::kinds::core::resource_quota::warnings(object),
            ("apps" | "batch", _) | ("", "replicationcontrollers") => {
                crate::workload_warnings::of(self.kind.1, object, old)
            }
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
