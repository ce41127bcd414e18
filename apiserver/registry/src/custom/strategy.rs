//! The strategy of a custom kind: its decisions come from the schema and the subresources of its definition.

use crate::engine::context::RequestContext;
use crate::engine::metadata;
use crate::engine::strategy::{ObjectPart, Strategy};
use machinery_cel::{Data, Interrupt, Rules};
use machinery_meta::{FieldError, FieldErrorKind, FieldPath};
use machinery_schema::{Ref, Tree, structural};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Rules that take no more run where the request is: some milliseconds.
const LIGHT_RULES_WORK: u64 = 20_000;

/// See the module's comment.
#[derive(Debug, Clone)]
pub(super) struct SchemaStrategy {
    /// The version has a status subresource.
    pub(super) status: bool,
    /// Path of the replicas that `scale` reads, as the definition writes it and split into names.
    pub(super) replicas: Option<(String, Vec<String>)>,
    /// The schema has objects within the object.
    pub(super) embeds: bool,
    /// `x-kubernetes-validations` of the schema.
    pub(super) rules: Option<Arc<Rules>>,
}

impl SchemaStrategy {
    /// Runs the rules, which look at objects of the right form alone. Returns the warnings of those that a value of before broke
    /// already.
    fn check_rules(
        &self,
        object: Ref<'_>,
        old: Option<Ref<'_>>,
        interrupt: Option<Arc<dyn Interrupt>>,
        problems: &mut Vec<FieldError>,
    ) -> Vec<String> {
        let Some(rules) = &self.rules else {
            return Vec::new();
        };
        if problems.iter().any(|own| is_blocking(own.kind)) {
            problems.push(FieldError {
                kind: FieldErrorKind::Invalid,
                path: FieldPath::root(),
                value: Some("null".to_owned()),
                detail: "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation".to_owned(),
            });
            return Vec::new();
        }
        let verdict = rules.check(Data::from(object), old.map(Data::from), interrupt);
        problems.extend(verdict.problems);
        verdict.warnings
    }

    fn problems_of_new(&self, object: Ref<'_>, interrupt: Option<Arc<dyn Interrupt>>) -> Vec<FieldError> {
        let mut problems = self.check_schema(object, None);
        let _ = self.check_rules(object, None, interrupt, &mut problems);
        problems
    }

    fn check_schema(&self, object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<FieldError> {
        let mut problems = structural::validate(object, old);
        self.check_replicas(object, &mut problems);
        if self.embeds {
            let found = structural::validate_embedded(object, &metadata::validation::embedded_problems);
            problems.extend(found);
        }
        problems
    }

    fn check_replicas(&self, object: Ref<'_>, problems: &mut Vec<FieldError>) {
        let Some((text, path)) = &self.replicas else {
            return;
        };
        let found = path
            .iter()
            .try_fold(object, |at, name| at.get(name))
            .and_then(Ref::as_i64);
        if let Some(replicas) = found.filter(|replicas| *replicas < 0) {
            let detail = "should be a non-negative integer";
            problems.push(FieldError::invalid(&FieldPath::new(text), replicas, detail));
        }
    }
}

/// Problems after which rules are not run.
fn is_blocking(kind: FieldErrorKind) -> bool {
    matches!(
        kind,
        // The schema's own bound, which makes the only `Forbidden` here, leaves nothing to spend on rules.
        FieldErrorKind::Forbidden
            | FieldErrorKind::NotSupported
            | FieldErrorKind::Required
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany
            | FieldErrorKind::TypeInvalid
    )
}

impl Strategy for SchemaStrategy {
    /// Qualified names are required of kinds of the core alone.
    fn wants_qualified_finalizers(&self) -> bool {
        false
    }

    /// A status that was dropped has its defaults all the same: upstream fills them in whenever it reads.
    fn prepare_for_create(&self, _ctx: &RequestContext, object: &mut Tree) {
        machinery_schema::apply_defaults(object);
    }

    fn prepare_for_update(&self, _ctx: &RequestContext, part: ObjectPart, object: &mut Tree, old: &Tree) {
        // The status of a custom resource is all its subresource may change.
        if part == ObjectPart::Status {
            metadata::restore_all_but(object, old, &["resourceVersion", "managedFields"]);
        }
        machinery_schema::apply_defaults(object);
    }

    fn validate(&self, object: Ref<'_>) -> Vec<FieldError> {
        self.problems_of_new(object, None)
    }

    fn validate_within(&self, ctx: &RequestContext, object: Ref<'_>) -> Vec<FieldError> {
        self.problems_of_new(object, Some(ctx.interrupt()))
    }

    fn validate_update(
        &self,
        ctx: &RequestContext,
        _part: ObjectPart,
        object: Ref<'_>,
        old: Ref<'_>,
    ) -> Vec<FieldError> {
        let mut problems = self.check_schema(object, Some(old));
        // As upstream, which warns while it validates: the rules run once.
        let interrupt = Some(ctx.interrupt());
        for warning in self.check_rules(object, Some(old), interrupt, &mut problems) {
            ctx.warnings.add(warning);
        }
        problems
    }

    fn is_heavy_to_validate(&self) -> bool {
        let rules = self.rules.as_ref();
        rules.is_some_and(|rules| rules.greatest_work() > LIGHT_RULES_WORK)
    }

    fn warnings(&self, object: Ref<'_>, old: Option<Ref<'_>>) -> Vec<String> {
        let of = |object: Ref<'_>| -> BTreeSet<String> {
            let meta = object.get("metadata").into_iter();
            let listed = meta.flat_map(|meta| meta.list("finalizers"));
            listed.filter_map(Ref::as_str).map(str::to_owned).collect()
        };
        let known = old.map(of).unwrap_or_default();
        let new = of(object).into_iter().filter(|own| !known.contains(own));
        new.filter(|own| !own.contains('/') && !metadata::STANDARD_FINALIZERS.contains(&own.as_str()))
            .map(|own| {
                let path = if own.contains('.') { " including a path (/)" } else { "" };
                format!("metadata.finalizers: {own:?}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other finalizer writers")
            })
            .collect()
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn spec_changed(&self, object: &Tree, old: &Tree) -> bool {
        metadata::spec_differs(object, old) || (!self.status && object.get("status") != old.get("status"))
    }
}
